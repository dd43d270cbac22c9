package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock"
)

// clusterRig is a Redis cluster for tests.
type clusterRig struct {
	*rig
	nodes *servertest.Cluster
	rdb   *redis.ClusterClient // the test's own client, and the argument of lock.New
}

func onCluster(t *testing.T, o servertest.ClusterOptions) *clusterRig {
	t.Helper()
	beside(t)
	r := &clusterRig{rig: &rig{tester: tester{T: t}}, nodes: servertest.ClusterForTest(t, o)}
	r.rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.nodes.Addrs()})
	t.Cleanup(func() { r.rdb.Close() })
	return r
}

// client returns a client that the test closes at its end.
func (r *clusterRig) client(cfg lock.Config) *client {
	r.Helper()
	return r.over(r.rdb, cfg)
}

// node returns a client of one node, and the node's id.
func (r *clusterRig) node(addr string) (rdb *redis.Client, id string) {
	r.Helper()
	rdb = r.direct(addr)
	id = check.Must(rdb.Do(ctx, "cluster", "myid").Text())(r)
	return rdb, id
}

// master returns the address of the master that has a key.
func (r *clusterRig) master(key string) string {
	r.Helper()
	rdb := check.Must(r.rdb.MasterForKey(ctx, key))(r)
	return rdb.Options().Addr
}

// Scenarios 105 (no CROSSSLOT) and 106: for every name, all keys of the lock are in
// its slot, and a release on any node wakes the waiters.
func TestEveryKindWorksOnAClusterUnderEveryName(t *testing.T) {
	testtier.Long(t, "it waits for seconds on real servers")
	r := onCluster(t, servertest.ClusterOptions{})
	ours, theirs := r.client(lock.Config{}), r.client(lock.Config{})
	type handOver struct {
		lease *lock.Lease
		next  *await
	}
	handOvers, masters := map[string]handOver{}, map[string]bool{}
	for _, kind := range []string{"mutex", "reentrant", "fair", "semaphore"} {
		locker, o := kinds[kind], lock.Options{TTL: time.Minute, Fence: kind != "semaphore"}
		for _, name := range []string{"orders", "stock", "prices", "{test}:abc:key", "a{b}{c}", "a{b", "a{{b}}c", "ä ö"} {
			key := name + ":" + kind
			masters[r.master(key)] = true
			lease := r.lock(locker(ours, key, o))
			check.ErrorIs(t, tried(locker(theirs, key, o).TryLock(ctx)), lock.ErrHeld, "%s", key)
			handOvers[key] = handOver{lease, lockAsync(ctx, locker(theirs, key, o))}
		}
	}
	for key, h := range handOvers {
		r.until("a waiter that listens", func() bool {
			return slices.ContainsFunc(r.channels(), func(channel string) bool { return strings.Contains(channel, key) })
		})
		r.must(h.lease.Extend(ctx, 2*time.Minute))
		r.must(h.lease.Unlock(ctx))
		after := r.won(h.next)
		check.True(t, strings.HasSuffix(key, "semaphore") || fenceOf(h.lease) == 1 && fenceOf(after) == 2, "%s: fences %d and %d, want 1 and 2", key, fenceOf(h.lease), fenceOf(after))
		r.must(after.Unlock(ctx))
	}
	r.until("the listeners to go", func() bool { return len(r.channels()) == 0 })
	check.Equal(t, len(masters), 3, "masters of 3 with locks")
}

// channels returns the channels that have subscribers, on all nodes.
func (r *clusterRig) channels() []string {
	r.Helper()
	var all []string
	for _, addr := range r.nodes.Addrs() {
		rdb := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
		all = append(all, rdb.PubSubChannels(ctx, "*").Val()...)
		rdb.Close()
	}
	return all
}

// Scenario 106: a name whose slot no other name can share.
func TestANameWithoutRoomForCompanionsIsRefusedOnAClusterWhereTheyAreNeeded(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	r := onCluster(t, servertest.ClusterOptions{Masters: 1})
	alone := r.over(r.direct(servertest.RedisForTest(t).Addr()), lock.Config{})
	c := r.client(lock.Config{})
	for _, key := range []string{"a}b", "{}a", "}{", ""} {
		for name, l := range map[string]lock.Locker{
			"fair":   c.Fair(key, lock.Options{}),
			"fenced": c.Mutex(key, lock.Options{Fence: true}),
		} {
			check.ErrorIs(t, tried(l.TryLock(ctx)), lock.ErrArgument, "%s %q", name, key)
		}
		check.ErrorIs(t, c.Semaphore(key, 2, lock.Options{}).SetLimit(ctx, 3), lock.ErrArgument, "the limit of %q", key)
		for name, l := range map[string]lock.Locker{
			"without companions":    c.Mutex(key, lock.Options{}),
			"semaphore":             c.Semaphore(key+"s", 2, lock.Options{}),
			"fair on one server":    alone.Fair(key, lock.Options{}),
			"reentrant, no cluster": alone.Reentrant(key+"r", lock.Options{Fence: true}),
		} {
			lease, err := l.TryLock(ctx)
			if err != nil {
				t.Errorf("%s %q: %v", name, key, err)
				continue
			}
			r.must(lease.Unlock(ctx))
		}
	}
}

