package tui

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/loadgen"
)

func TestTheEventLogCountsDiscardedEvents(t *testing.T) {
	var j eventLog
	event := func(key string) keyspace.Event { return keyspace.Event{Lock: keyspace.Lock{Key: key}} }
	for i := range 5 * maxEvents {
		j.add([]keyspace.Event{event(fmt.Sprintf("lock:%d", i%10))})
	}
	check.True(t, len(j.events) <= 2*maxEvents && j.total == 5*maxEvents, "%d events are kept of %d", len(j.events), j.total)
	for i := range 10 {
		id := keyspace.ID{Key: fmt.Sprintf("lock:%d", i)}
		places := j.latest(id, len(j.events), 3)
		check.True(t, len(places) == 3 && places[0]-places[1] == 10 && places[0] >= len(j.events)-10,
			"the latest of %s are at %v of %d", id.Key, places, len(j.events))
		for _, at := range j.latest(id, len(j.events), len(j.events)) {
			check.Require(t, j.events[at].Lock.Key == id.Key, "%s is about %s", id.Key, j.events[at].Lock.Key)
		}
		places = j.latest(id, len(j.events)-10, 1)
		check.True(t, len(places) == 1 && places[0] < len(j.events)-10, "before the last ten it is at %v", places)
	}
}

func TestAnEventCanBeCopied(t *testing.T) {
	l := mutex("a", "thief-1", time.Minute)
	events := []keyspace.Event{{At: before(0), Kind: keyspace.Stolen, Lock: l, Holder: keyspace.Holder{ID: "victim-1"}, Held: time.Second}}
	w := testConfig()
	clipboard := w.Clipboard.(*fakeClipboard)
	w.Source = holding(l).watched(keyspace.Push, &events)
	drive(t, w, func(d *driver) {
		d.size(120, 30).wait(time.Second).press("6", "j")
		for !strings.Contains(d.line("▌"), "stolen") {
			d.press("j")
		}
		for key, want := range map[string]string{
			"k": "a", "c": "victim-1", "e": "2000-01-01T00:00:00.000Z stolen a victim-1 taken by thief-1 · held for 1.0 s",
		} {
			d.press("y", key).wait(tickInterval)
			check.True(t, clipboard.copied == want, "y %s copied %q, want %q", key, clipboard.copied, want)
		}
	})
	drive(t, Config{Source: &fakeServer{}}, func(d *driver) { d.press("6", "y").want("no lock to copy from") })
}

// The event of a waiter does not show the deadline of the lock. A waiter of the load is a process of its clients.
func TestTheEventOfAWaiterDoesNotShowTheDeadlineOfTheLock(t *testing.T) {
	prefix := runningLoad().Scenario().Keys.Prefix
	w := testConfig()
	w.Load = runningLoad()
	var events []keyspace.Event
	for _, key := range []string{"a", prefix + "1"} {
		l := mutex(key, "x", 10*time.Minute)
		l.Waiters = []keyspace.Waiter{{ID: "vm:15837~1fe0a1b2c3d4"}}
		events = append(events, keyspace.Event{At: before(0), Kind: keyspace.WaiterJoined, Lock: l, Waiter: l.Waiters[0]})
	}
	w.Source = holding(events[0].Lock, events[1].Lock).watched(keyspace.Push, &events)
	drive(t, w, func(d *driver) {
		d.size(140, 30).wait(time.Second).press("6", "/").enter("waiter").press("enter")
		d.want("vm:15837~1fe0", "load vm:15837 ").wantNot("load vm:15837~", "10 m 00 left")
	})
}

// The number of clients is that of the agents that are still there.
func TestTheClientsOfALostAgentAreNotCounted(t *testing.T) {
	w, g := agentsConfig(testConfig())
	drive(t, w, func(d *driver) {
		d.wait(tickInterval).press("3")
		clients := g.Scenario().Clients
		g.agents[1].Lost, g.agents[1].Clients, g.agents[1].Metrics = true, 7, loadgen.Metrics{}
		d.wait(2*tickInterval).want(fmt.Sprintf("%d of %d clients", clients-7, clients), "each agent's at its last report")
	})
}
