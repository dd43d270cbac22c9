package cli

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/server"
)

func TestTheDemoHasLocksOfManyKinds(t *testing.T) {
	st, err := newDemoEnv(t.Context(), demoOptions{clients: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	formats := map[string]bool{}
	falling := 0
	locks := found(t, st.rdb)
	for _, l := range locks {
		formats[l.Format] = true
		if !l.Expires.IsZero() {
			falling++
		}
	}
	if len(locks) < 8 || len(formats) < 5 || falling < 6 {
		t.Errorf("%d locks of %d formats, %d of which expire", len(locks), len(formats), falling)
	}
}

func TestTheLoadOfTheDemoIsUnderWay(t *testing.T) {
	st, err := newDemoEnv(t.Context(), demoOptions{clients: 5})
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	eventually(t, func() bool {
		m := st.load.Metrics()
		return m.Acquired > 0 && m.Clients.Waiting > 0
	})
}

func TestWhoeverEntersIsNewAndHoldsTheSameLock(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: server.EmbeddedForTest(t).Addr()})
	defer rdb.Close()
	c, err := newDemoTraffic(t.Context(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 { // the earlier rounds must leave no keys
		for _, a := range c.actors {
			if err := a.enter(t.Context(), rdb); err != nil {
				t.Fatal(err)
			}
		}
	}
	locks := found(t, rdb)
	for _, a := range c.actors {
		want := a.sample.Want
		l := locks[want.Key]
		if l.Kind != want.Kind || l.Confidence != want.Confidence || len(l.Holders) != len(want.Holders) || l.Count() != want.Count() {
			t.Errorf("%s (%s) is a %s %s held by %s", want.Key, a.sample.Name, l.Format, l.Kind, render.HolderIDs(l))
		}
		if render.HolderIDs(l) == render.HolderIDs(want) && len(render.HolderIDs(want)) > anonymous {
			t.Errorf("%s (%s) is held by the sample's own %s", want.Key, a.sample.Name, render.HolderIDs(l))
		}
	}
}

func TestTheCastKeepsItsLocksMoving(t *testing.T) {
	t.Parallel()
	st, err := newDemoEnv(t.Context(), demoOptions{clients: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	before := found(t, st.rdb)
	eventually(t, func() bool {
		changed := 0
		for key, l := range found(t, st.rdb) {
			if was, known := before[key]; known && render.HolderIDs(was) != render.HolderIDs(l) {
				changed++
			}
		}
		return changed > 0
	})
}

// found returns every lock on a server, by key.
func found(t *testing.T, rdb *redis.Client) map[string]keyspace.Lock {
	t.Helper()
	var s selection
	snap, err := inspect.NewScanner(rdb, s.options(0, nil)).Scan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	locks := map[string]keyspace.Lock{}
	for _, l := range snap.Locks {
		locks[l.Key] = l
	}
	return locks
}
