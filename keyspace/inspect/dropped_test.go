package inspect

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/keyspace"
)

// A snapshot says how many events are missing from it.
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
	check.True(t, len(s.Events) == eventsKept && s.EventsDropped == 3,
		"%d events, %d dropped; want %d and 3", len(s.Events), s.EventsDropped, eventsKept)
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
		}, []string{""}, nil)
		synctest.Wait()
		began := time.Now()
		c.close()
		took := time.Since(began)
		check.True(t, dialed && took <= 0, "dialed %v, and closing took %v", dialed, took)
	})
}

// A scan that waits until the events are taken does not keep the watcher busy meanwhile.
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
