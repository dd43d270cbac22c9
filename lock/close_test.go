package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// Guarantee 9: Close returns, whatever the server does.
func TestCloseReturnsIfNoServerAnswers(t *testing.T) {
	testtier.Long(t, "Close waits for frozen servers, nodes and a cluster")
	t.Parallel()
	t.Run("single", func(t *testing.T) {
		onChild(t, func(r *rig, child *server.Child) {
			c := r.client(lock.Config{})
			lease := r.lock(c.Mutex("orders", lock.Options{}))
			r.must(child.Freeze())
			closesSoon(t, c.Close, lease)
		})
	})
	t.Run("five nodes", func(t *testing.T) {
		nodesOnRedis(t, 5, func(r *nodes) {
			q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
			lease := r.lock(q.Redlock("orders", lock.Options{}))
			r.freeze(0, 1, 2, 3, 4)
			closesSoon(t, q.Close, lease)
		})
	})
	t.Run("cluster", func(t *testing.T) {
		r := onCluster(t, servertest.ClusterOptions{})
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.nodes.Addrs(), ReadTimeout: time.Minute})
		defer rdb.Close()
		c := r.open(rdb, lock.Config{})
		var leases []*lock.Lease
		for i := range 20 { // on all masters
			lease := r.lock(c.Mutex(fmt.Sprint("orders", i), lock.Options{}))
			leases = append(leases, lease)
		}
		for _, node := range r.nodes.Nodes() {
			r.must(node.Freeze())
		}
		closesSoon(t, c.Close, leases...)
	})
}

// closesSoon checks that end returns soon, and that the leases end.
func closesSoon(t *testing.T, end func() error, leases ...*lock.Lease) {
	t.Helper()
	began := time.Now()
	err := end()
	took := time.Since(began)
	t.Logf("closed after %v: %v", took, err)
	check.AtMost(t, took, 10*time.Second, "Close took")
	for _, lease := range leases {
		check.ErrorIs(t, context.Cause(lease.Context()), lock.ErrClosed, "a lease ended with")
	}
}

// A connection that was just used is closed as fast as an idle one.
func TestCloseWaitsForNothing(t *testing.T) {
	inBubble(t, func(r *rig) {
		c := r.client(lock.Config{})
		r.must(r.locked(c.Mutex("orders", lock.Options{})).Unlock(ctx))
		began := time.Now()
		r.must(c.Close())
		check.AtMost(r, time.Since(began), 0, "Close took")
	})
}