// Writers of such a name cannot register: a release wakes all of them. A waiting one renews
// its claim.
func TestWritersOfANameWithoutRoomForCompanionsAreWokenTogether(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	r := onCluster(t, servertest.ClusterOptions{Masters: 1})
	read := r.locked(r.client(lock.Config{}).RW("a}b", lock.Options{}).Reader())
	var writers []<-chan error
	for range 3 {
		writers = append(writers, passAsync(r.client(lock.Config{}).RW("a}b", lock.Options{}).Writer()))
	}
	claim := func() string { return r.rdb.HGet(ctx, "a}b", "q").Val() }
	r.until("a writer to claim", func() bool { return claim() != "" })
	deadline, owner, _ := strings.Cut(claim(), ":")
	for renewals := 0; renewals < 3; {
		r.until("the claim to change", func() bool { return claim() != deadline+":"+owner })
		until, by, _ := strings.Cut(claim(), ":")
		if by == owner {
			renewals++
		}
		deadline, owner = until, by
	}
	ear := r.rdb.Subscribe(ctx, "{a}b}:free")
	defer ear.Close()
	check.Must(ear.Receive(ctx))(r) // the confirmation
	r.must(read.Unlock(ctx))
	check.Must(ear.ReceiveMessage(ctx))(r)
	for _, passed := range writers {
		r.must(<-passed)
	}
}

// move moves one slot from one node to another.
type move struct {
	r            *clusterRig
	slot         int64
	source, dest *redis.Client
	from, to     string // node ids
}

// moving starts to move the slot of a key.
func (r *clusterRig) moving(key string) *move {
	r.Helper()
	m := &move{r: r, slot: r.rdb.ClusterKeySlot(ctx, key).Val()}
	m.source, m.from = r.node(r.master(key))
	for _, key := range []string{"a", "b", "c", "d", "e", "f"} { // on three masters
		if addr := r.master(key); addr != m.source.Options().Addr {
			m.dest, m.to = r.node(addr)
		}
	}
	r.must(m.dest.Do(ctx, "cluster", "setslot", m.slot, "importing", m.from).Err())
	r.must(m.source.Do(ctx, "cluster", "setslot", m.slot, "migrating", m.to).Err())
	return m
}

// carry moves one key.
func (m *move) carry(key string) {
	m.r.Helper()
	host, port := "127.0.0.1", ""
	_, err := fmt.Sscanf(m.dest.Options().Addr, "127.0.0.1:%s", &port)
	m.r.must(err)
	m.r.must(m.source.Migrate(ctx, host, port, key, 0, 5*time.Second).Err())
}

// finish moves the remaining keys and the slot.
func (m *move) finish() {
	m.r.Helper()
	for _, key := range m.source.ClusterGetKeysInSlot(ctx, int(m.slot), 100).Val() {
		m.carry(key)
	}
	for _, node := range []*redis.Client{m.dest, m.source} {
		m.r.must(node.Do(ctx, "cluster", "setslot", m.slot, "node", m.to).Err())
	}
}

// Scenario 105: MOVED, ASK and TRYAGAIN.
func TestLocksAreTakenKeptAndReleasedWhileTheirSlotMoves(t *testing.T) {
	testtier.Long(t, "slots of a cluster move")
	r := onCluster(t, servertest.ClusterOptions{})
	var d eventRecorder
	c := r.client(lock.Config{Observe: d.write})
	often := lock.Options{Fence: true, Renew: lock.Renew{Every: 20 * time.Millisecond}}
	kept := r.lock(c.Mutex("{o}kept", often))
	left := r.lock(c.Reentrant("{o}left", often))
	m := r.moving("{o}kept")
	r.renewed(&d, 4)
	m.carry("{o}kept") // ASK
	m.carry("{o}left")
	r.renewed(&d, 4)
	r.must(left.Unlock(ctx))
	_, err := c.As("other").Mutex("{o}kept", lock.Options{}).TryLock(ctx)
	check.ErrorIs(t, err, lock.ErrHeld)

	// Redis 6.0 answers ASK if only some keys are on this node; then the other node
	// answers TRYAGAIN.
	err = m.source.EvalSha(ctx, "none", []string{"{o}kept", "{o}kept::fence"}).Err()
	check.Require(t, redis.HasErrorPrefix(err, "TRYAGAIN") || redis.HasErrorPrefix(err, "ASK "), "the staging is wrong: %v", err)
	waiting := lockAsync(ctx, c.Reentrant("{o}left", often)) // one of its keys is on each node
	check.ErrorIs(t, within(30*time.Millisecond, c.Mutex("{o}kept", often).Lock), context.DeadlineExceeded)
	r.renewed(&d, 4)
	m.finish() // MOVED
	check.Equal(t, fenceOf(r.won(waiting)), 2, "fence")
	r.renewed(&d, 4)
	check.True(t, kept.Valid(), "the lease was lost on the way")
	r.must(kept.Unlock(ctx))
	again := r.locked(c.Mutex("{o}kept", often))
	check.Equal(t, fenceOf(again), 2, "fence")
}

