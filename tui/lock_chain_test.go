package tui

import (
	"context"
	"errors"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// fakeFinder lists the clients of a test, and ends each watch of a holder when the test says so.
type fakeFinder struct {
	clients []keyspace.Client
	err     error
	lists   int
	found   chan keyspace.Suspicion
	ended   int // watches
}

func (f *fakeFinder) Clients(context.Context, keyspace.Lock) ([]keyspace.Client, error) {
	f.lists++
	return f.clients, f.err
}

func (f *fakeFinder) WatchHolder(ctx context.Context, _ keyspace.Lock, _ keyspace.Holder, _ []*keyspace.Lock) (keyspace.Suspicion, error) {
	defer func() { f.ended++ }()
	select {
	case found := <-f.found:
		return found, nil
	case <-ctx.Done():
		return keyspace.Suspicion{Changes: 1, Left: 3}, nil
	}
}

// chained returns a source with a chain of three locks.
func chained() Source {
	locks := []keyspace.Lock{mutex("chain:1", "svc-c:1", time.Hour), mutex("chain:2", "svc-d:1", time.Hour), mutex("chain:3", "svc-e:1", time.Hour)}
	locks[0].Waiters = []keyspace.Waiter{{ID: "svc-d:1", Since: before(111 * time.Second)}}
	locks[1].Waiters = []keyspace.Waiter{{ID: "svc-e:1"}, {ID: "svc-f:1"}}
	return &fakeServer{locks: locks}
}

func TestTheLockPageSaysWhetherTheLockIsStuck(t *testing.T) {
	f := &fakeFinder{clients: []keyspace.Client{
		{ID: 7, Addr: "10.0.3.17:51622", Name: "svc-c:1", Library: "lettuce\x1b[2J 6.3", Age: 3 * time.Hour, Idle: 2 * time.Second, Command: "evalsha"},
		{ID: 8, Addr: "10.0.3.18:4000", Name: "another"},
	}}
	w := testConfig()
	w.Source, w.Finder, w.Executor, w.Formats = chained(), f, &fakeExecutor{}, actionFormats()
	drive(t, w, func(d *driver) {
		lists := func(want int) {
			t.Helper()
			check.Require(t, f.lists == want, "the clients were listed %d times, want %d", f.lists, want)
		}
		d.wait(time.Second)
		lists(0)
		d.press("/").enter("chain:1").press("enter", "enter").wait(time.Second)
		lists(1)
		for _, size := range [][2]int{{80, 24}, {140, 40}} {
			d.size(size[0], size[1]).want("svc-c:1 · 10.0.3.17:51622, lettuce", `\x1b[2J`, "connected for 3 h", "idle 2.0 s after evalsha", "clients listed",
				"blocks    3 clients, 1 directly, the longest for 1 m 5", "waits for nothing that locktop sees: it is the root of the chain",
				"W find the client", "x r release it").wantNot("another")
		}
		d.wait(8 * time.Second)
		lists(1)
		d.wait(2 * time.Second)
		lists(2)
		d.press("p").want("node-", "blocks    3 clients").wantNot("svc-c", "svc-d", "10.0.3", "chain:")
		d.press("p", "esc", "esc", "/").enter("chain:3").press("enter", "enter").wait(tickInterval)
		lists(3)
		d.want("no connection has its name or address", "svc-e:1 waits for chain:2, which svc-d:1 holds; that owner waits for chain:1", "svc-c:1 is the root",
			"tree      chain:1, which svc-c:1 holds, blocks 3 clients, 1 directly", "            chain:2, which svc-d:1 holds, blocks 2 clients", "              chain:3, which svc-e:1 holds")
	})
}

// Without the permission, the page says so once, and does not ask again before a minute has passed.
func TestTheLockPageSaysThatItMayNotListClients(t *testing.T) {
	f := &fakeFinder{err: errors.New("this user may not run CLIENT LIST")}
	w := testConfig()
	w.Source, w.Finder = chained(), f
	drive(t, w, func(d *driver) {
		d.press("enter").wait(50*time.Second).want("connection not shown: this user may not run CLIENT LIST", "blocks ").wantNot("x r release")
		check.True(t, f.lists == 1, "it asked %d times in 50 s", f.lists)
	})
}

// W watches the lock until its client is known, the time is over, or the user leaves the page.
func TestAWatchFindsTheClientOfTheHolder(t *testing.T) {
	driveNew(t, func(*testing.T) Config {
		w := testConfig()
		w.Source, w.Finder = chained(), &fakeFinder{found: make(chan keyspace.Suspicion)}
		return w
	}, func(d *driver) {
		f := d.app.config.Finder.(*fakeFinder)
		d.press("/").enter("chain:1").press("enter", "enter").wait(tickInterval)
		d.press("W").wait(5*time.Second).want("watching the lock for its client, 5.", "of 30 s").press("W").want("watched already")
		f.found <- keyspace.Suspicion{Client: keyspace.Client{ID: 3, Addr: "10.1.1.1:99", Command: "set"}, Changes: 3, Hits: 3, Left: 1, Named: true}
		d.settle().want("probably 10.1.1.1:99", "just when the lock changed, 3 of 3")
		d.press("W").wait(31 * time.Second).want("not found in 30 s: 1 change, 3 clients are left")
		d.press("W", "esc").wait(time.Second)
		check.True(t, f.ended == 3, "%d of 3 watches have ended", f.ended)
		d.press("enter").wait(tickInterval).wantNot("not found in").press("<").want("blocks").wantNot("W find").press("W").want("this is the past")
	})
}
