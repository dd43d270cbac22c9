package lock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// tester is what the rigs of a server and of several servers share.
type tester struct {
	*testing.T
	fake bool // the clock is fake
}

// rig is a Redis server for tests.
type rig struct {
	tester
	link *netfault.Network // between the lock clients and the server
	rdb  *redis.Client     // another client, on its own connection
	via  *redis.Client     // argument of lock.New

	embedded *server.Embedded // of inBubble
}

// client returns a client of the rig, which the test closes at its end.
func (r *rig) client(cfg lock.Config) *client {
	r.Helper()
	return r.over(r.via, cfg)
}

// near returns a client that does not go through the network, which the test closes at its end.
func (r *rig) near() *client {
	r.Helper()
	return r.over(r.rdb, lock.Config{})
}

// over returns a client over a connection, which the test closes at its end.
func (r tester) over(via redis.UniversalClient, cfg lock.Config) *client {
	r.Helper()
	c := r.open(via, cfg)
	r.Cleanup(func() { c.Close() })
	return c
}

// direct returns a client of go-redis for one server, which the test closes at its end.
func (r tester) direct(addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	r.Cleanup(func() { rdb.Close() })
	return rdb
}

// hear subscribes to a channel until the end of the test.
func (r *rig) hear(channel string) *redis.PubSub {
	r.Helper()
	ear := r.rdb.Subscribe(ctx, channel)
	r.Cleanup(func() { ear.Close() })
	check.Must(ear.Receive(ctx))(r) // the confirmation
	return ear
}

// must ends the test if err is not nil.
func (r tester) must(err error) {
	r.Helper()
	check.NoError(r, err)
}

// soon returns a context that ends after d.
func (r tester) soon(d time.Duration) context.Context {
	short, cancel := context.WithTimeout(ctx, d)
	r.Cleanup(cancel)
	return short
}

// lock acquires a lock, and waits for it.
func (r tester) lock(l lock.Locker) *lock.Lease {
	r.Helper()
	return check.Must(l.Lock(ctx))(r)
}

// locked acquires a lock that must be free.
func (r tester) locked(l lock.Locker) *lock.Lease {
	r.Helper()
	return check.Must(l.TryLock(ctx))(r)
}

// heldBy tries to acquire a lock that must be held, and returns what the client learns.
func (r tester) heldBy(l lock.Locker) *lock.HeldError {
	r.Helper()
	_, err := l.TryLock(ctx)
	var held *lock.HeldError
	check.Require(r, errors.Is(err, lock.ErrHeld) && errors.As(err, &held), "got %v, want ErrHeld and the holder", err)
	return held
}

// pass acquires a lock, waits for it, and releases it.
func pass(l lock.Locker) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Unlock(ctx)
}

// passAsync calls pass in a goroutine.
func passAsync(l lock.Locker) <-chan error {
	return inBackground(func() error { return pass(l) })
}

// holds checks the value that the server stores under key.
func (r *rig) holds(key, want string) {
	r.Helper()
	got, err := r.rdb.Get(context.Background(), key).Result()
	check.Require(r, err == nil || err == redis.Nil, "%v", err)
	check.Require(r, got == want, "%q holds %q, want %q", key, got, want)
}

// lives checks that the server keeps a key for ttl from a moment after began.
func (r *rig) lives(key string, ttl time.Duration, began time.Time) {
	r.Helper()
	left := r.rdb.PTTL(context.Background(), key).Val()
	passed := time.Since(began) + time.Millisecond
	check.True(r, left <= ttl && left >= ttl-passed, "PTTL of %s is %v after at most %v, want %v", key, left, passed, ttl)
}

// tooLate reports whether more time has passed than a promise allows on a quiet machine. Only
// proofs run on one; otherwise it is false.
func tooLate(passed, limit time.Duration) bool { return proving() && passed > limit }

// parallel has the tests that beside has seen.
var parallel sync.Map

// beside runs a test that is not a subtest beside the others, however often it is called.
func beside(t *testing.T) {
	t.Helper()
	if _, again := parallel.LoadOrStore(t, true); !again && !strings.Contains(t.Name(), "/") {
		t.Parallel()
	}
}

// alone keeps beside from running a test, which measures, beside others.
func alone(t *testing.T) { parallel.Store(t, true) }

// inBubble runs f on the embedded server under a fake clock.
func inBubble(t *testing.T, f func(*rig)) {
	t.Helper()
	beside(t)
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		t.Cleanup(e.Close)
		r := newRig(t, e.Addr(), e.Dial)
		r.fake, r.embedded = true, e
		f(r)
	})
}

