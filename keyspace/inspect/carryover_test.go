package inspect

import (
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
)

// pipedServer returns an embedded server for a bubble, and a client that has this address of it.
func pipedServer(t *testing.T, addr string) (*server.Embedded, *redis.Client) {
	e := server.NewPiped()
	t.Cleanup(e.Close)
	return e, connect(t, redis.Options{Addr: addr, Dialer: e.Dial, MaxRetries: -1, DialerRetries: 1})
}

// byKey lists the kinds of the events of each lock.
func byKey(events []keyspace.Event) map[string][]keyspace.EventKind {
	all := make(map[string][]keyspace.EventKind)
	for _, e := range events {
		all[e.Lock.Key] = append(all[e.Lock.Key], e.Kind)
	}
	return all
}

// A server with other data takes the place of a server that has died. Its watcher knows
// the locks of the old server.
func TestAFailoverIsNotTheBeginOfTheLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before, old := pipedServer(t, "10.0.0.1:6379")
		_, rdb := pipedServer(t, "10.0.0.2:6379")
		o := justTokens()
		o.Carryover = new(Carryover)

		w := follow(old, o)
		do(t, old, "SET", "standing", "token:0", "PX", 3_600_000)
		until(t, w, complete)
		for _, both := range []*redis.Client{old, rdb} {
			do(t, both, "SET", "kept", "token:kept", "PX", 600_000)
			do(t, both, "SET", "confirmed", "maybe:1", "PX", 200_000)
			do(t, both, "SET", "standing", "token:0", "PX", 3_600_000)
		}
		for key, ttl := range map[string]int{"lost": 600_000, "lost forever": 0, "expired": 20_000, "late": 600_000, "taken": 600_000} {
			do(t, old, "SET", key, "token:"+key)
			if ttl > 0 {
				do(t, old, "PEXPIRE", key, ttl)
			}
		}
		begin := next(t, w).At
		for range 5 { // a value that proves nothing: its renewals do
			time.Sleep(time.Second)
			do(t, old, "PEXPIRE", "confirmed", 200_000)
			next(t, w)
		}
		do(t, old, "PEXPIRE", "kept", 600_000)
		do(t, rdb, "PEXPIRE", "kept", 600_000)
		known := keys(next(t, w))
		check.Require(t, slices.Contains(known, "confirmed"), "known before: %q", known)
		do(t, old, "DEL", "late")
		for ended := false; !ended; { // takes the events, as a watcher in the background does
			events, _, err := w.Next(t.Context())
			check.NoError(t, err)
			ended = len(byKey(events)["late"]) > 0
		}
		do(t, old, "SET", "unseen", "token:unseen", "PX", 600_000)
		before.Close()
		time.Sleep(10 * time.Second)
		_, err := w.Snapshot(t.Context())
		check.Require(t, err != nil, "a dead server answers")
		w.Close()

		time.Sleep(20 * time.Second)
		do(t, rdb, "SET", "taken", "token:next", "PX", 600_000)
		do(t, rdb, "SET", "new", "token:new", "PX", 600_000)
		w = watch(t, rdb, o)
		now := next(t, w)
		want := map[string][]keyspace.EventKind{
			"lost": {keyspace.Lost}, "lost forever": {keyspace.Lost}, "expired": {keyspace.Expired},
			"taken": {keyspace.Lost, keyspace.Discovered}, "new": {keyspace.Discovered},
		}
		got := byKey(now.Events)
		check.True(t, maps.EqualFunc(got, want, slices.Equal), "events %v, want %v", got, want)
		for _, e := range now.Events {
			check.True(t, e.Kind != keyspace.Lost || e.Held.Round(time.Second) == 35*time.Second, "%s was held for %v when it was missed, want 35 s", e.Lock.Key, e.Held)
		}
		i := slices.IndexFunc(now.Locks, func(l *keyspace.Lock) bool { return l.Key == "kept" })
		l := now.Locks[i]
		check.True(t, l.Holders[0].Since.Equal(begin) && l.Renewals == 1 && l.Node == "10.0.0.2:6379", "the lock that is kept has lost its past: %+v", l)
		check.DeepEqual(t, words(next(t, w).Events), []string(nil), "again, the events are")
	})
}

func TestTheEventsOfAClosedWatcherAreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, rdb := pipedServer(t, "10.0.0.1:6379")
		o := justTokens()
		o.Carryover = new(Carryover)
		do(t, rdb, "SET", "a", "token:a", "PX", 10_000)
		w := StartWatcher(follow(rdb, o))
		for s, err := w.Snapshot(t.Context()); err != nil || !s.Complete; s, err = w.Snapshot(t.Context()) {
			time.Sleep(time.Second)
		}
		time.Sleep(20 * time.Second)
		w.Close()
		other := o
		other.DB = 1
		elsewhere := follow(rdb, other)
		events := next(t, elsewhere).Events
		check.True(t, !slices.ContainsFunc(events, func(e keyspace.Event) bool { return e.Kind == keyspace.Expired }), "another database has the events %v", words(events))
		elsewhere.Close()
		again := watch(t, rdb, o)
		check.DeepEqual(t, words(next(t, again).Events), []string{"expired token:a"}, "the next watcher reports")
	})
}

