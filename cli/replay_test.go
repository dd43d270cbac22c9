package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/recording"
)

// minute returns a recording in which the holder of a lock changes every second.
func minute(t *testing.T) *recording.Reader {
	t.Helper()
	var all []keyspace.Snapshot
	var before keyspace.Snapshot
	for i := range 61 {
		at := time.Unix(1_700_000_000+int64(i), 0)
		s := keyspace.Snapshot{At: at, Watch: keyspace.WatchStatus{Mode: keyspace.Push}, Complete: true}
		s.Locks = []*keyspace.Lock{{Key: "a", Holders: []keyspace.Holder{{ID: at.String(), Depth: i + 1}}, Expires: at.Add(time.Minute)}}
		s.Events = keyspace.Diff(before, s)
		before = s
		all = append(all, s)
	}
	return openRecording(t, recorded(t, all...))
}

// recorded writes snapshots to a file.
func recorded(t *testing.T, all ...keyspace.Snapshot) (name string) {
	t.Helper()
	f := check.Must(os.Create(filepath.Join(t.TempDir(), "a.lockrec")))(t)
	w := recording.NewWriter(f, false)
	for _, s := range all {
		check.NoError(t, w.Add(s))
	}
	check.NoError(t, errors.Join(w.Close(), f.Close()))
	return f.Name()
}

func openRecording(t *testing.T, name string) *recording.Reader {
	t.Helper()
	r := check.Must(recording.Open(name))(t)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func TestThePlayerKeepsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(minute(t))
		first, last := p.reader.Span()
		wantAt := func(doing string, second int) {
			t.Helper()
			snap := check.Must(p.Snapshot(t.Context()))(t)
			got := snap.Locks[0].Holders[0].Depth - 1
			check.True(t, got == second, "%s: second %d, want %d", doing, got, second)
		}
		wantAt("at first", 0)
		time.Sleep(3 * time.Second)
		wantAt("after three seconds", 3)
		p.SetSpeed(4)
		time.Sleep(2 * time.Second)
		wantAt("four times as fast", 11)
		p.Pause(true)
		time.Sleep(time.Hour)
		wantAt("paused", 11)
		p.Seek(first.Add(40 * time.Second))
		wantAt("after a jump", 40)
		p.Pause(false)
		p.SetSpeed(0.5)
		time.Sleep(4 * time.Second)
		wantAt("half as fast", 42)
		p.Seek(first.Add(-time.Hour))
		wantAt("before the beginning", 0)
		time.Sleep(time.Hour)
		wantAt("after the end", 60)
		now := p.Playing()
		check.True(t, now.At.Equal(last) && now.Speed == 0.5 && !now.Paused, "it is at %+v", now)
	})
}

func TestThePlayerLosesNoEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayer(minute(t))
		n := 0
		for range 30 {
			snap := check.Must(p.Snapshot(t.Context()))(t)
			n += len(snap.Events)
			time.Sleep(2300 * time.Millisecond)
		}
		check.True(t, n == 1+2*60, "%d events", n) // one lock appears, then each change is one release and one acquire
	})
}

func TestWhatIsRecordedCanBeRead(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "a.lockrec")
	f, err := os.Create(name)
	check.NoError(t, err)
	live := minute(t)
	first, _ := live.Span()
	ctx, stop := context.WithCancel(t.Context())
	n := 0
	source := sourceFunc(func(context.Context) (keyspace.Snapshot, error) {
		n++
		if n == 50 {
			stop()
		}
		return live.At(first.Add(time.Duration(n)*time.Second), first)
	})
	_, recorded, err := output{}.recordUntil(ctx, source, recording.NewWriter(f, true), time.Millisecond)
	check.Require(t, err == nil && f.Close() == nil, "%v", err)
	r := openRecording(t, name)
	check.Require(t, r.Damage() == nil, "%v", r.Damage())
	from, to := r.Span()
	check.True(t, to.Sub(from) == 48*time.Second && recorded == 49, "%d snapshots from %v to %v", recorded, from, to)
}

// aDay records a day into a directory, one snapshot per step: the count of the lock is the
// number of seconds since the begin.
func aDay(t *testing.T, step time.Duration) (dir string, begin time.Time) {
	t.Helper()
	dir, begin = t.TempDir(), time.Date(2026, 11, 21, 4, 0, 0, 0, time.Local)
	recordSpan(t, dir, begin, step, 24*time.Hour)
	return dir, begin
}

// recordSpan is aDay for other times, with further events.
func recordSpan(t *testing.T, dir string, begin time.Time, step, span time.Duration, events ...keyspace.Event) {
	t.Helper()
	w := check.Must(recording.NewDirWriter(dir, recording.DirOptions{Report: func(text string) { t.Error(text) }}))(t)
	for at := time.Duration(0); at <= span; at += step {
		s := keyspace.Snapshot{At: begin.Add(at), Complete: true, Watch: keyspace.WatchStatus{Mode: keyspace.Push}}
		s.Locks = []*keyspace.Lock{{Key: "lock:a", Kind: keyspace.Mutex, Confidence: keyspace.Certain, Expires: s.At.Add(time.Hour)}}
		s.Locks[0].Holders = []keyspace.Holder{{ID: "s3cretS3cret", Depth: 1 + int(at/time.Second), Since: begin, Expires: s.At.Add(time.Hour)}}
		s.Events = []keyspace.Event{{At: s.At, Kind: keyspace.Acquired, Lock: *s.Locks[0], Holder: s.Locks[0].Holders[0]}}
		for len(events) > 0 && !events[0].At.After(s.At) {
			s.Events, events = append(s.Events, events[0]), events[1:]
		}
		w.Add(s)
	}
	check.NoError(t, w.Close())
}

