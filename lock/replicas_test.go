package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// replicatedRig is a master with replicas.
type replicatedRig struct {
	*rig
	nodes *servertest.Replicated
}

func onReplicas(t *testing.T, o servertest.ReplicatedOptions) *replicatedRig {
	t.Helper()
	beside(t)
	nodes := servertest.ReplicatedForTest(t, o)
	return &replicatedRig{newRig(t, nodes.Master().Addr(), redis.NewDialer(&redis.Options{})), nodes}
}

// kinds returns a lock of each kind on one server.
var kinds = map[string]func(c *client, key string, o lock.Options) lock.Locker{
	"mutex":     func(c *client, key string, o lock.Options) lock.Locker { return c.Mutex(key, o) },
	"reentrant": func(c *client, key string, o lock.Options) lock.Locker { return c.Reentrant(key, o) },
	"fair":      func(c *client, key string, o lock.Options) lock.Locker { return c.Fair(key, o) },
	"semaphore": func(c *client, key string, o lock.Options) lock.Locker { return c.Semaphore(key, 1, o) },
	"reader":    func(c *client, key string, o lock.Options) lock.Locker { return c.RW(key, o).Reader() },
	"writer":    func(c *client, key string, o lock.Options) lock.Locker { return c.RW(key, o).Writer() },
	"all": func(c *client, key string, o lock.Options) lock.Locker {
		return c.All([]string{key, key + "-too"}, o)
	},
	"scattered": func(c *client, key string, o lock.Options) lock.Locker {
		return lock.Scatter(c.All([]string{key, key + "-also"}, o))
	},
}

// everyKind returns a lock of each kind that the options apply to, with a key of its own.
func everyKind(c *client, key string, o lock.Options) map[string]lock.Locker {
	all := map[string]lock.Locker{}
	for name, kind := range kinds {
		if o.Replicas == 0 || name != "all" && name != "scattered" {
			all[name] = kind(c, key+"-"+name, o)
		}
	}
	return all
}

// Scenario 100: too few replicas confirm.
func TestALockThatTooFewReplicasHaveIsGivenBack(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	r := onReplicas(t, servertest.ReplicatedOptions{Replicas: 2})
	c := r.client(lock.Config{})
	o := lock.Options{TTL: time.Minute, Replicas: 2, ReplicaTimeout: 5 * time.Second}
	for name, l := range everyKind(c, "before", o) {
		check.ErrorIs(t, tried(l.Lock(ctx)), nil, "%s, with two replicas", name)
	}
	r.must(r.nodes.Replicas()[0].Freeze())
	o.ReplicaTimeout = 50 * time.Millisecond
	for name, l := range everyKind(c, "after", o) {
		check.ErrorIs(t, tried(l.Lock(ctx)), lock.ErrUnavailable, "%s, with one replica that answers", name)
		r.until("the undo", func() bool { return r.rdb.Exists(ctx, "after-"+name).Val() == 0 })
	}
	held := r.lock(c.Mutex("waited", lock.Options{}))
	waiting := inBackground(func() error { return tried(c.As("other").Mutex("waited", o).Lock(ctx)) })
	r.until("a waiter that listens", func() bool { return len(r.rdb.PubSubChannels(ctx, "*waited}:free").Val()) == 1 })
	r.must(held.Unlock(ctx))
	check.ErrorIs(t, <-waiting, lock.ErrUnavailable, "after a wait")
	o.Replicas = 1
	check.ErrorIs(t, tried(c.Mutex("enough", o).Lock(ctx)), nil, "one replica is enough")
}

// The embedded server has no replicas.
func TestALockThatNoReplicaHasIsGivenBackAtOnce(t *testing.T) {
	inBubble(t, func(r *rig) {
		o := lock.Options{TTL: time.Minute, Replicas: 1, ReplicaTimeout: 50 * time.Millisecond}
		for name, l := range everyKind(r.client(lock.Config{}), "orders", o) {
			check.ErrorIs(r, tried(l.TryLock(ctx)), lock.ErrUnavailable, "%s", name)
			synctest.Wait()
			check.Equal(r, r.keys(), 0, "%s: keys left", name)
		}
	})
}

