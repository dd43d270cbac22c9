package inspect

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// repeat sends commands again and again until the test ends.
func repeat(t testing.TB, rdb *redis.Client, every time.Duration, commands ...func() []any) {
	t.Helper()
	tick := time.NewTicker(every)
	untilTheEnd(t, func(ctx context.Context) {
		for _, next := range commands {
			argv := next()
			err := rdb.Do(ctx, argv...).Err()
			check.True(t, err == nil || err == redis.Nil || ctx.Err() != nil, "%q: %v", argv, err)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	})
}

// command returns a function for repeat that always returns the same command.
func command(argv ...any) func() []any { return func() []any { return argv } }

// observe watches the locks of a server until a condition holds.
func observe(t testing.TB, rdb *redis.Client, o ScanOptions, so func(keyspace.Snapshot) bool) keyspace.Snapshot {
	t.Helper()
	b := inBackground(t, rdb, o)
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		s, err := b.Snapshot(t.Context())
		if err == nil && so(s) {
			return s
		}
		check.Require(t, !time.Now().After(deadline), "%v, asked for are %q, of %d: %+v", err, askedFor(s), len(s.Locks), s.Watch)
	}
}

// askedFor returns the keys of the locks that another client asks for.
func askedFor(s keyspace.Snapshot) (all []string) {
	for _, l := range s.Locks {
		if l.Asked(s.At) {
			all = append(all, l.Key)
		}
	}
	return all
}

// requestOptions returns options with formats that store no waiters, one that does, and one that
// stores some; the value of a lock may be a number.
func requestOptions() ScanOptions {
	shown := tokens()
	shown.Name, shown.ShowsWaiters = "shown", true
	shown.Match = func(key string) bool { return strings.HasPrefix(key, "shown:") }
	some := shown
	some.Name, some.MayPoll = "some", true
	some.Match = func(key string) bool { return strings.HasPrefix(key, "some:") }
	number := tokens()
	number.Name, number.Probe = "number", nil
	number.Match = func(key string) bool { return strings.HasPrefix(key, "number:") }
	number.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		return keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Value, Depth: 1}}}, keyspace.Certain
	}
	return ScanOptions{Formats: []keyspace.Format{shown, some, number, tokens(), elementsOf("hash")}, OwnReads: new(OwnReads)}
}

// What waiting clients send touches the key. What does not is not seen, and what the holder
// changes, hands over, or this process reads is no request. Keys with the same number below 10,000 have one idle time.
func TestRequestsOfOtherClientsForAHeldLockAreSeen(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	other := connect(t, redis.Options{Addr: rdb.Options().Addr})
	for _, key := range []string{"set", "eval", "get", "exists", "quiet", "renewed", "read", "again"} {
		do(t, rdb, "SET", "lock:"+key, "token:"+key, "PX", 600_000)
	}
	for _, key := range []string{"shown:a", "some:a", "some:b"} {
		do(t, rdb, "SET", key, "token:a", "PX", 600_000)
	}
	for key, value := range map[string]string{"number:a": "7", "number:same": "7", "number:b": "10000", "number:c": "10001"} {
		do(t, rdb, "SET", key, value, "PX", 600_000)
	}
	do(t, rdb, "HSET", "lock:hash", "holder", "1")
	repeat(t, other, 50*time.Millisecond,
		command("SET", "lock:set", "token:2", "NX", "PX", 1000),
		command("EVAL", "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 1000)", 1, "lock:eval", "token:2"),
		command("GET", "lock:get"), command("HEXISTS", "lock:hash", "waiter"), command("GET", "shown:a"), command("GET", "some:a"), command("GET", "number:a"), command("GET", "number:b"), command("EXISTS", "lock:exists"),
		command("PEXPIRE", "lock:renewed", 600_000), command("SET", "lock:handed", "token:a", "PX", 600_000), command("SET", "lock:handed", "token:b", "PX", 600_000))
	o := requestOptions()
	scanner := NewScanner(rdb, o)
	s := observe(t, rdb, o, func(s keyspace.Snapshot) bool {
		check.Must(scanner.ReadKey(t.Context(), "lock:read"))(t)
		check.Must(scanner.ReadLock(t.Context(), "lock:again"))(t)
		return len(askedFor(s)) >= 6
	})
	got, want := askedFor(s), []string{"lock:eval", "lock:get", "lock:hash", "lock:set", "number:b", "some:a"}
	check.True(t, slices.Equal(got, want), "asked for are %q, want %q", got, want)
	check.Equal(t, s.Nodes[0].AskBlind, "", "requests cannot be seen")
}

