package classic_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock/classic"
)

// onThree runs f with three rigs, each with a server of its own.
func onThree(t *testing.T, f func(nodes []*rig)) {
	t.Helper()
	t.Run("embedded", func(t *testing.T) {
		var nodes []*rig
		inBubble(t, func(r *rig) {
			for range 2 {
				e := server.NewPiped()
				r.Cleanup(e.Close)
				other := newRig(r.T, e.Addr(), e.Dial)
				other.fake = true
				nodes = append(nodes, other)
			}
			f(append(nodes, r))
		})
	})
	t.Run("redis-server", func(t *testing.T) {
		testtier.Long(t, "the same runs under a fake clock")
		var nodes []*rig
		for range 3 {
			nodes = append(nodes, newRig(t, servertest.RedisForTest(t).Addr(), tcp))
		}
		f(nodes)
	})
}

// semaphoreWithout returns the view of a client that cannot reach one of the nodes; -1 =
// it reaches all.
func semaphoreWithout(nodes []*rig, out, permits int) *classic.QuorumSemaphore {
	var all []classic.Client
	for i, r := range nodes {
		if i == out {
			all = append(all, outOfReach(r))
		} else {
			all = append(all, r.rdb)
		}
	}
	return classic.NewQuorumSemaphore(all, "orders", classic.Options{TTL: time.Minute, Permits: permits})
}

// outOfReach returns a client whose requests fail.
func outOfReach(r *rig) classic.Client {
	rdb := server.NewClient(r.addr, server.ClientOptions{Dial: r.dial})
	r.must(rdb.Close())
	return rdb
}

// Two permits, and three clients that reach two servers each: A 1 and 2, B 2 and 3, C 3
// and 1. No server has granted more than two permits.
func TestThreeClientsHoldTwoPermitsOfAQuorum(t *testing.T) {
	onThree(t, func(nodes []*rig) {
		var holds []classic.Hold
		for out := range nodes {
			holds = append(holds, nodes[0].take(semaphoreWithout(nodes, out, 2)))
		}
		for i, r := range nodes {
			check.Equal(r, r.rdb.ZCard(ctx, "orders").Val(), 2, "server %d has holders", i+1)
		}
		check.True(t, nodes[0].try(semaphoreWithout(nodes, -1, 2)) == nil, "a fourth client got in")
		for _, h := range holds {
			nodes[0].must(h.Unlock(ctx))
		}
		for i, r := range nodes {
			check.Equal(r, r.rdb.DBSize(ctx).Val(), 0, "server %d has keys left", i+1)
		}
	})
}

// With one permit it is a Redlock, which excludes.
func TestAQuorumWithOnePermitExcludes(t *testing.T) {
	onThree(t, func(nodes []*rig) {
		nodes[0].take(semaphoreWithout(nodes, 0, 1))
		for out := range nodes {
			check.True(t, nodes[0].try(semaphoreWithout(nodes, out, 1)) == nil, "two hold it, the second without server %d", out+1)
		}
	})
}

func TestAQuorumThatIsOutOfReachIsAnError(t *testing.T) {
	onThree(t, func(nodes []*rig) {
		l := classic.NewQuorumSemaphore([]classic.Client{nodes[0].rdb, outOfReach(nodes[1]), outOfReach(nodes[2])}, "orders", classic.Options{Permits: 2})
		_, err := l.TryLock(context.Background())
		check.True(t, err != nil && !errors.Is(err, classic.ErrHeld), "got %v", err)
		check.Equal(t, nodes[0].rdb.DBSize(ctx).Val(), 0, "keys left")
	})
}
