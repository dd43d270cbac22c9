package inspect

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// replyTimeout is how long the clients of bubbles wait for a reply.
const replyTimeout = 2 * time.Second

// bubble runs a test with the clock of a synctest bubble, a server and the network to it.
func bubble(t *testing.T, test func(t *testing.T, rdb *redis.Client, network *netfault.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		t.Cleanup(e.Close)
		network := netfault.New(e.Dial)
		rdb := connect(t, redis.Options{
			Addr: e.Addr(), Dialer: network.Dial, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
			DialTimeout: replyTimeout, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
		})
		t.Cleanup(network.Heal)
		test(t, rdb, network)
	})
}

// If a server stalls between the read of the locks and the end of the cycle, the clock
// of the snapshot stays at the first deadline that has not been read.
func TestASnapshotIsNotNewerThanTheReadOfItsLocks(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		do(t, rdb, "SET", "a", "token:1", "PX", 900)
		do(t, rdb, "SET", "b", "token:2", "PX", 60_000)
		f := watch(t, rdb, justTokens())
		first := until(t, f, complete)
		stall := func() { time.Sleep(3 * time.Second) }
		before(rdb, "scan").Store(&stall)
		s := next(t, f)
		check.Require(t, slices.Equal(keys(s), []string{"a", "b"}), "the snapshot has %q; it should begin before the end of a", keys(s))
		left, _ := s.Locks[0].TTL(s.At)
		check.True(t, left >= -10*time.Millisecond && !s.At.Before(first.At),
			"the clock of the snapshot is %v after the deadline of a lock that was read before it", -left)
		s = next(t, f)
		check.DeepEqual(t, keys(s), []string{"b"}, "afterwards it has")
		check.AtLeast(t, s.At.Sub(first.At), 3*time.Second, "from the first to this snapshot")
	})
}

// Only a deadline in the value can pass while the lock exists, and it is judged at the
// time of the read.
func TestALockSaysWhenItWasReadAndWhereItsDeadlineIs(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		do(t, rdb, "SET", "a", time.Now().Add(-time.Minute).Format(time.RFC3339Nano))
		do(t, rdb, "SET", "b", "token:1", "PX", 60_000)
		time.Sleep(time.Second)
		s := scan(t, rdb, ScanOptions{Formats: []keyspace.Format{stamps(), tokens()}})
		check.True(t, len(s.Locks) == 2 && s.Locks[0].Stamped && !s.Locks[1].Stamped && s.Locks[0].ReadAt.Equal(time.Now()), "%+v", s.Locks)
		found := keyspace.Findings(s)
		check.True(t, len(found) == 1 && found[0].ID == "stamp-passed" && found[0].Lock.Key == "a", "%+v", found)
	})
}

// awaitAnswer takes snapshots of a source until one succeeds, or fails if failed is true. It
// returns the snapshot and how long that took.
func awaitAnswer(t *testing.T, source Source, failed bool) (keyspace.Snapshot, time.Duration) {
	t.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		s, err := source.Snapshot(t.Context())
		took := time.Since(began)
		if (err != nil) == failed {
			return s, took
		}
		check.Require(t, took <= time.Minute, "after a minute: %v", err)
	}
}

// A server that hangs is noticed within one timeout after the next read, which is due
// after a second at most. When it answers again, its locks are read within a second. The
// notices count from its last answer.
func TestAStallIsNoticedWithinOneTimeout(t *testing.T) {
	for _, stall := range []time.Duration{4 * time.Second, 10 * time.Second, 61 * time.Second} {
		bubble(t, func(t *testing.T, rdb *redis.Client, network *netfault.Network) {
			do(t, rdb, "SET", "a", "token:1")
			live := inBackground(t, rdb, justTokens())
			for s, _ := awaitAnswer(t, live, false); !s.Complete; s, _ = awaitAnswer(t, live, false) {
				time.Sleep(10 * time.Millisecond)
			}
			frozen := time.Now()
			network.Freeze()
			_, took := awaitAnswer(t, live, true)
			check.AtMost(t, took, time.Second+replyTimeout+100*time.Millisecond, "noticed after")
			time.Sleep(stall - time.Since(frozen))
			network.Heal()
			healed := time.Now()
			s, took := awaitAnswer(t, live, false)
			check.True(t, took <= 1100*time.Millisecond, "a stall of %v: back after %v", stall, took)
			check.Require(t, len(s.Notices) == 2 && s.Notices[0].Kind == keyspace.ServerLost && s.Notices[1].Kind == keyspace.ServerBack,
				"notices %+v", s.Notices)
			at := s.Nodes[0].AnsweredAt
			check.True(t, !at.Before(healed), "the last answer was %v before the end of the stall", healed.Sub(at))
			lost, back := s.Notices[0], s.Notices[1]
			early := frozen.Sub(lost.Since)
			check.True(t, early >= 0 && early <= time.Second && back.Since.Equal(lost.Since),
				"lost since %v before the stall, back since %v before it", early, frozen.Sub(back.Since))
			check.Between(t, back.At.Sub(back.Since), stall, stall+2*time.Second, "a stall of %v is reported as", stall)
		})
	}
}