// A replica is promoted. A lock that it had received was released there, and not lost.
func TestALockThatTheReplicaHadReceivedWasNotLost(t *testing.T) {
	t.Parallel()
	rig := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{})
	replica := rig.Replicas()[0]
	old, rdb := connect(t, redis.Options{Addr: rig.Master().Addr()}), connect(t, redis.Options{Addr: replica.Addr()})
	o := justTokens()
	o.Carryover = new(Carryover)
	one := old.Conn() // WAIT waits for the writes of its own connection
	check.NoError(t, one.Set(t.Context(), "received", "token:1", 600*time.Second).Err())
	w := follow(old, o)
	followed(t, w, func(s keyspace.Snapshot) bool { return len(s.Locks) == 1 })
	offsets := &w.replication.offsets // how far the history of writes was at each sample
	samples := len(*offsets)
	followed(t, w, func(keyspace.Snapshot) bool { return len(*offsets) > samples })
	check.Equal(t, check.Must(one.Wait(t.Context(), 1, 10*time.Second).Result())(t), 1, "the replicas that have it")
	check.True(t, one.Close() == nil && rig.Promote(t.Context(), replica) == nil, "the replica is no master")
	do(t, old, "SET", "unknown to the replica", "token:2", "PX", 600_000)
	followed(t, w, func(s keyspace.Snapshot) bool { return len(s.Locks) == 2 })
	samples = len(*offsets)
	followed(t, w, func(s keyspace.Snapshot) bool { return len(*offsets) > samples || s.Nodes[0].Replicas == 0 })
	w.Close()
	do(t, rdb, "DEL", "received")
	w = watch(t, rdb, o)
	want := map[string][]keyspace.EventKind{"received": {keyspace.Vanished}, "unknown to the replica": {keyspace.Lost}}
	now := next(t, w)
	got := byKey(now.Events)
	check.True(t, maps.EqualFunc(got, want, slices.Equal), "events %v, want %v", got, want)
	do(t, rdb, "SET", "unknown to the replica", "token:3", "PX", 600_000)
	now = followed(t, w, func(s keyspace.Snapshot) bool { return len(s.Locks) == 1 })
	check.True(t, slices.ContainsFunc(keyspace.ServerFindings(now), func(f keyspace.Finding) bool {
		return f.ID == "locks-lost" && strings.Contains(f.Text, "unknown to the replica of token:2") && strings.Contains(f.Text, "taken by token:3")
	}), "the findings are %v", keyspace.ServerFindings(now))
}

// A master becomes a replica and takes over the data of the new master: that empties its
// database, but nobody has emptied the locks.
func TestAMasterThatBecomesAReplicaFlushesNothing(t *testing.T) {
	t.Parallel()
	first, second := servertest.RedisForTest(t), servertest.RedisForTest(t, "--repl-diskless-sync-delay", "0")
	rdb, other := connect(t, redis.Options{Addr: first.Addr()}), connect(t, redis.Options{Addr: second.Addr()})
	l := started(t, rdb, justTokens())
	for _, both := range []*redis.Client{rdb, other} {
		do(t, both, "SET", "lock:kept", "token:1", "PX", 600_000)
	}
	do(t, rdb, "SET", "lock:lost", "token:2", "PX", 600_000)
	l.wait(t, "the locks", func() bool { return l.has(keyspace.Acquired, "lock:lost")() && l.has(keyspace.Acquired, "lock:kept")() })
	host, port, _ := net.SplitHostPort(second.Addr())
	do(t, rdb, "REPLICAOF", host, port)
	l.wait(t, "the loss", l.has(keyspace.Lost, "lock:lost"))
	for _, e := range l.all() {
		check.False(t, e.Kind == keyspace.Flushed || e.Lock.Key == "lock:kept" && (e.Kind.Ends() || e.Kind == keyspace.Discovered), "%s is %s", e.Lock.Key, e.Kind)
	}
}

// A full sync brings the locks of the master to a new replica. They were acquired before, at an unknown time. So were
// those that come to a replica under a name that no lock of it had.
func TestALockThatASyncBringsWasNotAcquired(t *testing.T) {
	t.Parallel()
	master, replica := servertest.RedisForTest(t, "--repl-diskless-sync-delay", "0"), servertest.RedisForTest(t)
	one, rdb := connect(t, redis.Options{Addr: master.Addr()}), connect(t, redis.Options{Addr: replica.Addr()})
	do(t, one, "SET", "lock:old", "token:1")
	l := started(t, rdb, justTokens())
	do(t, rdb, "SET", "lock:own", "token:2", "PX", 600_000)
	l.wait(t, "its own lock", l.has(keyspace.Acquired, "lock:own"))
	host, port, _ := net.SplitHostPort(master.Addr())
	do(t, rdb, "REPLICAOF", host, port)
	l.wait(t, "the lock of the master", l.has(keyspace.Discovered, "lock:old"))
	do(t, one, "SET", "lock:new", "token:3")
	l.wait(t, "a new lock", l.has(keyspace.Acquired, "lock:new"))
	for _, e := range l.all() {
		check.False(t, e.Lock.Key == "lock:old" && e.Kind == keyspace.Acquired, "the old lock is told as acquired")
	}
}
