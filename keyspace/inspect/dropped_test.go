package inspect

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// A snapshot says how many events are missing from it.
func TestDroppedEventsAreCounted(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	w := NewWatcher(NewScanner(rdb, ScanOptions{}))
	defer w.Close()
	for range eventsKept + 3 {
		w.unreported.events = append(w.unreported.events, keyspace.Event{Kind: keyspace.Released})
		w.unreported.limit()
	}
	s := snapshotOf(t, multiOf(MultiOptions{}, sourcesOf(fixed{snap: w.takeSnapshot()}, fixed{snap: w.takeSnapshot()})))
	if len(s.Events) != eventsKept || s.EventsDropped != 3 {
		t.Errorf("%d events, %d dropped; want %d and 3", len(s.Events), s.EventsDropped, eventsKept)
	}
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
		if took := time.Since(began); !dialed || took > 0 {
			t.Errorf("dialed %v, and closing took %v", dialed, took)
		}
	})
}