func TestAServerThatHangsKeepsTheOthersWaitingOnce(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, network *netfault.Network) {
		hangs := inBackground(t, rdb, justTokens())
		_, other := pipedServer(t, "10.0.0.2:6379")
		do(t, other, "SET", "b", "token:2")
		works := inBackground(t, other, justTokens())
		both := multiOf(MultiOptions{}, sourcesOf(hangs, works))
		for s, _ := awaitAnswer(t, both, false); !s.Complete; s, _ = awaitAnswer(t, both, false) {
			time.Sleep(10 * time.Millisecond)
		}
		network.Freeze()
		began := time.Now()
		for {
			s, took := awaitAnswer(t, both, false)
			check.Require(t, slices.Equal(keys(s), []string{"b"}) && took <= replyTimeout+100*time.Millisecond,
				"%q after %v", keys(s), took)
			if !s.Nodes[0].Up {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		check.AtMost(t, time.Since(began), time.Second+replyTimeout+100*time.Millisecond, "missing after")
		for range 100 {
			s, took := awaitAnswer(t, both, false)
			check.Require(t, !s.Nodes[0].Up && len(s.Problems) == 1 && took <= 0, "%+v after %v", s.Problems, took)
			time.Sleep(50 * time.Millisecond)
		}
	})
}

func TestASlowServerIsNotMissing(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, rdb *redis.Client, network *netfault.Network) {
		for i := range 100 {
			do(t, rdb, "SET", fmt.Sprint("lock:", i), fmt.Sprint("token:", i), "PX", 600_000)
		}
		network.Delay(func() time.Duration { return 150 * time.Millisecond })
		live := inBackground(t, rdb, justTokens())
		source := multiOf(MultiOptions{}, sourcesOf(live, live))
		for range testtier.Size(20, 100, 100) {
			s, err := source.Snapshot(t.Context())
			check.Require(t, err == nil && len(s.Nodes) == 2 && s.Nodes[0].Up && s.Nodes[1].Up, "%v, %+v", err, s.Problems)
			time.Sleep(time.Second)
		}
		network.Thaw()
	})
}

// stamps is a format whose values are deadlines.
func stamps() keyspace.Format {
	parse := func(value string) (time.Time, keyspace.Confidence) {
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return at, keyspace.No
		}
		return at, keyspace.Certain
	}
	return keyspace.Format{
		About: keyspace.About{Name: "stamps"}, Type: "string",
		Probe: func(_, first string) keyspace.Confidence { _, sure := parse(first); return sure },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			at, sure := parse(e.Value)
			return keyspace.Lock{Kind: keyspace.Mutex, Expires: at, Holders: []keyspace.Holder{{ID: "me", Depth: 1}}}, sure
		},
	}
}

func TestDroppedEventsAreCounted(t *testing.T) {
	t.Parallel()
	w := watch(t, connect(t, redis.Options{Addr: "127.0.0.1:1"}), ScanOptions{})
	for range eventsKept + 3 {
		w.unreported.events = append(w.unreported.events, keyspace.Event{Kind: keyspace.Released})
		w.unreported.limit()
	}
	s := snapshotOf(t, multiOf(MultiOptions{}, sourcesOf(fixed{snap: w.takeSnapshot()}, fixed{snap: w.takeSnapshot()})))
	check.True(t, len(s.Events) == eventsKept && s.EventsDropped == 3, "%d events, %d dropped; want %d and 3", len(s.Events), s.EventsDropped, eventsKept)
}

