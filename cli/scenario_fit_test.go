package cli

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/recording"
	"locktop/loadgen"
	"locktop/loadgen/fit"
)

// jobs writes 10 minutes of six locks to add. Each is held for 4 s of every 10 s, by one
// owner, with a TTL of 3 s that is renewed every second.
func jobs(begin time.Time, add func(keyspace.Snapshot)) {
	for second := range 601 {
		s := keyspace.Snapshot{At: begin.Add(time.Duration(second) * time.Second), Complete: true, Watch: keyspace.WatchStatus{Mode: keyspace.Push}}
		for n, key := range []string{"cron:secret", "job:1", "job:2", "job:3", "job:4", "job:5"} {
			age := (second + 10 - n) % 10
			since := s.At.Add(-time.Duration(age) * time.Second)
			l := keyspace.Lock{Key: key, Kind: keyspace.Mutex, Confidence: keyspace.Certain, Expires: s.At.Add(3 * time.Second)}
			l.Holders = []keyspace.Holder{{ID: fmt.Sprint(key, since.Unix()), Label: "canary-" + key, Depth: 1, Since: since, Expires: l.Expires}}
			if age > 0 {
				l.Renewals, l.Renewed = age, s.At
			}
			switch {
			case age < 4:
				s.Locks = append(s.Locks, &l)
			case age == 4 && second > 3:
				l.Renewals, l.Renewed, l.Expires = 3, s.At.Add(-time.Second), s.At.Add(2*time.Second)
				l.Holders[0].Expires = l.Expires
				s.Events = append(s.Events, keyspace.Event{At: s.At, Kind: keyspace.Released, Lock: l, Holder: l.Holders[0], Held: 4 * time.Second})
			}
			if age == 0 {
				s.Events = append(s.Events, keyspace.Event{At: s.At, Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]})
			}
		}
		add(s)
	}
}

// jobRecordings returns a file and a directory with the holds of jobs.
func jobRecordings(t *testing.T, begin time.Time) (file, dir string) {
	t.Helper()
	dir = t.TempDir()
	var all []keyspace.Snapshot
	box := check.Must(recording.NewDirWriter(dir, recording.DirOptions{Report: func(text string) { t.Error(text) }}))(t)
	jobs(begin, func(s keyspace.Snapshot) {
		box.Add(s)
		all = append(all, s)
	})
	check.NoError(t, box.Close())
	return recorded(t, all...), dir
}

func TestARecordingBecomesAScenario(t *testing.T) {
	t.Parallel()
	file, dir := jobRecordings(t, time.Date(2026, 11, 22, 3, 0, 0, 0, time.Local))
	for _, name := range []string{file, dir} {
		args := []string{"scenarios", "--from", name, "--at", "03:00:05", "--for", "9m"}
		out := locktop(t, append(args, "--match", "job:*")...)
		check.Require(t, out.code == 0 && out.errors == "", "%d %s", out.code, out.errors)
		s, err := loadgen.Parse([]byte(out.out))
		check.Require(t, err == nil, "%v\n%s", err, out.out)
		want := loadgen.Scenario{Rate: 0.5, Arrivals: loadgen.Even, Hold: loadgen.Const(4 * time.Second), Keys: loadgen.Keys{Pick: loadgen.PickUniform, N: 5},
			Lock: loadgen.Lock{Kind: loadgen.Mutex, TTL: 3 * time.Second, Renew: loadgen.Renew{PerTTL: 3}}, Think: loadgen.Const(6 * time.Second), Clients: 59, Duration: 9 * time.Minute}
		want.Name, want.Caption = s.Name, s.Caption
		check.True(t, string(s.Marshal()) == string(want.Marshal()), "%s\nwant\n%s", out.out, want.Marshal())
		for _, line := range []string{
			"# Fitted by locktop to 9 m from 2026-11-22 03:00:05",
			"# From 270 holds. Attempts were not seen: the rate is a lower bound.",
			"# From 270, of which 3 are censored: they lasted at least so long. KS distance 0.000. 267 holds ended by a release, 0 by expiry.",
		} {
			check.True(t, strings.Contains(out.out, line), "%s\nhas no line %s", out.out, line)
		}
		all := locktop(t, args...)
		named := locktop(t, append(args, "--names")...)
		for _, secret := range []string{"canary", "job:", "secret", filepath.Base(name)} {
			check.False(t, strings.Contains(all.out, secret), "%s\nhas %s", all.out, secret)
		}
		if !strings.Contains(all.out, "of 2 classes") || !strings.Contains(named.out, `"cron:secret" 54`) || !strings.Contains(named.out, `"canary-job:1" 54`) {
			t.Errorf("%s", named.out)
		}
	}
}

