package tui

import (
	"fmt"
	"testing"

	"locktop/keyspace"
)

func TestTheEventLogCountsDiscardedEvents(t *testing.T) {
	var j eventLog
	event := func(key string) keyspace.Event { return keyspace.Event{Lock: keyspace.Lock{Key: key}} }
	for i := range 5 * maxEvents {
		j.add([]keyspace.Event{event(fmt.Sprintf("lock:%d", i%10))})
	}
	if len(j.events) > 2*maxEvents || j.total != 5*maxEvents {
		t.Errorf("%d events are kept of %d", len(j.events), j.total)
	}
	for i := range 10 {
		id := keyspace.ID{Key: fmt.Sprintf("lock:%d", i)}
		places := j.latest(id, len(j.events), 3)
		if len(places) != 3 || places[0]-places[1] != 10 || places[0] < len(j.events)-10 {
			t.Errorf("the latest of %s are at %v of %d", id.Key, places, len(j.events))
		}
		for _, at := range j.latest(id, len(j.events), len(j.events)) {
			if j.events[at].Lock.Key != id.Key {
				t.Fatalf("%s is about %s", id.Key, j.events[at].Lock.Key)
			}
		}
		if places := j.latest(id, len(j.events)-10, 1); len(places) != 1 || places[0] >= len(j.events)-10 {
			t.Errorf("before the last ten it is at %v", places)
		}
	}
}
