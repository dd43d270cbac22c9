package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/recording"
)

// minute returns a recording in which the holder of a lock changes every
// second.
func minute(t *testing.T) *recording.Reader {
	t.Helper()
	var all []keyspace.Snapshot
	var before keyspace.Snapshot
	for i := range 61 {
		at := time.Unix(1_700_000_000+int64(i), 0)
		s := keyspace.Snapshot{At: at, Watch: keyspace.WatchStatus{Mode: keyspace.Push}, Complete: true}
		s.Locks = []*keyspace.Lock{{Key: "a", Holders: []keyspace.Holder{{ID: at.String(), Count: i + 1}}, Expires: at.Add(time.Minute)}}
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
			got := snap.Locks[0].Holders[0].Count - 1
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
	rec := &recorder{writer: recording.NewWriter(f, true), every: time.Millisecond}
	rec.source = snapshots(func(context.Context) (keyspace.Snapshot, error) {
		n++
		if n == 50 {
			stop()
		}
		return live.At(first.Add(time.Duration(n)*time.Second), first)
	})
	err = rec.run(ctx)
	check.Require(t, err == nil && f.Close() == nil, "%v", err)
	r := openRecording(t, name)
	check.Require(t, r.Damage() == nil, "%v", r.Damage())
	from, to := r.Span()
	check.True(t, to.Sub(from) == 48*time.Second && rec.snapshots == 49, "%d snapshots from %v to %v", rec.snapshots, from, to)
}

// snapshots makes a source of a function.
type snapshots func(context.Context) (keyspace.Snapshot, error)

func (f snapshots) Snapshot(ctx context.Context) (keyspace.Snapshot, error) { return f(ctx) }