func TestACallerWhoGivesUpOnReplicasLeavesNothingBehind(t *testing.T) {
	r := onReplicas(t, servertest.ReplicatedOptions{})
	c := r.client(lock.Config{})
	r.must(r.nodes.Replicas()[0].Freeze())
	m := c.Mutex("orders", lock.Options{TTL: time.Minute, Replicas: 1, ReplicaTimeout: 30 * time.Second})
	giveUp, cancel := context.WithCancel(ctx)
	failed := inBackground(func() error { return tried(m.Lock(giveUp)) })
	r.until("the wait for the replica", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 1 })
	cancel()
	check.ErrorIs(t, <-failed, context.Canceled)
	r.until("the undo", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
}

// Part of scenario 93 and of 102: min-replicas-to-write.
func TestAServerWithoutItsReplicasIsErrUnavailable(t *testing.T) {
	r := onReplicas(t, servertest.ReplicatedOptions{})
	c := r.client(lock.Config{})
	held := r.lock(c.Mutex("held", lock.Options{TTL: time.Minute}))
	r.must(r.rdb.ConfigSet(ctx, "min-replicas-to-write", "2").Err())
	check.ErrorIs(t, tried(c.Mutex("orders", lock.Options{}).Lock(ctx)), lock.ErrUnavailable, "acquire")
	err := held.Unlock(ctx)
	check.True(t, errors.Is(err, lock.ErrUnavailable) || err == nil && freeScripts(r.rdb), "unlock: got %v, want ErrUnavailable", err)
	r.must(r.rdb.ConfigSet(ctx, "min-replicas-to-write", "0").Err())
	r.until("the release to be made good", func() bool { return r.rdb.Exists(ctx, "held").Val() == 0 })
}

// freeScripts reports whether a server lets scripts write although
// min-replicas-to-write is not met, as Redis before 7.0 does.
func freeScripts(rdb *redis.Client) bool {
	return rdb.Eval(ctx, "return redis.call('SET', KEYS[1], 1)", []string{"probe"}).Err() == nil
}

// killsOf is the environment variable that makes the next test longer.
const killsOf = "LOCKTOP_FAILOVERS"

// Scenario 101: a lock that was acquired with Replicas still exists after the master
// has died and its replica has been promoted. Without Replicas it was missing in 6 of
// 25 runs.
func TestNoReplicatedLockIsLostWithItsMaster(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	r := onReplicas(t, servertest.ReplicatedOptions{})
	kills := 3
	if n, err := strconv.Atoi(os.Getenv(killsOf)); err == nil {
		kills = n
	}
	master, replica := r.nodes.Master(), r.nodes.Replicas()[0]
	for round := range kills {
		rdb := r.direct(master.Addr())
		c := r.open(rdb, lock.Config{})
		var acquired []*await
		for i := range 64 {
			acquired = append(acquired, lockAsync(ctx, c.Mutex(fmt.Sprint(round, "-", i), lock.Options{TTL: time.Minute, Replicas: 1})))
		}
		tokens := map[string]string{}
		for _, call := range acquired {
			lease := r.won(call)
			tokens[lease.Key()] = lease.Token()
		}
		r.must(master.Kill()) // right after the last acquire
		r.must(r.nodes.Promote(ctx, replica))
		after := r.direct(replica.Addr())
		for key, token := range tokens {
			check.Equal(t, after.Get(ctx, key).Val(), token, "round %d: the new master has under %s", round, key)
		}
		c.Close() // its server is gone
		r.must(master.Restart(ctx))
		r.must(r.nodes.Follow(ctx, master, replica))
		master, replica = replica, master
	}
}

// Scenario 100 on a cluster: WAIT runs on the node that has the key, also while the
// slot moves.
func TestReplicatedLocksFollowTheirSlot(t *testing.T) {
	testtier.Long(t, "it starts a cluster with replicas")
	r := onCluster(t, servertest.ClusterOptions{Masters: 2, Replicas: 1})
	c := r.client(lock.Config{})
	o := lock.Options{TTL: time.Minute, Replicas: 1, ReplicaTimeout: 10 * time.Second}
	for i := range 20 {
		_ = r.lock(c.Mutex(fmt.Sprint("orders", i), o))
	}
	m := r.moving("{o}")
	_, err := c.Mutex("{o}a", o).Lock(ctx) // ASK
	r.must(err)
	m.finish()
	_, err = c.Mutex("{o}b", o).Lock(ctx) // MOVED
	r.must(err)
	o.Replicas, o.ReplicaTimeout = 2, 20*time.Millisecond
	check.ErrorIs(t, tried(c.Mutex("{o}c", o).Lock(ctx)), lock.ErrUnavailable)
}
