package proofs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/incident"
	"locktop/keyspace/recording"
)

// aDay is the begin of the recordings.
var aDay = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// busyServer is a server with many locks. Each lock is renewed every 8 to 12 s to a
// deadline in 30 s. Some locks per second are released, and as many acquired.
type busyServer struct {
	*rand.Rand
	at    time.Time
	locks []*keyspace.Lock // ordered
	due   map[string]time.Time
	n     int // number of locks ever
}

func newBusyServer(locks int) *busyServer {
	s := &busyServer{Rand: rand.New(rand.NewPCG(1, 2)), at: aDay, due: make(map[string]time.Time)}
	for range locks {
		s.locks = append(s.locks, s.lock(aDay.Add(-time.Duration(s.IntN(3600))*time.Second)))
	}
	slices.SortFunc(s.locks, func(a, b *keyspace.Lock) int { return a.ID().Compare(b.ID()) })
	return s
}

// lock returns a new lock, acquired at a moment.
func (s *busyServer) lock(at time.Time) *keyspace.Lock {
	s.n++
	l := &keyspace.Lock{
		Key: fmt.Sprintf("lock:order:%d", s.IntN(1e6)*1000+s.n%1000), Format: "redis-py", Confidence: keyspace.Likely, Kind: keyspace.Mutex,
		Expires: at.Add(30 * time.Second), Node: "10.0.0.5:6379", Evidence: []string{"a token of 32 hex digits", "a lock-like name", "a TTL"},
	}
	l.MedianHold = 40 * time.Second
	label := fmt.Sprintf("worker-%d:%d", s.IntN(100), 1000+s.IntN(100))
	l.Holders = []keyspace.Holder{{ID: fmt.Sprintf("%016x%016x", s.Uint64(), s.Uint64()), Label: label, Depth: 1, Since: at, Expires: l.Expires, Addr: "10.0.1.7:50000"}}
	s.due[l.Key] = at.Add(8*time.Second + time.Duration(s.IntN(4000))*time.Millisecond)
	return l
}

// next returns the snapshot of a second later.
func (s *busyServer) next(acquires int) keyspace.Snapshot {
	begin := s.at
	s.at = s.at.Add(time.Second + time.Duration(s.IntN(2000)-1000)*time.Microsecond)
	moment := func() time.Time {
		return begin.Add(time.Duration(s.Int64N(int64(s.at.Sub(begin))))).Truncate(time.Microsecond)
	}
	snap := keyspace.Snapshot{At: s.at, Complete: true}
	s.locks = slices.Clone(s.locks)
	for i := range s.locks {
		l := s.locks[i]
		if s.due[l.Key].After(s.at) {
			continue
		}
		at := moment()
		renewed := *l
		renewed.Renewed, renewed.Expires = at, at.Add(30*time.Second-time.Duration(s.IntN(3000))*time.Microsecond)
		renewed.Holders = slices.Clone(l.Holders)
		renewed.Holders[0].Expires = renewed.Expires
		renewed.Renewals++
		s.locks[i] = &renewed
		s.due[l.Key] = at.Add(8*time.Second + time.Duration(s.IntN(4000))*time.Millisecond)
	}
	for range acquires {
		i, at := s.IntN(len(s.locks)), moment()
		gone := s.locks[i]
		delete(s.due, gone.Key)
		snap.Events = append(snap.Events, keyspace.Event{At: at, Kind: keyspace.Released, Lock: *gone, Holder: gone.Holders[0], Held: at.Sub(gone.Holders[0].Since)})
		s.locks = slices.Delete(s.locks, i, i+1)
		at = moment()
		l := s.lock(at)
		if j, exists := keyspace.FindLock(s.locks, l.ID()); !exists {
			s.locks = slices.Insert(s.locks, j, l)
			snap.Events = append(snap.Events, keyspace.Event{At: at, Kind: keyspace.Acquired, Lock: *l, Holder: l.Holders[0]})
		}
	}
	snap.Locks = s.locks
	snap.Server = keyspace.Server{Mode: "standalone", Product: "redis", Version: "7.0.15", Role: "master", Uptime: s.at.Sub(begin).Truncate(time.Second)}
	snap.Cost = keyspace.Cost{Scanned: s.at.Unix() * 40_000, Commands: s.at.Unix() * 1000, ServerTime: time.Duration(s.at.Unix())}
	snap.Nodes = []keyspace.Node{{Server: snap.Server, Up: true, Ping: time.Duration(s.IntN(1e6)), Keys: int64(40_000 + s.IntN(100)), Locks: len(s.locks)}}
	return snap
}

// A recording of 24 h has at most 200 MB for 10,000 locks, and 1,000 MB with ten times the acquires. The
// test records an hour, and prints the times to record a frame and to open the recording.
func TestADayOfManyLocksIsSmall(t *testing.T) {
	testtier.Proof(t, "it records two hours of 10,000 locks")
	measureDay(t, 10, 200)
	measureDay(t, 100, 1000)
}

// measureDay records a server and fails if 24 h have more than a number of megabytes.
func measureDay(t *testing.T, acquires int, megabytes int64) {
	t.Helper()
	const locks, frames = 10_000, 3600
	dir := t.TempDir()
	w := check.Must(recording.NewDirWriter(dir, recording.DirOptions{
		Index: func() recording.Indexer { return incident.NewIndexer() }, Report: func(text string) { t.Error(text) },
	}))(t)
	s := newBusyServer(locks)
	var took time.Duration
	for range frames {
		snap := s.next(acquires)
		start := time.Now()
		w.Add(snap)
		took += time.Since(start)
	}
	check.NoError(t, w.Close())
	sizeOf := func(glob string) (size, n int64) {
		for _, name := range check.Must(filepath.Glob(filepath.Join(dir, glob)))(t) {
			size, n = size+check.Must(os.Stat(name))(t).Size(), n+1
		}
		return size, n
	}
	size, segments := sizeOf("*.lockrec")
	index, indexed := sizeOf("*.index") // the first and the last segment have none
	day := 24 * size / 1e6
	t.Logf("%d locks, each renewed every 10 s, %d acquires and releases per second: %d MB in 24 h and %d MB of indexes, %d segments in an hour; %v per frame",
		locks, acquires, day, 24*index*segments/max(1, indexed)/1e6, segments, took/frames)
	check.AtMost(t, day, megabytes, "MB in 24 h")
	for _, at := range []int{1, frames / 3, frames / 2, frames - 1} {
		moment, start := aDay.Add(time.Duration(at)*time.Second), time.Now()
		r := check.Must(recording.Open(dir))(t)
		snap := check.Must(r.At(moment, moment.Add(-2*time.Minute)))(t) // with the events of two minutes, as the player does
		t.Logf("opened at %v in %v: %d locks, %d events", moment.Sub(aDay), time.Since(start), len(snap.Locks), len(snap.Events))
		check.True(t, len(snap.Locks) != 0 && r.Damage() == nil, "%v", r.Damage())
		check.NoError(t, r.Close())
	}
}
