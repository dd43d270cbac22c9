package lock_test

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// nodes is a set of independent servers for tests.
type nodes struct {
	tester
	links    []*netfault.Network // between the lock clients and each server
	rdbs     []*redis.Client     // another client of each server
	via      []*redis.Client     // argument of lock.NewQuorum
	children []*server.Child     // nil in a bubble
}

// tooLate reports whether more time has passed than a promise allows: under a fake clock, and else
// as the function tooLate.
func (r *nodes) tooLate(passed, limit time.Duration) bool {
	return r.fake && passed > limit || tooLate(passed, limit)
}

// nodesInBubble runs f on n embedded servers under a fake clock.
func nodesInBubble(t *testing.T, n int, f func(*nodes)) {
	t.Helper()
	beside(t)
	synctest.Test(t, func(t *testing.T) {
		r := &nodes{tester: tester{t, true}}
		for i := range n {
			e := server.NewPiped()
			t.Cleanup(e.Close)
			r.add(fmt.Sprintf("127.0.0.1:%d", i+1), e.Dial)
		}
		f(r)
	})
}

// nodesOnRedis runs f on n redis-servers with these further arguments.
func nodesOnRedis(t *testing.T, n int, f func(*nodes), args ...string) {
	t.Helper()
	beside(t)
	r := &nodes{tester: tester{T: t}}
	for range n {
		child := servertest.RedisForTest(t, args...)
		r.children = append(r.children, child)
		r.add(child.Addr(), redis.NewDialer(&redis.Options{}))
	}
	f(r)
}

// nodesOnBoth runs f under a fake clock and, in the long tier, on redis-servers.
func nodesOnBoth(t *testing.T, n int, f func(*nodes)) {
	t.Helper()
	nodesOnBothLong(t, n, alsoFake, f)
}

// nodesOnBothFirst runs f under a fake clock and on redis-servers. It is for the promises.
func nodesOnBothFirst(t *testing.T, n int, f func(*nodes)) {
	t.Helper()
	beside(t)
	t.Run("embedded", func(t *testing.T) { nodesInBubble(t, n, f) })
	t.Run("redis-server", func(t *testing.T) { nodesOnRedis(t, n, f) })
}

// nodesOnBothLong is [nodesOnBoth] for tests that are long on redis-servers, where they wait for
// time limits or measure.
func nodesOnBothLong(t *testing.T, n int, why string, f func(*nodes)) {
	t.Helper()
	beside(t)
	t.Run("embedded", func(t *testing.T) { nodesInBubble(t, n, f) })
	t.Run("redis-server", func(t *testing.T) {
		testtier.Long(t, why)
		nodesOnRedis(t, n, f)
	})
}

func (r *nodes) add(addr string, dial netfault.Dialer) {
	link := netfault.New(dial)
	rdb := redis.NewClient(&redis.Options{Addr: addr, Dialer: dial, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
	via := redis.NewClient(&redis.Options{Addr: addr, Dialer: link.Dial, DisableIdentity: true})
	r.links, r.rdbs, r.via = append(r.links, link), append(r.rdbs, rdb), append(r.via, via)
	r.Cleanup(func() {
		link.Thaw()
		_ = via.Close()
		_ = rdb.Close()
	})
}

// nodeTimeout returns the time-out of a node. On real servers it is long enough for a
// busy machine.
func (r *nodes) nodeTimeout() time.Duration {
	if r.fake {
		return 200 * time.Millisecond
	}
	return time.Second
}

// quorum returns a quorum of all nodes, which the test closes at its end.
func (r *nodes) quorum(cfg lock.QuorumConfig) *quorum {
	r.Helper()
	q := &quorum{check.Must(lock.NewQuorum(r.via, cfg))(r)}
	r.Cleanup(func() { _ = q.Close() })
	return q
}

// warm connects q to every node. Every node knows the scripts, and no command is on its way.
func (r *nodes) warm(q *quorum) {
	r.Helper()
	lease := r.lock(q.Redlock("warm", lock.Options{TTL: time.Hour}))
	r.until("all votes", func() bool { return votes(lease, func(v lock.Vote) bool { return v.Held }) == len(r.rdbs) })
	r.must(lease.Unlock(ctx))
	r.until("the release on all nodes", func() bool { return r.count("warm", "") == len(r.rdbs) })
}

// everywhere acquires a lock for orders, and waits until every node has its copy.
func (r *nodes) everywhere(l lock.Locker) *lock.Lease {
	r.Helper()
	lease := r.lock(l)
	r.until("all copies", func() bool { return r.count("orders", lease.Token()) == len(r.rdbs) })
	return lease
}

// onLinks changes the network to every node.
func (r *nodes) onLinks(change func(*netfault.Network)) {
	for _, link := range r.links {
		change(link)
	}
}

// count returns on how many nodes key has a value; an empty value means no key. Nodes
// that do not answer do not count.
func (r *nodes) count(key, value string) int {
	n := 0
	for _, rdb := range r.rdbs {
		got, err := rdb.Get(ctx, key).Result()
		if got == value && (err == nil || err == redis.Nil) {
			n++
		}
	}
	return n
}

// down cuts nodes off: sent requests are lost, and new connections fail.
func (r *nodes) down(which ...int) {
	for _, i := range which {
		r.links[i].Refuse(&net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route")})
		r.links[i].Cut()
	}
}

// up undoes down.
func (r *nodes) up() {
	for _, link := range r.links {
		link.Refuse(nil)
	}
}

// freeze stalls nodes: with SIGSTOP, or with a frozen network in a bubble.
func (r *nodes) freeze(which ...int) {
	r.Helper()
	for _, i := range which {
		if !r.fake {
			r.must(r.children[i].Freeze())
		} else {
			r.links[i].Freeze()
		}
	}
}

// resume undoes freeze.
func (r *nodes) resume(which ...int) {
	r.Helper()
	for _, i := range which {
		if !r.fake {
			r.must(r.children[i].Continue())
		} else {
			r.links[i].Thaw()
		}
	}
}

// kill crashes nodes.
func (r *nodes) kill(which ...int) {
	r.Helper()
	for _, i := range which {
		r.must(r.children[i].Kill())
	}
}

// restart starts killed nodes again.
func (r *nodes) restart(which ...int) {
	r.Helper()
	for _, i := range which {
		r.must(r.children[i].Restart(ctx))
	}
}
