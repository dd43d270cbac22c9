package proofs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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
	"locktop/lab/internal/labtest"
)

// fleet is a server with locks that clients hold one after the other. Some holders vanish while others wait.
type fleet struct {
	*rand.Rand
	at     time.Time
	locks  []*keyspace.Lock // ordered
	events []keyspace.Event
	waited int
	ends   map[int]time.Time // of the holds whose holder has vanished
}

func newFleet(locks int, at time.Time) *fleet {
	f := &fleet{Rand: rand.New(rand.NewPCG(3, 4)), at: at, ends: make(map[int]time.Time)}
	for i := range locks {
		f.locks = append(f.locks, &keyspace.Lock{Key: fmt.Sprintf("lock:order:%06d", i), Format: "redisson", Confidence: keyspace.Certain, Kind: keyspace.Mutex, Node: "10.0.0.5:6379"})
		f.acquire(i)
	}
	f.events = nil
	return f
}

// acquire lets another client hold a lock, after the one that releases it.
func (f *fleet) acquire(i int) {
	l := *f.locks[i]
	l.Expires, l.Observed, l.Waiters = f.at.Add(30*time.Second), keyspace.Observed{}, nil
	l.Holders = []keyspace.Holder{{ID: fmt.Sprintf("%016x%016x", f.Uint64(), f.Uint64()), Label: fmt.Sprintf("worker-%d", f.IntN(1000)), Depth: 1, Since: f.at, Expires: l.Expires, Addr: "10.0.1.7:50000"}}
	f.locks[i] = &l
	f.events = append(f.events, keyspace.Event{At: f.at, Kind: keyspace.Acquired, Lock: l, Holder: l.Holders[0]})
}

// end ends the hold of a lock.
func (f *fleet) end(i int, kind keyspace.EventKind) {
	was := f.locks[i]
	l := *was
	l.Holders, l.Expires, l.Observed = nil, time.Time{}, keyspace.Observed{}
	f.locks[i] = &l
	f.events = append(f.events, keyspace.Event{At: f.at, Kind: kind, Lock: *was, Holder: was.Holders[0], Held: f.at.Sub(was.Holders[0].Since)})
}

// change changes a copy of a lock.
func (f *fleet) change(i int, by func(*keyspace.Lock)) {
	l := *f.locks[i]
	l.Holders = append([]keyspace.Holder(nil), l.Holders...)
	by(&l)
	f.locks[i] = &l
}

// next returns the frame of a second later: locks are handed from one client to the next, some
// of them with a waiter before, and all are renewed every 10 s.
func (f *fleet) next(handOvers int, vanishes bool) keyspace.Snapshot {
	f.at = f.at.Add(time.Second + time.Duration(f.IntN(2000)-1000)*time.Microsecond)
	f.locks, f.events = append([]*keyspace.Lock(nil), f.locks...), nil
	for i := range f.locks {
		switch ends, dead := f.ends[i]; {
		case dead && !f.at.Before(ends):
			delete(f.ends, i)
			f.end(i, keyspace.Expired)
			f.acquire(i)
		case !dead && f.locks[i].Expires.Sub(f.at) < 20*time.Second:
			at := f.at.Add(-time.Duration(f.IntN(1e6)) * time.Microsecond)
			f.change(i, func(l *keyspace.Lock) {
				l.Expires, l.Renewed = at.Add(30*time.Second), at
				l.Holders[0].Expires = l.Expires
				l.Renewals++
			})
		}
	}
	for n := range handOvers {
		i := f.IntN(len(f.locks))
		if n == 0 {
			i, f.waited = f.waited, i // a client waits for a second
		}
		if _, dead := f.ends[i]; !dead {
			f.end(i, keyspace.Released)
			f.acquire(i)
		}
	}
	if _, dead := f.ends[f.waited]; !dead {
		f.change(f.waited, func(l *keyspace.Lock) { l.Waiters = []keyspace.Waiter{{ID: "waiter", Since: f.at}} })
	}
	if i := f.IntN(len(f.locks)); vanishes && f.ends[i].IsZero() {
		f.change(i, func(l *keyspace.Lock) {
			l.Holders[0].DisconnectedAt = f.at
			for n := range 1 + f.IntN(9) {
				l.Waiters = append(l.Waiters, keyspace.Waiter{ID: fmt.Sprint("blocked-", n), Since: f.at})
			}
		})
		f.ends[i] = f.locks[i].Expires
	}
	return keyspace.Snapshot{At: f.at, Complete: true, Locks: f.locks, Events: f.events}
}

