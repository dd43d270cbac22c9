package lock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// sentinelRig is a master with replicas and Sentinels.
type sentinelRig struct {
	*rig
	nodes *servertest.SentinelGroup
	rdb   *redis.Client
}

func onSentinels(t *testing.T, o servertest.SentinelOptions) *sentinelRig {
	t.Helper()
	beside(t)
	r := &sentinelRig{rig: &rig{tester: tester{T: t}}, nodes: servertest.SentinelGroupForTest(t, o)}
	r.rdb = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: servertest.SentinelMaster, SentinelAddrs: r.nodes.Sentinels()})
	r.via = r.rdb
	t.Cleanup(func() { r.rdb.Close() })
	return r
}

// survivors waits until the failover has ended, and returns clients of the new master
// and of its replica.
func (r *sentinelRig) survivors() (master, replica *redis.Client) {
	r.Helper()
	var nodes []*redis.Client
	for _, node := range r.nodes.Replicas() {
		nodes = append(nodes, r.direct(node.Addr()))
	}
	r.until("the end of the failover", func() bool {
		for i, rdb := range nodes {
			other := nodes[1-i]
			info := rdb.InfoMap(ctx, "replication").Val()["Replication"]
			if info["role"] == "master" && info["connected_slaves"] == "1" {
				master, replica = rdb, other
			}
		}
		return master != nil
	})
	return master, replica
}

// renewedElsewhere waits until the new master has renewed a lease.
func (r *sentinelRig) renewedElsewhere(lease *lock.Lease, d *eventRecorder) {
	r.Helper()
	began, before := time.Now(), d.count(lock.Renewed)
	r.until("renewals at the new master", func() bool {
		return d.count(lock.Renewed) >= before+2 || lease.Context().Err() != nil
	})
	r.Logf("renewed after %v", time.Since(began))
	check.Require(r, lease.Valid(), "the lease is over: %v", context.Cause(lease.Context()))
}

// Scenario 103: the master dies.
func TestALeaseOutlivesItsMasterBehindSentinels(t *testing.T) {
	testtier.Long(t, "Sentinels replace a master")
	r := onSentinels(t, servertest.SentinelOptions{})
	var d eventRecorder
	c, other := r.client(lock.Config{Observe: d.write}), r.client(lock.Config{})
	o := lock.Options{TTL: time.Minute, // a busy machine may replace the master twice
		Renew: lock.Renew{Every: 200 * time.Millisecond}, Replicas: 2}
	lease := r.lock(c.Mutex("orders", o))
	alone := o
	alone.Replicas = 1 // one of two is the master then
	next := passAsync(other.Mutex("orders", alone))
	r.until("a waiter that listens", func() bool { return len(r.rdb.PubSubChannels(ctx, "*orders}:free").Val()) == 1 })

	r.must(r.nodes.Master().Kill())
	r.renewedElsewhere(lease, &d)
	master, _ := r.survivors()
	check.Equal(t, master.Get(ctx, "orders").Val(), lease.Token(), "the new master has")
	r.must(lease.Unlock(ctx))
	r.must(<-next)
}

// Scenarios 102 and 103: the master is stopped, replaced, and continues without
// knowing it.
func TestAMasterThatWasReplacedInItsSleepGrantsNothing(t *testing.T) {
	testtier.Long(t, "Sentinels replace a master")
	r := onSentinels(t, servertest.SentinelOptions{Args: []string{"--min-replicas-to-write", "1"}})
	var d eventRecorder
	o := lock.Options{TTL: 20 * time.Second, // a failover takes up to 10 s on a busy machine
		Renew: lock.Renew{Every: 200 * time.Millisecond}, Replicas: 1}
	lease := r.lock(r.client(lock.Config{Observe: d.write}).Mutex("orders", o))
	stale := r.direct(r.nodes.Master().Addr())
	misled := r.over(stale, lock.Config{})

	r.must(r.nodes.Master().Freeze())
	r.renewedElsewhere(lease, &d)
	r.survivors()
	r.must(r.nodes.Master().Continue())
	_, err := misled.Mutex("stock", lock.Options{}).TryLock(ctx)
	check.True(t, errors.Is(err, lock.ErrUnavailable) || err == nil && freeScripts(stale),
		"got %v, want a refusal", err)
	r.must(lease.Unlock(ctx))
}

// A server that becomes a replica does not close its connections: the client closes
// them and dials again.
func TestALeaseFollowsItsServersNameAwayFromAReplica(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	t.Parallel()
	nodes := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{})
	r := &rig{tester: tester{T: t}}
	var named atomic.Pointer[server.Child] // the server that the name resolves to
	named.Store(nodes.Master())
	r.via = redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, named.Load().Addr())
	}})
	t.Cleanup(func() { r.via.Close() })
	var d eventRecorder
	c := r.client(lock.Config{Observe: d.write})
	o := lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Every: 50 * time.Millisecond}, Replicas: 1}
	lease := r.lock(c.Mutex("orders", o))

	heir := nodes.Replicas()[0]
	r.must(nodes.Promote(ctx, heir))
	r.must(nodes.Follow(ctx, nodes.Master(), heir))
	named.Store(heir)
	r.renewed(&d, 2) // by the new master
	r.must(lease.Unlock(ctx))
	check.Equal(t, r.direct(heir.Addr()).Exists(ctx, "orders").Val(), 0, "the release did not reach the new master")
}
