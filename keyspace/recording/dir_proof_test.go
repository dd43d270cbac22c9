package recording

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

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
	s := &busyServer{Rand: rand.New(rand.NewPCG(1, 2)), at: begin, due: make(map[string]time.Time)}
	for range locks {
		s.locks = append(s.locks, s.lock(begin.Add(-time.Duration(s.IntN(3600))*time.Second)))
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
	l.Holders = []keyspace.Holder{{ID: fmt.Sprintf("%016x%016x", s.Uint64(), s.Uint64()), Label: label, Count: 1, Since: at, Expires: l.Expires, Addr: "10.0.1.7:50000"}}
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
		renewed := withRenewal(*l, at, at.Add(30*time.Second-time.Duration(s.IntN(3000))*time.Microsecond))
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

// TestADayOfManyLocksIsSmall computes the size of a recording of 24 h: 200 MB for 10,000 locks. With
// LOCKTOP_PROOF=1 it records an hour, also with more acquires, and prints the times to record a frame and
// to open the recording.
func TestADayOfManyLocksIsSmall(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOCKTOP_PROOF") == "" {
		measureDay(t, 2000, 2, 200/5, 60)
		return
	}
	measureDay(t, 10_000, 10, 200, 3600)
	measureDay(t, 10_000, 100, 1000, 3600)
}

// measureDay records a server and fails if 24 h have more than a number of megabytes.
func measureDay(t *testing.T, locks, acquires int, megabytes int64, frames int) {
	t.Helper()
	dir := t.TempDir()
	w, reports := newDirWriter(t, dir, DirOptions{})
	s := newBusyServer(locks)
	var took time.Duration
	for range frames {
		snap := s.next(acquires)
		start := time.Now()
		w.Add(snap)
		took += time.Since(start)
	}
	state := w.segment.state
	err := w.Close()
	check.Require(t, err == nil && reports() == "", "%v, %v", err, reports())
	size := -int64(len(w.segments)) * state // the frames alone
	for _, f := range w.segments {
		size += f.size
	}
	hours := max(1, frames/3600) // a shorter recording has one segment
	segments := int64(24 * max(3, len(w.segments)/hours))
	day := (size*86400/int64(frames) + segments*state) / 1e6
	t.Logf("%d locks, each renewed every 10 s, %d acquires and releases per second: %d MB in 24 h, of these %d segments with a full state of %d kB; %v per frame",
		locks, acquires, day, segments, state/1000, took/time.Duration(frames))
	check.True(t, day <= megabytes, "24 h have %d MB, want at most %d MB", day, megabytes)
	for _, at := range []int{1, frames / 3, frames / 2, frames - 1} {
		openAt(t, dir, begin.Add(time.Duration(at)*time.Second))
	}
}

// openAt opens a recording at a moment, with the events of two minutes, as the player does.
func openAt(t *testing.T, dir string, moment time.Time) {
	t.Helper()
	start := time.Now()
	r := openDir(t, dir)
	snap := atDir(t, r, moment, moment.Add(-2*time.Minute))
	t.Logf("opened at %v in %v: %d locks, %d events", moment.Sub(begin), time.Since(start), len(snap.Locks), len(snap.Events))
	check.True(t, len(snap.Locks) != 0 && r.Damage() == nil, "%v", r.Damage())
}