func TestItSaysWhyRequestsCannotBeSeen(t *testing.T) {
	t.Parallel()
	admin := servertest.RedisForTest(t)
	rdb := connect(t, redis.Options{Addr: admin.Addr()})
	do(t, rdb, "SET", "lock:a", "token:a", "PX", 600_000)
	blind := func(why string) func(keyspace.Snapshot) bool {
		return func(s keyspace.Snapshot) bool {
			return s.Watch.Mode == keyspace.Push && strings.Contains(s.Nodes[0].AskBlind, why) &&
				slices.ContainsFunc(s.Watch.Limitations, func(l string) bool { return strings.Contains(l, why) })
		}
	}
	t.Run("LFU", func(t *testing.T) {
		do(t, rdb, "CONFIG", "SET", "maxmemory-policy", "allkeys-lfu")
		defer do(t, rdb, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		observe(t, rdb, justTokens(), blind("maxmemory-policy allkeys-lfu"))
	})
	t.Run("permission", func(t *testing.T) {
		user := userOf(t, rdb, append(slices.Clone(readOnly), "-object", "+client", "&*", "+subscribe", "+psubscribe")...)
		observe(t, user, justTokens(), blind("OBJECT IDLETIME"))
	})
}

// What another locktop reads is no request, and none is known while it reads. A waiter is seen again
// when it is away.
func TestReadsOfAnotherLocktopAreNoRequests(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	do(t, rdb, "SET", "lock:a", "token:a", "PX", 600_000)
	waiter := connect(t, redis.Options{Addr: rdb.Options().Addr, ClientName: "waiter"})
	repeat(t, waiter, 50*time.Millisecond, command("GET", "lock:a"))
	t.Run("another locktop", func(t *testing.T) {
		another := connect(t, redis.Options{Addr: rdb.Options().Addr, ClientName: "locktop:1f2e3d4c"})
		repeat(t, another, 50*time.Millisecond, command("GET", "lock:a"))
		s := observe(t, rdb, requestOptions(), func(s keyspace.Snapshot) bool {
			return strings.Contains(s.Nodes[0].AskBlind, "another locktop") || len(askedFor(s)) > 0
		})
		check.Equal(t, len(askedFor(s)), 0, "requests that may be its reads")
	})
	observe(t, rdb, requestOptions(), func(s keyspace.Snapshot) bool { return s.Nodes[0].AskBlind == "" && len(askedFor(s)) == 1 })
}

// While a child process saves, the server does not record reads. A replica gets no refused
// requests.
func TestItSaysWhyRequestsCannotBeSeenForAWhileOrOnAReplica(t *testing.T) {
	testtier.Long(t, "it starts a replica, and a child process saves for seconds")
	t.Parallel()
	r := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{Replicas: 1})
	rdb, replica := connect(t, redis.Options{Addr: r.Master().Addr()}), connect(t, redis.Options{Addr: r.Replicas()[0].Addr()})
	do(t, rdb, "SET", "lock:a", "token:a", "PX", 600_000)
	repeat(t, connect(t, *rdb.Options()), 50*time.Millisecond, command("SET", "lock:a", "token:b", "NX"))
	observe(t, replica, justTokens(), func(s keyspace.Snapshot) bool {
		return s.Watch.Mode == keyspace.Push && strings.Contains(s.Nodes[0].AskBlind, "replica")
	})
	asked := func(s keyspace.Snapshot) bool { return s.Nodes[0].AskBlind == "" && len(askedFor(s)) == 1 }
	observe(t, rdb, justTokens(), asked)
	do(t, rdb, "CONFIG", "SET", "rdb-key-save-delay", 100_000_000) // µs per key: the child waits
	do(t, rdb, "BGSAVE")
	observe(t, rdb, justTokens(), func(s keyspace.Snapshot) bool {
		check.Require(t, len(askedFor(s)) == 0, "a request was seen while a child saves")
		return strings.Contains(s.Nodes[0].AskBlind, "child process")
	})
	do(t, rdb, "FLUSHALL") // ends the child
	do(t, rdb, "SET", "lock:a", "token:a", "PX", 600_000)
	observe(t, rdb, justTokens(), asked)
}

// The idle time of a string before the first read is a lower bound of the hold. That of a number is one of all keys
// that have it.
func TestTheFirstReadKnowsForHowLongAValueHasNotChanged(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	for key, value := range map[string]string{"old": "token:a", "number": "42"} {
		do(t, rdb, "SET", "new", value)
		dump := check.Must(rdb.Dump(t.Context(), "new").Result())(t)
		do(t, rdb, "RESTORE", key, 0, dump, "IDLETIME", 44)
	}
	ages := func(s keyspace.Snapshot) map[string]time.Duration {
		all := make(map[string]time.Duration)
		for _, l := range s.Locks {
			all[l.Key] = l.Age(s.At).Duration.Truncate(time.Second)
		}
		return all
	}
	w := watch(t, rdb, ScanOptions{Formats: []keyspace.Format{anyString}})
	got := ages(until(t, w, complete))

	p := check.Must(w.scanner.startPass(t.Context(), newPossibleLocks(keyspace.Likely, false)))(t)
	do(t, rdb, "RESTORE", "next", 0, check.Must(rdb.Dump(t.Context(), "old").Result())(t), "IDLETIME", 44)
	p.budget, p.pause = NewBudget(0.99), func(ctx context.Context) error { // before the last request of a step, the next client has the lock
		return rdb.Eval(ctx, `if redis.call('object', 'idletime', 'next') < 40 then redis.call('set', 'next', 'token:b') end return 1`, []string{"next"}).Err()
	}
	for !p.cursors.done() {
		for _, c := range check.Must(p.step(t.Context()))(t) {
			if c.name == "next" {
				got["next"] = c.lock.Age(p.now).Duration
			}
		}
	}
	check.True(t, got["next"] < 40*time.Second, "the hold of a client that came after the probe is told to last %v", got["next"])
	check.True(t, got["old"] >= 43*time.Second && got["new"] < 40*time.Second && got["number"] < 40*time.Second, "the holds last %v", got)
}