// Scenario 104.
func TestALeaseOutlivesTheMasterOfItsClusterSlot(t *testing.T) {
	testtier.Long(t, "a cluster replaces a master")
	r := onCluster(t, servertest.ClusterOptions{Replicas: 1})
	var d eventRecorder
	c, other := r.client(lock.Config{Observe: d.write}), r.client(lock.Config{})
	o := lock.Options{TTL: 10 * time.Second, Renew: lock.Renew{Every: 200 * time.Millisecond}}
	lease := r.lock(c.Mutex("orders", o))
	next := passAsync(other.Mutex("orders", o))
	r.until("a waiter that listens", func() bool { return len(r.channels()) > 0 })
	master := r.master("orders")
	rdb, _ := r.node(master)
	p := rdb.Pipeline() // WAIT waits for the writes of its own connection
	p.Set(ctx, "{orders}:after", 1, time.Minute)
	n := p.Do(ctx, "WAIT", 1, 5000)
	_, err := p.Exec(ctx)
	check.Require(t, err == nil && n.Val() == int64(1), "the replica lags: %v", err)
	r.must(r.nodes.Node(master).Kill())
	killed := time.Now()
	r.renewed(&d, 2) // by the new master
	t.Logf("renewed %v after the kill", time.Since(killed))
	check.Require(t, lease.Valid(), "the lease is over: %v", context.Cause(lease.Context()))
	r.must(lease.Unlock(ctx))
	r.must(<-next)
}

// go-redis appends the nodes that it finds to the slice of addresses in its options. Two
// clients with one slice would write to the same memory.
func TestTheCallersAddressesAreNotWrittenTo(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	r := onCluster(t, servertest.ClusterOptions{})
	addrs := append(make([]string, 0, 8), r.nodes.Addrs()[0])
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { rdb.Close() })
	c := r.over(rdb, lock.Config{})
	for i := range 10 {
		r.must(r.locked(c.Mutex(fmt.Sprint("orders", i), lock.Options{})).Unlock(ctx))
	}
	for _, addr := range addrs[1:cap(addrs)] {
		check.Equal(t, addr, "", "written behind the caller's addresses")
	}
}

// Scenario 107.
func TestLocksAreReadFromMastersOnly(t *testing.T) {
	testtier.Long(t, "it starts a cluster with replicas")
	r := onCluster(t, servertest.ClusterOptions{Masters: 1, Replicas: 1})
	for name, o := range map[string]redis.ClusterOptions{
		"read only":  {ReadOnly: true},
		"by latency": {RouteByLatency: true},
		"randomly":   {RouteRandomly: true},
	} {
		o.Addrs = r.nodes.Addrs()
		rdb := redis.NewClusterClient(&o)
		c := r.open(rdb, lock.Config{})
		for i := range 20 {
			m := c.Mutex(fmt.Sprint("orders", i), lock.Options{})
			lease := r.locked(m)
			check.ErrorIs(t, tried(m.TryLock(ctx)), lock.ErrHeld)
			r.must(lease.Unlock(ctx))
		}
		r.must(c.Close())
		r.must(rdb.Close())
		for _, addr := range r.nodes.Addrs() {
			node, _ := r.node(addr)
			// A connection that has received READONLY still answers after its server
			// has become a replica.
			check.True(t, node.InfoMap(ctx, "commandstats").Val()["Commandstats"]["cmdstat_readonly"] == "",
				"%s: node %s received READONLY", name, addr)
		}
	}
}

// Guarantee 7: go-redis does not send a lock's command twice. A second release would
// find no lock and report a loss.
func TestAReleaseWhoseReplyIsLostIsNotSentAgainByTheClustersClient(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	r := onCluster(t, servertest.ClusterOptions{Masters: 1})
	link := netfault.New(redis.NewDialer(&redis.Options{}))
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: r.nodes.Addrs(), Dialer: link.Dial})
	t.Cleanup(func() { rdb.Close() })
	var d eventRecorder
	c := r.over(rdb, lock.Config{Observe: d.write})
	r.must(pass(c.Mutex("warm", lock.Options{}))) // the scripts are loaded from now on
	lease := r.lock(c.Mutex("orders", lock.Options{}))
	link.FreezeReplies()
	unlocked := inBackground(func() error { return lease.Unlock(ctx) })
	r.until("the server to act", func() bool { return r.rdb.Exists(ctx, "orders").Val() == 0 })
	link.Cut()
	link.Thaw()
	err := <-unlocked
	check.True(t, err != nil && !errors.Is(err, lock.ErrLost), "got %v, want a broken connection", err)
	check.Equal(t, d.count(lock.Lost), 0, "the release was reported as a loss")
}