// The stories are the same with the indexes of the segments, and without them. A segment with an index is not read.
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
	whole := check.Must(os.ReadFile(segments[3]))(t)
	check.NoError(t, os.WriteFile(segments[3], whole[:100], 0o600))
	one := func(id keyspace.ID) bool { return id.Key == "lock:order:000009" } // it has deadlocks
	told := func(indexed bool) (all []string) {
		for _, from := range []time.Time{begin, begin.Add(10 * time.Minute)} {
			all = append(all, allStories(t, dir, from, indexed, nil), allStories(t, dir, from, indexed, one))
		}
		return all
	}
	fast := told(true)
	check.NoError(t, os.WriteFile(segments[3], whole, 0o600))
	for i, slow := range told(false) {
		check.True(t, fast[i] == slow && strings.Count(slow, "headline") >= []int{80, 5}[i%2], "with indexes:\n%s\nwithout:\n%s", fast[i], slow)
	}
}

// A lock is known with the indexes, too, if it did not change in the time that is explained, or was never held.
func TestAnIndexHasTheLocksThatNobodyHeld(t *testing.T) {
	dir, begin := t.TempDir(), time.Date(2026, 11, 22, 0, 0, 0, 0, time.Local)
	w := check.Must(recording.NewDirWriter(dir, recording.DirOptions{Index: func() recording.Indexer { return incident.NewIndexer() }}))(t)
	held := &keyspace.Lock{Key: "lock:held", Format: "redis-py", Kind: keyspace.Mutex, Node: "10.0.0.5:6379", Holders: []keyspace.Holder{{ID: "secret", Label: "worker-7", Depth: 1, Since: begin}}}
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
			out := labtest.Printed(t, append([]string{"explain", key, dir}, at...)...)
			check.True(t, strings.HasPrefix(out, "No incident from ") && strings.Contains(out, key+": 0 holds ended"),
				"explain %s %q says %s", key, at, out)
		}
	}
}

// allStories returns all incidents of a recording from a time on as JSON, or those of the locks to keep.
func allStories(t *testing.T, dir string, from time.Time, indexed bool, keep func(keyspace.ID) bool) string {
	t.Helper()
	r := check.Must(recording.Open(dir))(t)
	defer r.Close()
	b := incident.NewBuilder(keep)
	load := recording.Load(b.Load)
	if !indexed {
		load = nil
	}
	_, last := r.Span()
	check.NoError(t, errors.Join(r.Walk(from, last, b, load), r.Damage()))
	var out strings.Builder
	check.NoError(t, render.JSON(&out, render.Stories{Stories: b.Stories()}.Document()))
	return out.String()
}

// Explain without a key reads 24 h of 10,000 locks, each renewed every 10 s,
// with 10 releases and 10 acquires per second, and an incident every 10 minutes.
func TestADayOfManyLocksIsExplained(t *testing.T) {
	testtier.Proof(t, "it records 24 h of 10,000 locks, which takes four minutes")
	dir := os.Getenv("LOCKTOP_PROOF_DIR")
	if dir == "" {
		dir = t.TempDir()
	}
	if _, err := recording.Open(dir); err != nil {
		w, err := recording.NewDirWriter(dir, recording.DirOptions{Keep: 48 * time.Hour, Index: func() recording.Indexer { return incident.NewIndexer() }})
		check.NoError(t, err)
		f := newFleet(10_000, aDay)
		for second := range 24 * 3600 {
			w.Add(f.next(10, second%600 == 0))
		}
		check.NoError(t, w.Close())
	}
	sizes := make(map[string]int64)
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range files {
		info, _ := os.Stat(name)
		sizes[filepath.Ext(name)] += info.Size() / 1e3
	}
	for range 3 {
		start := time.Now()
		out := labtest.Printed(t, "explain", dir, "--for", "24h")
		t.Logf("explain takes %v; kB by kind of file: %v\n%.1500s", time.Since(start).Round(time.Millisecond), sizes, out)
	}
	start := time.Now()
	stories := allStories(t, dir, time.Time{}, false, nil)
	t.Logf("without indexes explain takes %v; %d incidents", time.Since(start).Round(time.Millisecond), strings.Count(stories, `"headline"`))
}
