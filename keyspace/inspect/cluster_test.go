package inspect

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// scanners returns one scanner per node of a cluster, as this user. The scanners know of each other.
func scanners(t testing.TB, c *servertest.Cluster, user, pass string, o ScanOptions) (all []*Scanner) {
	t.Helper()
	clients := make(map[string]*redis.Client)
	o.Cluster = NewCluster(func(addr string) (Client, error) { return clients[addr], nil })
	for _, addr := range c.Addrs() {
		clients[addr] = connect(t, redis.Options{Addr: addr, MaxRetries: 1, Username: user, Password: pass})
		all = append(all, NewScanner(clients[addr], o))
	}
	return all
}

// tagged returns a function that makes keys in a slot. The low slots belong to the first master.
func tagged(t testing.TB, c *servertest.Cluster, slot int) func(i int) string {
	t.Helper()
	rdb := connect(t, redis.Options{Addr: c.Addrs()[0]})
	for from := 0; ; from += 1000 {
		p := rdb.Pipeline()
		var all []*redis.IntCmd
		for i := range 1000 {
			all = append(all, p.ClusterKeySlot(t.Context(), fmt.Sprint("t", from+i)))
		}
		check.Must(p.Exec(t.Context()))(t)
		for i, n := range all {
			if n.Val() == int64(slot) {
				return func(n int) string { return fmt.Sprintf("lock:{t%d}:%d", from+i, n) }
			}
		}
	}
}

// While a slot moves to another master, key by key, a scan of the cluster sees
// every lock in it exactly once.
func TestAScanMissesNoLockThatMoves(t *testing.T) {
	testtier.Long(t, "slots of a cluster move during scans")
	t.Parallel()
	const locks = 200
	c := servertest.ClusterForTest(t, servertest.ClusterOptions{Masters: 2})
	rdb := connect(t, redis.Options{Addr: c.Addrs()[0]})
	for _, node := range c.Nodes() {
		fillSlots(t, node.Addr(), 3000)
	}
	o := justTokens()
	o.RetryTimeout = time.Second
	all := scanners(t, c, "", "", o)
	f := NewMultiSource(func(context.Context) ([]NamedSource, error) {
		var stations []NamedSource
		for i, s := range all {
			stations = append(stations, NamedSource{Addr: c.Addrs()[i], Source: onceOver{s}})
		}
		return stations, nil
	}, MultiOptions{Mode: "cluster"})
	looks := 0
	for slot := range 8 {
		key := tagged(t, c, slot)
		for i := range locks {
			do(t, rdb, "SET", key(i), "token:"+fmt.Sprint(i), "PX", 3_600_000)
		}
		want := (slot + 1) * locks
		moved := make(chan error, 1)
		go func() { moved <- moveSlowly(t.Context(), c, slot) }()
		for over := false; !over; looks++ {
			select {
			case err := <-moved:
				over = true
				check.NoError(t, err)
			default:
			}
			s, err := f.Snapshot(t.Context())
			check.NoError(t, err)
			check.True(t, s.Complete && len(s.Locks) == want, "complete %v, %d locks, want %d; %q", s.Complete, len(s.Locks), want, s.Problems)
			for i, sc := range all {
				read, err := sc.ReadKey(t.Context(), key(i))
				check.True(t, err == nil && len(read.Locks) == 1 && read.Locks[0].Holders[0].ID == "token:"+fmt.Sprint(i), "%s: read %+v, %v", key(i), read, err)
			}
		}
	}
	t.Logf("%d looks", looks)
}

// moveSlowly moves a slot to the second master, one key at a time.
func moveSlowly(ctx context.Context, c *servertest.Cluster, slot int) error {
	m, err := c.StartMigration(ctx, slot, c.Nodes()[1])
	if err != nil {
		return err
	}
	defer m.Close()
	for n := 1; n > 0; {
		if n, err = m.MoveKeys(ctx, 1); err != nil {
			return err
		}
	}
	return m.Finish(ctx)
}

// onceOver makes a source of a scanner.
type onceOver struct{ *Scanner }

func (l onceOver) Snapshot(ctx context.Context) (keyspace.Snapshot, error) { return l.Scan(ctx) }

// fillSlots sets ordinary keys in slots of a node.
func fillSlots(t testing.TB, addr string, n int) {
	t.Helper()
	rdb := connect(t, redis.Options{Addr: addr})
	p := rdb.Pipeline()
	for i := range 2 * n {
		p.Set(t.Context(), fmt.Sprintf("ordinary:%d", i), "value", time.Hour)
	}
	_, _ = p.Exec(t.Context()) // half of the keys belong to the other node
	check.Require(t, rdb.DBSize(t.Context()).Val() >= int64(n)/2, "there are too few keys")
}