func TestWhatCannotBeFittedIsOneLine(t *testing.T) {
	t.Parallel()
	file, dir := jobRecordings(t, time.Date(2026, 11, 22, 3, 0, 0, 0, time.Local))
	other := filepath.Join(t.TempDir(), "other")
	write(t, other, "no recording")
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"--from " + file + " --at 03:00:06 --for 3s", exitFailure, "locktop: no hold began in the 3 s from 2026-11-22 03:00:06 on"},
		{"--from " + dir + " --match x*", exitFailure, "locktop: no hold began in the 5 m from"},
		{"--from " + dir + " --at 04:00", exitUsage, "locktop: --at: 2026-11-21 04:00:00"},
		{"--from " + other, exitFailure, "not a recording that this version of locktop can read"},
		{"--from " + dir + "/none", exitFailure, "no such file"},
		{"--from " + dir + " freeze", exitUsage, "locktop: --from fits a scenario, and freeze names another one"},
		{"--from " + dir + " --for -3s", exitUsage, "locktop: --for must not be negative"},
		{"--at 03:00", exitUsage, "locktop: --at, --for, --match and --names need --from RECORDING"},
	} {
		locktop(t, append([]string{"scenarios"}, strings.Fields(tt.args)...)...).fails(t, tt.code, tt.want)
	}
}

// The end of a hold is read later than it happens, by as much as the acquire of a free lock: 10 ms.
// The token of the next hold can say when that began.
func TestTheNextHoldEndsTheOneBefore(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	for _, tt := range []struct {
		kind  keyspace.EventKind
		since int
		want  [3]int // begin and end of the first hold, begin of the second, in ms
	}{
		{keyspace.Replaced, 180, [3]int{100, 180, 180}},
		{keyspace.Released, 250, [3]int{100, 190, 250}},
		{keyspace.Released, 50, [3]int{100, 190, 190}},
		{keyspace.HandedOver, 180, [3]int{100, 190, 190}}, // it was in the queue then
	} {
		c := newHoldCollector(&fitOptions{}, begin, time.Second)
		first := keyspace.Lock{Key: "a", Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: "1", Since: at(100)}}}
		second := keyspace.Lock{Key: "a", Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: "2", Since: at(tt.since)}}}
		c.event(&keyspace.Event{At: at(110), Kind: keyspace.Acquired, Lock: first, Holder: first.Holders[0]})
		c.event(&keyspace.Event{At: at(200), Kind: tt.kind, Lock: second, Holder: first.Holders[0]})
		c.event(&keyspace.Event{At: at(260), Kind: keyspace.Acquired, Lock: second, Holder: second.Holders[0]})
		c.settle()
		got := [3]int{int(c.holds[0].Begin.Milliseconds()), int(c.holds[0].End.Milliseconds()), int(c.holds[1].Begin.Milliseconds())}
		check.True(t, got == tt.want && c.holds[0].Ending == fit.Released, "%s, since %d: %v, want %v", tt.kind, tt.since, got, tt.want)
	}
}

// A hold counts as ended only if its holder ended it.
func TestADeletedLockIsACensoredHold(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	for _, kind := range keyspace.EventKinds() {
		if !kind.Ends() {
			continue
		}
		c := newHoldCollector(&fitOptions{}, begin, time.Minute)
		l := keyspace.Lock{Key: "a", Kind: keyspace.Latch, Holders: []keyspace.Holder{{ID: "1", Since: begin}}}
		c.event(&keyspace.Event{At: begin, Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]})
		c.event(&keyspace.Event{At: begin.Add(time.Second), Kind: kind, Lock: l, Holder: l.Holders[0]})
		c.settle()
		want := fit.Running
		switch {
		case kind == keyspace.Expired:
			want = fit.Expired
		case slices.Contains([]keyspace.EventKind{keyspace.Released, keyspace.HandedOver, keyspace.Replaced}, kind):
			want = fit.Released
		}
		h, end := c.holds[0], map[bool]time.Duration{false: time.Second}[kind == keyspace.Vanished] // else it ended since the last read
		check.True(t, h.Ending == want && h.End == end && h.Kind == loadgen.Mutex, "%s: %+v", kind, h)
	}
}
