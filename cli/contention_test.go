package cli

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/servertest"
)

// loadEvent is an event of a load that the test needs.
type loadEvent struct {
	At    time.Time
	Event string
	Owner string
}

// waited returns how long the clients of a load waited within a span, all together.
func waited(events []loadEvent, from, until time.Time) (sum time.Duration) {
	since := make(map[string]time.Time)
	for _, e := range events {
		switch e.Event {
		case "arrive":
			since[e.Owner] = e.At
		case "acquire", "timeout":
			if span := min(e.At.Sub(from), until.Sub(from)) - max(since[e.Owner].Sub(from), 0); span > 0 {
				sum += span
			}
			delete(since, e.Owner)
		}
	}
	for _, began := range since {
		sum += max(0, until.Sub(from)-max(began.Sub(from), 0))
	}
	return sum
}

// At least half of the waiting is seen, and no more than half too much: a busy machine reads some holds late, and the
// span is short. TestContentionSeesTheWaitsOfAnyPoll of lab/proofs compares each waiter, holder and key, over a longer one.
func TestContentionSeesTheWaitsOfALoad(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	file := filepath.Join(t.TempDir(), "events")
	load := start(t, "load", "-u", "redis://"+addr, "--duration", "0", "--events", file, "--threshold", "outage.longest < 1m",
		"--clients", "6", "--keys", "1", "--wait", "{poll: 20ms, jitter: 0.2}", "--hold", "exp:15ms", "--think", "10ms")
	d := documentIn[render.ContentionDocument](t, locktop(t, "contention", "--json", "-u", "redis://"+addr, "--monitor", "--for", "400ms"))
	check.Require(t, d.Monitored != nil, "MONITOR did not run: %+v", d)
	load.stop()
	load.exits(t, exitInterrupted)
	from := check.Must(time.Parse(time.RFC3339, d.Monitored.From))(t)
	until := check.Must(time.Parse(time.RFC3339, d.Monitored.Until))(t)
	events := decodedLines[loadEvent](t, readText(t, file))
	slices.SortStableFunc(events, func(a, b loadEvent) int { return a.At.Compare(b.At) })
	var seen time.Duration
	for _, b := range d.BlockedBy {
		for _, w := range b.Waiters {
			check.True(t, slices.ContainsFunc(events, func(e loadEvent) bool { return e.Owner == w.Label }) &&
				slices.ContainsFunc(events, func(e loadEvent) bool { return e.Owner == b.Holder.Label }), "%q waits for %q, which are no clients of the load", w.Label, b.Holder.Label)
			seen += time.Duration(*w.WaitedMS) * time.Millisecond
		}
	}
	all := waited(events, from, until)
	check.True(t, all > 0 && (seen-all).Abs() <= all/2, "%v of %v are seen: %+v", seen, all, d.BlockedBy)
}

// Waiters that the library stores are seen without MONITOR.
func TestContentionShowsStoredWaiters(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	send(t, addr, "SET", "orders:4713", "pay-7:52~01a20e37-d12f-7743-b2a6-c9e1c60bb87b", "PX", 60_000)
	send(t, addr, "ZADD", "{orders:4713}:waiters", 1_700_000_000_000_000, "api-2:17~5f1c2a3b4d5e")
	where := []string{"contention", "-u", "redis://" + addr}
	stored := regexp.MustCompile(`(?m) stored$`)
	got := locktopFor(t, func(got outcome) bool { return stored.MatchString(got.out) }, where...)
	for _, want := range []string{`(?m)^orders:\* +1 +100% +1 +\d\.\d\d s/s +pay-7:52 100% +≥\S+ m?s +≥\S+ m?s +stored$`, `(?m)^pay-7:52 +orders:4713 +1 +\S+ m?s +\S+ m?s +stored$`, `only poll are seen with --monitor`} {
		check.True(t, got.code == exitFine && regexp.MustCompile(want).MatchString(got.out),
			"it ends with %d, and does not print %s:\n%s%s", got.code, want, got.out, got.errors)
	}
	folded := regexp.MustCompile(`^orders:\*;orders:4713;pay-7:52;api-2:17~5f1c2a3b4d5e \d+\n$`)
	got = locktopFor(t, func(got outcome) bool { return folded.MatchString(got.out) }, append(where, "--folded", "orders:*")...)
	check.True(t, folded.MatchString(got.out), "folded it prints %q", got.out)
	got = locktop(t, append(where, "--for", "200ms", "--folded", "other:*")...)
	check.True(t, got.out == "" && got.code == exitFine, "of no lock it prints %q, and ends with %d", got.out, got.code)
}

func TestContentionRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	aUser(t, addr, "nomonitor", "reset", "on", ">pw", "~*", "&*", "+@all", "-monitor")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--force"}, exitUsage, "--force needs --monitor"},
		{[]string{"--for", "0s"}, exitUsage, "--for: not a positive time"},
		{[]string{"--monitor", "--for", "2m"}, exitUsage, "with --monitor, --for is at most 1 m"},
		{[]string{"--order", "--folded"}, exitUsage, "--folded excludes"},
		{[]string{"--classes", "0"}, exitUsage, "--classes: not a positive number"},
		{[]string{"--monitor", "--user", "nomonitor", "-a", "pw"}, exitFailure, "this user may not run MONITOR (it needs +monitor"},
	} {
		got := locktop(t, append([]string{"contention", "-u", "redis://" + addr}, c.args...)...)
		got.says(t, c.code, c.want)
		check.True(t, got.out == "", "contention %q prints %s", c.args, got.out)
	}
}

// An interrupt prints what was seen so far, and ends MONITOR.
func TestAnInterruptPrintsTheContentionSoFar(t *testing.T) {
	t.Parallel()
	addr := aLock(t)
	rdb := namedClient(t, addr, "")
	c := start(t, "contention", "--monitor", "--for", "1m", "-u", "redis://"+addr)
	c.errors.sees(t, "watching the locks for 1 m")
	check.True(t, monitors(t, rdb), "MONITOR does not run")
	c.stop()
	c.exits(t, exitInterrupted)
	check.True(t, strings.Contains(c.out.String(), "lock:a"), "it prints %s", c.out)
	eventually(t, func() bool { return !monitors(t, rdb) })
}