// A user without permission for ASKING is told how many keys could not be read.
func TestWithoutAskingTheMissingKeysAreReported(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	t.Parallel()
	c := servertest.ClusterForTest(t, servertest.ClusterOptions{Masters: 2})
	key := tagged(t, c, 0)
	rdb := connect(t, redis.Options{Addr: c.Addrs()[0]})
	for i := range 5 {
		do(t, rdb, "SET", key(i), "token:"+fmt.Sprint(i), "PX", 3_600_000)
	}
	c.HalfMigrationForTest(t, 0, c.Nodes()[1], 2)
	for _, addr := range c.Addrs() {
		do(t, connect(t, redis.Options{Addr: addr}), "ACL", "SETUSER", "reader", "on", ">c4nary", "~*", "+@all", "-asking")
	}
	all := scanners(t, c, "reader", "c4nary", justTokens())
	s, err := all[1].Scan(t.Context())
	said := strings.Join(s.Problems, "; ")
	check.True(t, err == nil && !s.Complete && len(s.Locks) == 0 && strings.Contains(said, "2 keys could not be read while moving") &&
		strings.Contains(said, "may not run ASKING"), "complete %v, %d locks, %q, %v", s.Complete, len(s.Locks), said, err)
	s, err = all[0].Scan(t.Context())
	check.True(t, err == nil && len(s.Locks) == 3 && s.Complete, "on the other: complete %v, %d locks, %q, %v", s.Complete, len(s.Locks), s.Problems, err)
}

// In a cluster that is down because a master is missing, SCAN lists keys that
// cannot be read. The scan ends soon and sends few requests.
func TestAClusterThatIsDownIsNotAskedForEver(t *testing.T) {
	testtier.Long(t, "it starts clusters that go down")
	t.Parallel()
	c := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	key := tagged(t, c, 0)
	rdb := connect(t, redis.Options{Addr: c.Addrs()[0]})
	do(t, rdb, "SET", key(0), "token:0")
	c.KillForTest(t, c.Nodes()[1])
	do(t, rdb, "CONFIG", "RESETSTAT")
	o := justTokens()
	o.RetryTimeout = 500 * time.Millisecond
	began := time.Now()
	s, err := scanners(t, c, "", "", o)[0].Scan(t.Context())
	check.True(t, err != nil && strings.Contains(err.Error(), "CLUSTERDOWN") && !s.Complete && s.Cost.Keys == 1, "%+v, %v", s, err)
	took := time.Since(began)
	check.True(t, !testtier.Proving() || took <= 2*time.Second, "it takes %v", took)
	check.AtMost(t, called(t, rdb, "scan"), 10, "SCANs")
}

// Two watchers read a lock while its slot moves. They report its end once, whichever of
// them reads first that the lock is gone.
func TestTheEndOfALockThatMovesIsReportedOnce(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	began := time.Now()
	for name, end := range map[string]func(from, to *Watcher, reads func(*Watcher, string)){
		"the old master's watcher reads last": func(from, to *Watcher, reads func(*Watcher, string)) {
			reads(to, "token")
			reads(from, "")
			reads(to, "")
		},
		"it reads last, and the other one has ended": func(from, to *Watcher, reads func(*Watcher, string)) {
			reads(to, "token")
			reads(to, "")
			reads(from, "")
		},
		"it reads first, and the other read began before": func(from, to *Watcher, reads func(*Watcher, string)) {
			to.times.readStart = began
			reads(from, "")
			reads(to, "token")
		},
		"both read the next holder, and its end": func(from, to *Watcher, reads func(*Watcher, string)) {
			reads(to, "next")
			reads(from, "next")
			check.True(t, len(to.unreported.events) == 2 && len(from.unreported.events) == 0, "the next holder: %v and %v", to.unreported.events, from.unreported.events)
			to.unreported.events = nil
			reads(to, "")
		},
	} {
		c := NewCluster(nil)
		from, to := NewWatcher(NewScanner(rdb, ScanOptions{Cluster: c})), NewWatcher(NewScanner(rdb, ScanOptions{Cluster: c}))
		reads := func(w *Watcher, token string) {
			var read *candidate
			if token != "" {
				held := found(keyspace.Lock{Key: "lock:a", Node: w.scanner.node, Holders: []keyspace.Holder{{ID: token}}})
				held.format, read = new(keyspace.Format), &held
			}
			w.times.readEnd = time.Now()
			check.NoError(t, w.reconcileKey(t.Context(), "lock:a", read, new(changes), false))
		}
		reads(from, "token")
		from.unreported.events = nil
		end(from, to, reads)
		var ends int
		for _, w := range []*Watcher{from, to} {
			w.dropMoved()
			for _, e := range w.unreported.events {
				check.True(t, e.Kind.Ends(), "%s: it is also %s", name, e.Kind)
				ends++
			}
			_, known := w.locks.known.get("lock:a")
			check.True(t, !known, "%s: a watcher still has the lock", name)
		}
		check.True(t, ends == 1, "%s: %d ends", name, ends)
		to.times.readStart = time.Now()
		reads(to, "token")
		check.True(t, len(to.unreported.events) > 0, "%s: the next hold is not reported", name)
	}
}