func TestAReplayBeginsAtTheGivenTime(t *testing.T) {
	t.Parallel()
	dir, begin := aDay(t, time.Minute)
	r := openRecording(t, dir)
	for at, want := range map[string]time.Duration{
		"":                    24*time.Hour - replayFromEnd,
		"03:12":               23*time.Hour + 12*time.Minute,
		"03:12:10":            23*time.Hour + 12*time.Minute + 10*time.Second,
		"2026-11-21 05:00":    time.Hour,
		"-15m":                24*time.Hour - 15*time.Minute,
		"2026-11-22T04:00:00": 24 * time.Hour,
		"2026-11-21 04:00:07": 7 * time.Second,
		"2026-11-21 23:59:50": 20*time.Hour - 10*time.Second,
		"04:00":               24 * time.Hour,
		"04:01":               time.Minute,
		"-24h":                0,
	} {
		got, err := beginOf(r, at)
		if err != nil || got.Sub(begin) != want {
			t.Errorf("--at %q begins at %v, %v, want %v", at, got.Sub(begin), err, want)
			continue
		}
		p := newPlayer(r)
		p.Seek(got)
		snap, err := p.Snapshot(t.Context())
		check.True(t, err == nil && len(snap.Locks) == 1 && snap.Locks[0].Holders[0].Depth == 1+int(want.Truncate(time.Minute)/time.Second),
			"--at %q shows %+v, %v", at, snap.Locks, err)
	}
	live := minute(t)
	first, _ := live.Span()
	got, err := beginOf(live, "")
	check.True(t, err == nil && got.Equal(first), "a file begins at %v, %v", got, err)
	got, err = beginOf(live, "-20s")
	check.True(t, err == nil && got.Equal(first.Add(40*time.Second)), "a file begins at %v, %v", got, err)
}

func TestATimeOutsideOfTheRecordingIsOneLine(t *testing.T) {
	t.Parallel()
	dir, begin := aDay(t, 12*time.Minute)
	segments, err := filepath.Glob(filepath.Join(dir, "*.lockrec"))
	check.Require(t, err == nil && len(segments) != 0, "%v %v", segments, err)
	span := fmt.Sprintf("which is from %s to %s\n", begin.Format("2006-01-02 15:04:05 MST"), begin.Add(24*time.Hour).Format("2006-01-02 15:04:05 MST"))
	empty := t.TempDir()
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{dir, "--at", "2026-11-20 03:12"}, exitUsage, "locktop: --at: 2026-11-20 03:12:00 " + begin.Format("MST") + " is not in the recording, " + span},
		{[]string{dir, "--at", "-25h"}, exitUsage, span},
		{[]string{dir, "--at", "noon"}, exitUsage, "locktop: --at: a time is like 03:12"},
		{[]string{segments[0], "--at", "09:00"}, exitUsage, "is not in the recording"},
		{[]string{dir, "--at", "03:12"}, exitUsage, "the screen needs a terminal"},
		{[]string{empty}, exitFailure, "not a recording"},
	} {
		locktop(t, append([]string{"replay"}, tt.args...)...).fails(t, tt.code, tt.want)
	}
}

func TestADirectoryIsShownOnTheScreen(t *testing.T) {
	t.Parallel()
	dir, begin := aDay(t, 12*time.Minute)
	var w *recording.DirWriter
	eventually(t, func() bool { // a process that begins at this moment may have the files of aDay
		var err error
		w, err = recording.NewDirWriter(dir, recording.DirOptions{})
		return err == nil
	})
	w.Add(keyspace.Snapshot{At: begin.Add(26 * time.Hour), Complete: true})
	check.NoError(t, w.Close())
	term := openTerminal(t, 100, 24, "replay", dir, "--at", "2026-11-22 03:12")
	term.want("REPLAY", "lock:a", "held 23 h 12, since 04:00:00")
	term.enter(":at 2026-11-21 06:00\r").want("held 2 h 00, since 04:00:00")
	term.enter(":at 2026-11-22 05:00\r").want("nothing was recorded from 04:00:00 to 06:00:00", "lock:a")
	term.quit()
}

// The limits of a replay count instead of those of the recorder. A flag that a recording cannot obey is refused.
func TestAReplayObeysItsFlagsOrRefusesThem(t *testing.T) {
	t.Parallel()
	var all []keyspace.Snapshot
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i := range 3 {
		l := keyspace.Lock{Key: "lock:a", Format: "set-nx", Kind: keyspace.Mutex, Expires: at.Add(time.Hour), Holders: []keyspace.Holder{{ID: token, Depth: 1, Since: at.Add(-time.Minute)}}}
		all = append(all, keyspace.Snapshot{At: at.Add(time.Duration(i) * time.Second), Locks: []*keyspace.Lock{&l}, Complete: true})
	}
	file := recorded(t, all...)
	openTerminal(t, 120, 30, "replay", file, "--overdue", "20s").want("the configured limit is 20 s").quit()
	openTerminal(t, 120, 30, "replay", file).want("no findings").quit()
	for _, flag := range []string{"--all", "--match=x*", "--lock=x*", "--budget=2%"} {
		locktop(t, "replay", file, flag).fails(t, exitUsage)
	}
}
