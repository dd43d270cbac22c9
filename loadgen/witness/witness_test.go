package witness_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"locktop/loadgen/witness"
	"locktop/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onServers runs a test with an embedded server and with a real one.
func onServers(t *testing.T, test func(t *testing.T, rdb *redis.Client)) {
	t.Run("embedded", func(t *testing.T) {
		s, err := server.StartEmbedded()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		test(t, connect(t, s.Addr()))
	})
	t.Run("redis", func(t *testing.T) { test(t, connect(t, server.ForTest(t).Addr())) })
}

func connect(t *testing.T, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

func open(t *testing.T, rdb *redis.Client) *witness.Witness {
	t.Helper()
	w, err := witness.Open(t.Context(), rdb, "run", 1)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func valid() bool { return true }
func over() bool  { return false }

func TestAWitnessProvesOverlaps(t *testing.T) {
	onServers(t, func(t *testing.T, rdb *redis.Client) {
		w := open(t, rdb)
		keys := []string{"a", "b"}
		first := w.Enter(t.Context(), "client-1", keys, false)
		second := w.Enter(t.Context(), "client-2", keys[1:], false)
		second.Leave(t.Context(), valid)
		late := w.Enter(t.Context(), "client-3", keys[1:], false)
		late.Leave(t.Context(), over)
		first.Leave(t.Context(), valid)
		if ttl := rdb.TTL(t.Context(), "locktop:witness:{run}").Val(); ttl <= 0 {
			t.Errorf("the stream has a TTL of %v", ttl)
		}
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := w.Results()
		if r.Holds != 3 || r.Proven != 2 || r.Overlaps != 1 || r.Unseen != 0 || r.Err != nil || r.P99 <= 0 {
			t.Errorf("%+v", r)
		}
		if want := "1 overlap in the order of 2 of 3 holds (first: client-1 and client-2 on b)"; len(r.Examples) != 1 || r.String()[:len(want)] != want {
			t.Errorf("%s", r)
		}
		if n := rdb.DBSize(t.Context()).Val(); n != 0 {
			t.Errorf("%d keys are left", n)
		}
	})
}

// Many clients, one at a time: all holds are proved, and nothing is wrong. The stream is
// read while they run.
func TestAWitnessOfManyHoldsOfASoundLock(t *testing.T) {
	onServers(t, func(t *testing.T, rdb *redis.Client) {
		w := open(t, rdb)
		var lock sync.Mutex
		var all sync.WaitGroup
		const clients, holds = 20, 150
		for client := range clients {
			all.Go(func() {
				for range holds {
					lock.Lock()
					h := w.Enter(context.Background(), fmt.Sprint(client), []string{"k"}, false)
					h.Leave(context.Background(), valid)
					lock.Unlock()
				}
			})
		}
		all.Wait()
		if err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r := w.Results(); r.Holds != clients*holds || r.Proven != r.Holds || r.Overlaps != 0 {
			t.Errorf("%s", r)
		}
	})
}

// Without its server, a witness delays no client for more than 1 s an entry, and the results
// tell how much it has missed.
func TestAWitnessWithoutItsServer(t *testing.T) {
	child := server.ForTest(t)
	rdb := redis.NewClient(&redis.Options{Addr: child.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	w := open(t, rdb)
	seen := w.Enter(t.Context(), "client-1", []string{"k"}, false)
	if err := child.Kill(); err != nil {
		t.Fatal(err)
	}
	seen.Leave(t.Context(), valid)
	w.Enter(t.Context(), "client-2", []string{"k"}, false).Leave(t.Context(), valid)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := w.Close(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("close: %v", err)
	}
	if r := w.Results(); r.Unseen != 2 || r.Err == nil || r.Overlaps != 0 {
		t.Errorf("%+v", r)
	}
	if _, err := witness.Open(ctx, rdb, "other", 1); err == nil {
		t.Error("a witness on no server")
	}
}
