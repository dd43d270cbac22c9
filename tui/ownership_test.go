package tui

import (
	"fmt"
	"testing"
	"time"

	"locktop/keyspace"
)

// The page of a lock shows the other locks of its holder, and the locks that
// the holder waits for.
func TestTheLockPageTellsWhatElseItsHolderHas(t *testing.T) {
	pay := keyspace.Holder{ID: "pay-5~0f6a", Label: "pay-5", Count: 1}
	ship := keyspace.Holder{ID: "8743c9c0:7", Count: 1}
	w := world()
	locks := []keyspace.Lock{
		{Key: "lock:a", Format: "locktop", Holders: []keyspace.Holder{pay}, Waiters: []keyspace.Waiter{{ID: ship.ID}}},
		{Key: "lock:b", Format: "redisson", Holders: []keyspace.Holder{ship}, Waiters: []keyspace.Waiter{{ID: "pay-5~77aa"}, {ID: "pay-55~1"}}},
		{Key: "lock:c", Format: "locktop", Holders: []keyspace.Holder{{ID: "pay-5~beef", Label: "pay-5", Count: 1}}},
		{Key: "lock:d", Format: "locktop", Holders: []keyspace.Holder{{ID: "pay-55~1", Label: "pay-55", Count: 1}}},
	}
	for i := range locks {
		locks[i].Kind, locks[i].Expires = keyspace.Mutex, time.Now().Add(time.Hour)
	}
	w.Source = &server{locks: locks}
	drive(t, w, func(d *driver) {
		d.size(100, 50).wait(2*tickInterval).press("/").enter("lock:a").press("enter", "enter")
		d.want("pay-5 also holds lock:c", "pay-5 waits for lock:b, which 8743c9c0:7 holds", "each of the two waits for the other")
		d.press("esc", "esc", "/").enter("lock:c").press("enter", "enter")
		d.want("pay-5 also holds lock:a", "pay-5 waits for lock:b").wantNot("each of the two")
		d.press("esc", "esc", "/").enter("lock:d").press("enter", "enter")
		d.want("pay-55 waits for lock:b").wantNot("also holds")
	})
}

// A filter for an owner shows the locks that it holds and those that it waits
// for. :sort owner puts the locks of each owner together.
func TestTheFilterKnowsWhatAnOwnerWaitsFor(t *testing.T) {
	w := world()
	holder := func(name string) []keyspace.Holder { return []keyspace.Holder{{ID: name, Count: 1}} }
	locks := []keyspace.Lock{
		{Key: "a", Holders: holder("pay-5")},
		{Key: "b", Holders: holder("ship-1"), Waiters: []keyspace.Waiter{{ID: "pay-5"}}},
		{Key: "c", Holders: holder("ship-1")},
		{Key: "d", Holders: holder("pay-5")},
	}
	for i := range locks {
		locks[i].Kind, locks[i].Expires = keyspace.Mutex, time.Now().Add(time.Hour)
	}
	w.Source = &server{locks: locks}
	drive(t, w, func(d *driver) {
		d.press("/").enter("pay-5").want("3 of 4").press("enter", "esc")
		d.press(":").enter("sort owner").press("enter").wantOrder("pay-5", "pay-5", "ship-1", "ship-1")
	})
}

func TestALongListOfKeysIsCut(t *testing.T) {
	var keys []string
	for i := range 9 {
		keys = append(keys, fmt.Sprint("k", i))
	}
	if got := listed(keys); got != "k0, k1, k2, k3, k4, k5 and 3 more" {
		t.Error(got)
	}
}
