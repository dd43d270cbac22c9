package cli

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/keyspace/recording"
)

// The stories are the same with the indexes of the segments, and without them. A segment with an
// index is not read.
func TestAnIndexTellsTheSameStories(t *testing.T) {
	testtier.Long(t, "it makes a recording of 5,000 s")
	t.Parallel()
	dir, begin := t.TempDir(), time.Date(2026, 11, 22, 0, 0, 0, 0, time.Local)
	w := check.Must(recording.NewDirWriter(dir, recording.DirOptions{Index: func() recording.Indexer { return incident.NewIndexer() }}))(t)
	f := newFleet(12, begin)
	for second := range 5000 {
		s := f.next(1+second/100%3, second%300 == 7)
		i := second / 100 % 12
		_, dead := f.ends[i]
		switch second % 100 {
		case 30, 31: // a cycle of two locks, for 40 s
			f.change((i+second)%12, func(l *keyspace.Lock) {
				l.Holders[0].ID, l.Holders[0].Label = "0f0e0d0c-0b0a-0908-0706-05040302010"+string(rune('0'+second%2))+":1", ""
				l.Waiters = append(l.Waiters, keyspace.Waiter{ID: "0f0e0d0c-0b0a-0908-0706-05040302010" + string(rune('1'-second%2)) + ":1", Since: f.at})
			})
		case 80:
			if !dead {
				f.end(i, []keyspace.EventKind{keyspace.Deleted, keyspace.Evicted, keyspace.Lost}[second/100%3])
				f.acquire(i)
			}
		}
		s.Locks, s.Events = f.locks, f.events
		s.Server.Policy = "allkeys-lru"
		if second%1000 == 83 {
			s.Notices = []keyspace.Notice{{At: f.at, Kind: keyspace.ServerFailover, Node: "10.0.0.5:6379", Text: "failover"}}
		}
		if second%2000 == 500 { // a gap, with a lock that is gone after it
			f.at = f.at.Add(time.Minute)
			f.locks[11].Waiters = nil
			s.Locks = f.locks[:11]
		}
		w.Add(s)
	}
	check.NoError(t, w.Close())
	indexes, _ := filepath.Glob(filepath.Join(dir, "*.index"))
	segments, _ := filepath.Glob(filepath.Join(dir, "*.lockrec"))
	check.Require(t, len(indexes) >= 3 && len(segments) == len(indexes)+2,
		"%d indexes of %d segments", len(indexes), len(segments)) // the first has none, and the open one
	whole := readText(t, segments[3])
	write(t, segments[3], string(whole[:100]))
	one := func(id keyspace.ID) bool { return id.Key == "lock:order:000009" } // it has deadlocks
	told := func(indexed bool) (all []string) {
		for _, from := range []time.Time{begin, begin.Add(10 * time.Minute)} {
			all = append(all, allStories(t, dir, from, indexed, nil), allStories(t, dir, from, indexed, one))
		}
		return all
	}
	fast := told(true)
	write(t, segments[3], whole)
	for i, slow := range told(false) {
		check.True(t, fast[i] == slow && strings.Count(slow, "headline") >= []int{80, 5}[i%2], "with indexes:\n%s\nwithout:\n%s", fast[i], slow)
	}
}

// allStories returns all incidents of a recording from a time on as JSON, or those of the locks to keep.
func allStories(t *testing.T, dir string, from time.Time, indexed bool, keep func(keyspace.ID) bool) string {
	t.Helper()
	r := check.Must(recording.Open(dir))(t)
	defer r.Close()
	b := incident.NewBuilder(keep)
	load := b.Load
	if !indexed {
		load = nil
	}
	_, last := r.Span()
	check.NoError(t, errors.Join(r.Walk(from, last, b, load), r.Damage()))
	var out strings.Builder
	check.NoError(t, (render.Stories{Stories: b.Stories()}).JSON(&out))
	return out.String()
}

// A lock is known with the indexes, too, if it did not change in the time that is explained, or
// was never held.
func TestAnIndexHasTheLocksThatNobodyHeld(t *testing.T) {
	dir, begin := t.TempDir(), time.Date(2026, 11, 22, 0, 0, 0, 0, time.Local)
	w := check.Must(recording.NewDirWriter(dir, recording.DirOptions{Index: func() recording.Indexer { return incident.NewIndexer() }}))(t)
	held := &keyspace.Lock{Key: "lock:held", Format: "redis-py", Kind: keyspace.Mutex, Node: "10.0.0.5:6379", Holders: []keyspace.Holder{{ID: "secret", Label: "worker-7", Count: 1, Since: begin}}}
	free := func(key string) *keyspace.Lock {
		return &keyspace.Lock{Key: key, Format: "locktop-semaphore", Kind: keyspace.Semaphore, Limit: 2, Node: "10.0.0.5:6379"}
	}
	for minute := range 100 {
		s := keyspace.Snapshot{At: begin.Add(time.Duration(minute) * time.Minute), Complete: true}
		if 30 <= minute && minute < 35 || 55 <= minute && minute < 65 { // the second is in two segments
			s.Locks = append(s.Locks, free("lock:brief"))
		}
		s.Locks = append(s.Locks, free("lock:free"), held)
		w.Add(s)
	}
	check.NoError(t, w.Close())
	indexes, _ := filepath.Glob(filepath.Join(dir, "*.index"))
	check.Require(t, len(indexes) >= 3, "there are only %d indexes", len(indexes))
	for _, key := range []string{"lock:held", "lock:free", "lock:brief"} {
		for _, at := range [][]string{{"--at", "00:32", "--for", "1h"}, {"--at", "00:50", "--for", "50m"}, {"--at", "00:55", "--for", "2h"}} {
			out := explained(t, append([]string{key, dir}, at...)...)
			check.True(t, strings.HasPrefix(out, "No incident from ") && strings.Contains(out, key+": 0 holds ended"),
				"explain %s %q says %s", key, at, out)
		}
	}
}
