package lock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

func TestAFreeRedlockTakesTwoCommandsANode(t *testing.T) {
	nodesOnRedis(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		r.resetStats()
		r.must(pass(q.Redlock("orders", lock.Options{})))
		r.must(q.Close()) // waits for all releases
		for i := range r.rdbs {
			for command, want := range map[string]string{"set": "calls=1,", "evalsha": "calls=1,"} {
				check.Contains(r, r.stats(i), "cmdstat_"+command+":"+want, "node %d: %s", i, command)
			}
		}
	})
}

// For a held lock only the first node is asked, and once more for the holder.
func TestARefusedRedlockNamesTheHolder(t *testing.T) {
	nodesOnRedis(t, 3, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		r.warm(q)
		lease := r.everywhere(q.Redlock("orders", lock.Options{}))
		r.resetStats()
		held := r.heldBy(q.As("other").Redlock("orders", lock.Options{}))
		check.True(r, held.Token == lease.Token() && held.TTL > 0, "got %v, want the holder", held)
		for i, want := range []string{"cmdstat_set:calls=2,", "cmdstat_evalsha:calls=1,", "cmdstat_evalsha:calls=1,"} {
			r.until(want, func() bool { return strings.Contains(r.stats(i), want) })
		}
		for i := range r.rdbs[1:] {
			stats := r.stats(i + 1)
			check.False(r, strings.Contains(stats, "cmdstat_set"), "node %d was asked for the lock:\n%s", i+1, stats)
		}
	})
}

// resetStats resets the command statistics of every node.
func (r *nodes) resetStats() {
	r.Helper()
	for _, rdb := range r.rdbs {
		r.must(rdb.ConfigResetStat(ctx).Err())
	}
}

// stats returns the commands that a node has executed.
func (r *nodes) stats(node int) string {
	r.Helper()
	return check.Must(r.rdbs[node].Info(ctx, "commandstats").Result())(r)
}

// A free lock is acquired without a script, but released by one.
func TestANodeThatRunsNoScriptsIsGivenNoCopy(t *testing.T) {
	nodesOnRedis(t, 3, func(r *nodes) {
		r.must(r.rdbs[2].Do(ctx, "acl", "setuser", "default", "-@scripting").Err())
		q := r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()})
		for range 3 {
			lease := r.lock(q.Redlock("orders", lock.Options{}))
			r.until("the third node's refusal", func() bool { return errors.Is(lease.Votes()[2].Err, lock.ErrNoPermission) })
			check.Equal(r, r.count("orders", lease.Token()), 2, "nodes have a copy")
			r.must(lease.Unlock(ctx))
		}
	})
}

// Unlock does not wait for nodes that are slower than a quorum, but Close does.
func TestCloseWaitsForTheReleasesOnSlowNodes(t *testing.T) {
	nodesInBubble(t, 5, func(r *nodes) {
		q := r.quorum(lock.QuorumConfig{NodeTimeout: 20 * time.Millisecond})
		lease := r.everywhere(q.Redlock("orders", lock.Options{TTL: time.Minute}))
		r.freeze(3, 4)
		r.must(lease.Unlock(ctx))
		time.AfterFunc(100*time.Millisecond, func() { r.resume(3, 4) }) // their time-out has passed long ago
		r.must(q.Close())
		check.Equal(r, r.count("orders", ""), 5, "released nodes of 5 when Close returned")
	})
}

// Nodes that never granted the lock count when the others are asked to release it.
func TestAReleaseThatFindsTooFewCopiesReturnsErrLost(t *testing.T) {
	nodesOnBoth(t, 5, func(r *nodes) {
		for _, rdb := range r.rdbs[3:] {
			r.must(rdb.Set(ctx, "orders", "stray", time.Hour).Err())
		}
		lease := r.lock(r.quorum(lock.QuorumConfig{NodeTimeout: r.nodeTimeout()}).Redlock("orders", lock.Options{TTL: time.Hour}))
		r.until("the refusals", func() bool {
			votes := lease.Votes()
			return errors.Is(votes[3].Err, lock.ErrHeld) && errors.Is(votes[4].Err, lock.ErrHeld)
		})
		r.must(r.rdbs[0].Del(ctx, "orders").Err())
		check.ErrorIs(r, lease.Unlock(ctx), lock.ErrLost)
		r.until("the release", func() bool { return r.count("orders", "") == 3 && r.count("orders", "stray") == 2 })
	})
}
