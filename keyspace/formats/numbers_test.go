package formats_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
)

// possible returns all locks that are at least possible.
func possible(t testing.TB, rdb server.Client) keyspace.Snapshot {
	t.Helper()
	return scanFor(t, rdb, inspect.ScanOptions{Formats: everyFormat, MinConfidence: keyspace.Possible})
}

// A release of a fencing token begins it anew, and a stale writer passes.
func TestNumbersBesideALockAreNoLocks(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	names := strings.Fields(`lock:orders:42:token lock:index lock_token:orders orders:lock:generation lock:orders:epoch
		lock:orders:version lockindex lock:orders:lockVersion locktoken:orders lock:orders:fence fence:lock:orders
		lock:orders#index lock:{orders}:index lock.orders.token leader:term leader_epoch lease:orders:seq mutex-generation
		lock:failed_attempts lock_version lock:counter locks:total lock:42:retries mutex:acquired lock.waiters:7 lease:seq lock-revision
		singleton:version locks:fencing-token lock:fence:7 lock:42:attempts lock:acquired semaphore:count orders:lock_id locks:waiters {lynx:lock:orders}:token {lynx:lock:orders}:count`)
	for _, value := range []string{"1", "7", "4711"} {
		for _, ttl := range []time.Duration{0, 10 * time.Second, 7 * 24 * time.Hour} {
			p := rdb.Pipeline()
			for _, name := range names {
				p.Set(t.Context(), name, value, ttl)
			}
			check.Must(p.Exec(t.Context()))(t)
			check.Equal(t, len(keys(possible(t, rdb))), 0, "with the value %s and the TTL %v, of the locks %q the number", value, ttl, keys(possible(t, rdb)))
		}
	}
	load(t, rdb, []string{"FLUSHALL"})
	load(t, rdb, []string{"SET", "lock:orders:token", "1795801737123456"}, []string{"SET", "lock:epoch", "1795801737"},
		[]string{"SET", "lock:token:orders", "7", "EX", "60"}, []string{"SET", "token:lock:orders", "7", "EX", "60"})
	check.Equal(t, len(keys(possible(t, rdb))), 0, "of the times and the words in other places %q, locks are", keys(possible(t, rdb)))
}

// The same words name things that a lock protects. Tokens of the last weeks, marks, times, and locks whose names end in a
// word that counters use are likely, too.
func TestALockMayHaveTheNameOrTheValueOfANumber(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	commands := commandsOf("SET job:nightly {v1hex-604800000/5e}; SET lock:report 1; SET lock:sync {s-0}; SET scheduler:leader 4242 PX 30000")
	for _, names := range [][2]string{
		{client, "lock:epoch lock:index lock:token lock:orders:version lock_version"}, {"4242", "token:refresh:lock lock:42"},
		{"1", "lock:index:7 lock:search-index lock:token:42 lock:version:3 lock:page:7"},
	} {
		for name := range strings.FieldsSeq(names[1]) {
			commands = append(commands, []string{"SET", name, names[0], "PX", "30000"})
		}
	}
	load(t, rdb, formats.At(keyspace.Sample{Commands: commands}, clock(t, rdb)).Commands...)
	var want []string
	for _, argv := range commands {
		want = append(want, argv[1])
	}
	slices.Sort(want)
	check.DeepEqual(t, keys(scan(t, rdb)), want, "found")
}

// A field with the name of a property is no owner, and a hash of several numbers is no reentrant lock.
func TestAHashOfCountersIsNoReentrantLock(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for _, field := range strings.Fields("index fence version epoch seq ttl expires_at count total lock_version generation attempts") {
		load(t, rdb, []string{"HSET", "lock:of:" + field, field, "7"})
	}
	load(t, rdb, []string{"HSET", "lock:stats", "eu", "3", "us", "4"}, []string{"HSET", "lock:a", "worker-7", "2"})
	check.DeepEqual(t, keys(possible(t, rdb)), []string{"lock:a"}, "found")
}

// Without its key, a semaphore of Redisson has no permits for ever.
func TestAFreeSemaphoreOfRedissonIsNotHeld(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for key, lockName := range map[string]bool{
		"maven:resolver:artifact:org.example:guava": false, "pool": false, "semaphore:pool": false,
		"lock:resolver": true, "lock:Resolver": true, "RedisMutex:pool": true,
	} {
		for _, permits := range []string{"1", "99999", "2147483647"} {
			if lockName && permits != "2147483647" {
				continue // it can be a mark, or the ID of a process
			}
			load(t, rdb, []string{"FLUSHALL"}, []string{"SET", key, permits})
			l := only(t, rdb, key)
			check.Equal(t, l.Format+" "+string(l.State(clock(t, rdb))), "redisson-count free", "%s of %s is", key, permits)
			_, err := releaser(rdb).Act(t.Context(), keyspace.ForceRelease, l, 0)
			check.True(t, err != nil && rdb.Exists(t.Context(), key).Val() == 1, "%s of %s was released: %v", key, permits, err)
		}
	}
}

// A deadline is at most a year ahead, as that of ServiceStack.Redis. Under a name without a word for locks, a
// time that has passed is any time, and so is one in seconds that is far ahead.
func TestATimeFarFromNowIsNoDeadline(t *testing.T) {
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	for _, c := range []struct {
		key, value string
		is         bool
	}{
		{"report", "{s+60000}", true}, {"report", "{ms+31536000000}", true}, {"report", "{s-60000}", false}, {"report", "{s+1000000000}", false}, {"lock:report", "{s-60000}", true},
		{"report", "{s+40000000000}", false}, {"report", "{ms+40000000000}", false}, {"report", "{s-700000000}", false},
		{"report", "1000000000", false}, {"lock:report", "{s-700000000}", true},
	} {
		load(t, rdb, []string{"FLUSHALL"})
		load(t, rdb, formats.At(keyspace.Sample{Commands: [][]string{{"SET", c.key, c.value}}}, clock(t, rdb)).Commands...)
		is := slices.ContainsFunc(possible(t, rdb).Locks, func(l *keyspace.Lock) bool { return l.Format == "getset" })
		check.Equal(t, is, c.is, "%s = %s is a deadline", c.key, c.value)
	}
}

// The next hold of a hand-over has the next number. It is no second entry. locktop does not subscribe to the releases: only a
// pattern for the channels of all software would match those of every namespace.
func TestAHandOverOfRedfourIsNoSecondEntry(t *testing.T) {
	t.Parallel()
	const (
		acquire = "local i = redis.call('INCR', KEYS[2]) redis.call('HMSET', KEYS[1], 'index', i) return redis.call('PEXPIRE', KEYS[1], 30000)"
		release = "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', 'jobs-release', KEYS[1]) "
	)
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	run := func(script string) {
		t.Helper()
		check.NoError(t, rdb.Eval(t.Context(), script, []string{"jobs:lock:7", "jobsindex"}).Err())
	}
	run(acquire)
	w := watch(t, rdb)
	told := func(n int) (all []string) {
		t.Helper()
		w.await(t, func() bool { return len(w.events) >= n })
		for _, e := range w.events {
			all = append(all, string(e.Kind)+" "+e.Holder.ID)
		}
		return all
	}
	run(release + acquire)
	check.DeepEqual(t, told(3), []string{"appeared 1", "replaced 1", "acquired 2"}, "the events are")
	run(release + "return 1")
	check.Equal(t, told(4)[3], "released 2", "the end of the second hold is")
}