// A connection to a server that accepts it and is silent can be closed at once.
func TestAConnectionAttemptCanBeClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dialed := false
		c := dialInvalidations(&redis.Options{
			Addr: "silent:6379", ReadTimeout: time.Minute, WriteTimeout: time.Minute,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go func() { _, _ = io.Copy(io.Discard, theirs) }()
				dialed = true
				return ours, nil
			},
		}, []string{""}, nil, make(chan struct{}, 1))
		synctest.Wait()
		began := time.Now()
		c.close()
		took := time.Since(began)
		check.True(t, dialed && took <= 0, "dialed %v, and closing took %v", dialed, took)
	})
}

// anyString takes each string for a mutex.
var anyString = keyspace.Format{
	About: keyspace.About{Name: "any"}, Type: "string", ShowsWaiters: true, // no look for requests is due between two scans
	Probe: func(_, _ string) keyspace.Confidence { return keyspace.Certain },
	Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		return keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Value}}}, keyspace.Certain
	},
}

// await lets a watcher work until so returns true.
func await(t *testing.T, w *Watcher, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); {
		_, _, err := w.Next(t.Context())
		check.Require(t, err == nil && time.Now().Before(deadline), "%v, %+v", err, w.status())
	}
}

// After a scan has found the first lock under a prefix, the server reports changes under it
// before the next scan.
func TestAPrefixIsTrackedBeforeTheNextScan(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	w := watch(t, rdb, ScanOptions{Formats: []keyspace.Format{anyString}})
	soon, want := 0, testtier.Size(2, 4, 4)
	for i := 0; i < 12 && soon < want; i++ { // a busy machine may be late
		prefix := fmt.Sprintf("first%d:", i)
		check.NoError(t, rdb.Set(t.Context(), prefix+"a", "token:1", 0).Err())
		w.scan.next = time.Time{} // a scan is due at once, and the one after it as ever
		await(t, w, func() bool { return w.locks.known[prefix+"a"] != nil })
		scan := w.scan.passStart
		await(t, w, func() bool { return w.tracking.conn != nil && slices.Contains(w.tracking.conn.prefixes, prefix) })
		if i > 0 && w.scan.passStart.Equal(scan) { // at first it polls and scans often
			soon++
		}
		t.Logf("%s is tracked %v after it was found", prefix, time.Since(scan))
	}
	check.Equal(t, soon, want, "prefixes that are tracked before another scan")
}

// The connection that reports a new prefix, too, does not make the watcher read all locks again.
func TestANewPrefixReadsNoLockThatIsReported(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	w := watch(t, rdb, ScanOptions{Formats: []keyspace.Format{anyString}})
	tracked := func(key string) {
		check.NoError(t, rdb.Set(t.Context(), key, "token:1", 0).Err())
		w.scan.next = time.Time{} // a scan is due at once
		await(t, w, func() bool { return w.locks.known[key] != nil && w.tracking.upToDate() && w.tracking.conn.covers(key) })
	}
	tracked("a:1")
	read := w.locks.known["a:1"].lastRead
	tracked("b:1")
	check.True(t, w.locks.known["b:1"].lastRead.After(w.tracking.dialedAt), "a lock is not read after its prefix is reported")
	check.True(t, w.locks.known["a:1"].lastRead.Equal(read), "a lock is read again because another has a new prefix")
	check.NoError(t, rdb.Set(t.Context(), "a:1", "token:2", 0).Err())
	await(t, w, func() bool { return w.locks.known["a:1"].lock.Holders[0].ID == "token:2" })
}

func TestADeferredScanIsNotTriedAllTheTime(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, network *netfault.Network) {
		w := watch(t, rdb, ScanOptions{})
		for i := range 3000 {
			rdb.Set(t.Context(), fmt.Sprint("key:", i), "value", 0)
		}
		network.Delay(func() time.Duration { return 10 * time.Millisecond })
		cycle := func() time.Duration {
			check.NoError(t, w.cycle(t.Context(), false))
			return w.idleTime()
		}
		for !w.scan.complete {
			time.Sleep(cycle())
		}
		w.unreported.events = []keyspace.Event{{Kind: keyspace.Acquired}}
		deferred, atOnce := 0, 0
		for began := time.Now(); time.Since(began) < 5*time.Second; {
			before := time.Now()
			idle := cycle()
			if atOnce++; idle > 0 || time.Since(before) > 0 {
				atOnce = 0
			}
			check.Require(t, atOnce <= 100, "the cycles follow each other without a pause, and read nothing")
			if w.keepsEvents(time.Now()) && idle <= shortScanTime {
				deferred++
			}
			time.Sleep(idle)
		}
		check.True(t, deferred != 0, "no scan was deferred")
	})
}
