package inspect

import (
	"testing"

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