// onRedis runs f on a new redis-server.
func onRedis(t *testing.T, f func(*rig)) {
	t.Helper()
	beside(t)
	child := servertest.RedisForTest(t)
	f(newRig(t, child.Addr(), redis.NewDialer(&redis.Options{})))
}

// onBoth runs f under a fake clock and, in the long tier, on a redis-server.
func onBoth(t *testing.T, f func(*rig)) {
	t.Helper()
	onBothLong(t, alsoFake, f)
}

// alsoFake is why a test on a redis-server belongs to the long tier.
const alsoFake = "the same runs under a fake clock"

// onBothFirst runs f under a fake clock and on a redis-server. It is for the promises.
func onBothFirst(t *testing.T, f func(*rig)) {
	t.Helper()
	beside(t)
	t.Run("embedded", func(t *testing.T) { inBubble(t, f) })
	t.Run("redis-server", func(t *testing.T) { onRedis(t, f) })
}

// sub runs f as a subtest, where on runs it.
func sub(t *testing.T, name string, on func(*testing.T, func(*rig)), f func(*rig)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { on(t, f) })
}

// onBothLong is [onBoth] for tests that are long on a redis-server.
func onBothLong(t *testing.T, why string, f func(*rig)) {
	t.Helper()
	beside(t)
	t.Run("embedded", func(t *testing.T) { inBubble(t, f) })
	t.Run("redis-server", func(t *testing.T) {
		testtier.Long(t, why)
		onRedis(t, f)
	})
}

func newRig(t *testing.T, addr string, dial netfault.Dialer) *rig {
	r := &rig{tester: tester{T: t}, link: netfault.New(dial)}
	r.link.Undelayed = 4 // the handshake
	r.rdb = redis.NewClient(&redis.Options{Addr: addr, Dialer: dial, MaxRetries: -1, DisableIdentity: true})
	r.via = redis.NewClient(&redis.Options{Addr: addr, Dialer: r.link.Dial, DisableIdentity: true})
	t.Cleanup(func() {
		r.link.Thaw()
		r.via.Close()
		r.rdb.Close()
	})
	return r
}

// proving reports whether tests run at their full size, on a quiet machine.
func proving() bool { return testtier.Proving() }

// tries returns how often to repeat a test that must never fail: few times in the long tier,
// a quarter of them in the first one, or 1000 times if LOCKTOP_PROOF is set.
func tries(few int) int { return testtier.Size((few+3)/4, few, 1000) }

// eventRecorder collects events.
type eventRecorder struct {
	mu     sync.Mutex
	events []lock.Event
}

func (d *eventRecorder) write(e lock.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, e)
}

// renewed waits for n more renewals.
func (r tester) renewed(d *eventRecorder, n int) {
	r.Helper()
	before := d.count(lock.Renewed)
	r.until("renewals", func() bool { return d.count(lock.Renewed) >= before+n })
}

// count returns the number of events of a kind.
func (d *eventRecorder) count(kind lock.EventKind) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, e := range d.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// story returns the kinds of all events in order, as one line.
func (d *eventRecorder) story() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var kinds []lock.EventKind
	for _, e := range d.events {
		kinds = append(kinds, e.Kind)
	}
	return fmt.Sprint(kinds)
}

func TestMain(m *testing.M) {
	if job := os.Getenv(workerJob); job != "" {
		os.Exit(work(job, os.Getenv(workerAddr)))
	}
	logging.Disable() // go-redis logs every failed connection
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: testtier.Size(12, 32, 32)})
}

// until waits until true returns true: it asks every millisecond, and after 50 ms of a real clock
// less often.
func (r tester) until(what string, true func() bool) {
	r.Helper()
	began, pause := time.Now(), time.Millisecond
	for !true() {
		waited := time.Since(began)
		check.Require(r, waited <= 30*time.Second, "still waiting for %s", what)
		if waited > 50*time.Millisecond && !r.fake {
			pause = 10 * time.Millisecond
		}
		time.Sleep(pause)
	}
}

// untilListening waits until n clients listen for a release of the lock.
func (r *rig) untilListening(key string, n int64) {
	r.Helper()
	channel := "{" + key + "}:free"
	r.until("the waiters to listen", func() bool { return r.rdb.PubSubNumSub(ctx, channel).Val()[channel] == n })
}

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
