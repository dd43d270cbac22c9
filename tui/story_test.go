package tui

import (
	"testing"
	"time"

	"locktop/keyspace"
)

func TestThePageOfALockTellsItsStory(t *testing.T) {
	held := mutex("a", "worker-7", time.Minute)
	held.Holders[0].DisconnectedAt = before(5 * time.Second)
	ended := held
	ended.Expires = before(2 * time.Second)
	ended.Holders = []keyspace.Holder{held.Holders[0]}
	ended.Holders[0].Expires, ended.Holders[0].DisconnectedAt = ended.Expires, before(20*time.Second)
	next := mutex("a", "worker-2", time.Minute)
	events := []keyspace.Event{
		{At: before(time.Minute), Kind: keyspace.Acquired, Lock: held, Holder: keyspace.Holder{ID: held.Holders[0].ID, Label: "worker-7", Since: before(time.Minute)}},
		{At: before(2 * time.Second), Kind: keyspace.Expired, Lock: ended, Holder: ended.Holders[0]},
		{At: before(time.Second), Kind: keyspace.Acquired, Lock: next, Holder: next.Holders[0]},
	}
	calm := mutex("b", "worker-3", time.Minute)
	drive(t, Config{Source: holding(next, calm).watched(keyspace.Push, &events)}, func(d *driver) {
		d.size(120, 40).wait(time.Second).press("enter").wantNot("not known").press("e").want(
			"The connection of worker-7, which held a, ended at", "expired; no release", "worker-2 acquired it", "not known", "e for the lock")
		d.press("p").wantNot("worker-7").want("hidden").press("p").press("e").wantNot("not known").want("is it stuck")
		d.press("esc", "down", "enter", "e").want("no incident", "worker-3 has held it")
		d.press("esc", "enter").wantNot("no incident")
	})
}
