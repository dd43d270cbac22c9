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

func TestDroppedEventsAreCounted(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	w := NewWatcher(NewScanner(rdb, ScanOptions{}))
	defer w.Close()
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

// After a scan has found the first lock under a prefix, the server reports changes under it
// before the next scan.
func TestAPrefixIsTrackedBeforeTheNextScan(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	w := NewWatcher(NewScanner(rdb, ScanOptions{Formats: []keyspace.Format{anyString}}))
	defer w.Close()
	await := func(so func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !so(); {
			_, _, err := w.Next(t.Context())
			check.Require(t, err == nil && time.Now().Before(deadline), "%v, %+v", err, w.status())
		}
	}
	soon, want := 0, testtier.Size(2, 4, 4)
	for i := 0; i < 12 && soon < want; i++ { // a busy machine may be late
		prefix := fmt.Sprintf("first%d:", i)
		check.NoError(t, rdb.Set(t.Context(), prefix+"a", "token:1", 0).Err())
		w.scan.next = time.Time{} // a scan is due at once, and the one after it as ever
		await(func() bool { return w.locks.known[prefix+"a"] != nil })
		scan := w.scan.passStart
		await(func() bool { return w.tracking.conn != nil && slices.Contains(w.tracking.conn.prefixes, prefix) })
		if i > 0 && w.scan.passStart.Equal(scan) { // at first it polls and scans often
			soon++
		}
		t.Logf("%s is tracked %v after it was found", prefix, time.Since(scan))
	}
	check.Equal(t, soon, want, "prefixes that are tracked before another scan")
}

func TestADeferredScanIsNotTriedAllTheTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		embedded := server.NewPiped()
		defer embedded.Close()
		network := netfault.New(embedded.Dial)
		rdb := redis.NewClient(&redis.Options{Addr: embedded.Addr(), Dialer: network.Dial})
		defer rdb.Close()
		w := NewWatcher(NewScanner(rdb, ScanOptions{}))
		defer w.Close()
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
