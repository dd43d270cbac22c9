package inspect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// A server may report an expiry seconds late. The watcher reports it at the
// deadline. The server of this test never reports an expiry by itself.
func TestAnExpiryIsReportedAtItsDeadlineHoweverManyKeysExpire(t *testing.T) {
	testtier.Long(t, "it measures how late expiries are reported")
	t.Parallel()
	child := servertest.DebugForTest(t)
	rdb := connect(t, redis.Options{Addr: child.Addr()})
	do(t, rdb, "DEBUG", "SET-ACTIVE-EXPIRE", "0")
	for from := 0; from < 20_000; from += 10_000 {
		p := rdb.Pipeline()
		for i := range 10_000 {
			p.Set(t.Context(), fmt.Sprintf("cache:%d", from+i), "x", time.Hour)
		}
		check.Must(p.Exec(t.Context()))(t)
	}
	l := listened(t, rdb, justTokens())
	const locks = 100
	deadlines := make(map[string]time.Time)
	for i := range locks {
		key := fmt.Sprintf("lock:%d", i)
		at := check.Must(timed(t.Context(), rdb, "SET", key, "token:"+key, "PX", 1000+10*i))(t)
		deadlines[key] = at.Add(time.Duration(1000+10*i) * time.Millisecond)
	}
	l.wait(t, "100 expiries", func() bool { return l.count(keyspace.Expired) == locks })
	var late []time.Duration
	for _, e := range l.all() {
		if e.Kind == keyspace.Expired {
			late = append(late, e.heard.Sub(deadlines[e.Lock.Key]))
		}
	}
	slices.Sort(late)
	t.Logf("late by p50 %v, at most %v", late[locks/2], late[locks-1])
	check.AtMost(t, late[locks/2], 300*time.Millisecond, "p50 of the delay, which is half a second if scans and not deadlines find them,")
	check.True(t, late[0] >= -2*time.Millisecond, "an expiry was reported %v before it happened", -late[0])
}

// count returns how many elements meet a condition.
func count[T any](all []T, so func(T) bool) (n int) {
	for _, one := range all {
		if so(one) {
			n++
		}
	}
	return n
}

// count returns the number of events of a kind. The caller has locked the log.
func (l *log) count(kind keyspace.EventKind) int {
	return count(l.events, func(e reportedEvent) bool { return e.Kind == kind })
}

// announcing returns options with a format of tokens whose releases are announced.
func announcing() ScanOptions {
	f := tokens()
	f.ReleaseChannel = &keyspace.ReleaseChannel{Pattern: "free:*", Key: func(channel, _ string) (string, bool) {
		return strings.CutPrefix(channel, "free:")
	}}
	return ScanOptions{Formats: []keyspace.Format{f}}
}

func TestAnEarlyEndHasItsReason(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	l := started(t, rdb, announcing())
	release := func(key string) {
		do(t, rdb, "EVAL", "redis.call('DEL', ARGV[1]) redis.call('PUBLISH', 'free:' .. ARGV[1], '') return 1", 0, key)
	}
	take := func(key, holder string) {
		do(t, rdb, "SET", key, holder, "PX", 60_000)
		l.wait(t, holder, func() bool {
			return slices.ContainsFunc(l.events, func(e reportedEvent) bool { return e.Holder.ID == holder })
		})
	}

	take("lock:silent", "token:1")
	do(t, rdb, "DEL", "lock:silent")
	l.wait(t, "a release by a library that has never announced one", l.has(keyspace.Released, "lock:silent"))

	take("lock:a", "token:2")
	release("lock:a")
	l.wait(t, "an announced release", l.has(keyspace.Released, "lock:a"))

	take("lock:a", "token:3")
	do(t, rdb, "DEL", "lock:a")
	l.wait(t, "a deletion", l.has(keyspace.Deleted, "lock:a"))

	take("lock:new", "token:n") // releases with its prefix were announced, so a release of it would have been, too
	do(t, rdb, "DEL", "lock:new")
	l.wait(t, "a deletion of a lock that was never released", l.has(keyspace.Deleted, "lock:new"))

	t.Run("of a format with locks that publish no release without waiters", func(t *testing.T) {
		f := announcing()
		f.Formats[0].ReleaseChannel.ToWaiter = func(string) bool { return false }
		l := started(t, rdb, f)
		do(t, rdb, "SET", "lock:b1", "token:b1", "PX", 60_000)
		l.wait(t, "the first", l.has(keyspace.Acquired, "lock:b1"))
		release("lock:b1")
		l.wait(t, "its release", l.has(keyspace.Released, "lock:b1"))
		do(t, rdb, "SET", "lock:b2", "token:b2", "PX", 60_000)
		l.wait(t, "another", l.has(keyspace.Acquired, "lock:b2"))
		do(t, rdb, "DEL", "lock:b2")
		l.wait(t, "its end", l.has(keyspace.Vanished, "lock:b2"))
	})

	take("lock:a", "token:victim")
	do(t, rdb, "EVAL", "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], 'token:other', 'PX', 70000) return 1", 1, "lock:a")
	l.wait(t, "a theft under another deadline", l.has(keyspace.Stolen, "lock:a"))
	release("lock:a")

	take("lock:b", "token:4")
	time.Sleep(300 * time.Millisecond) // held for so long that a hold after a release would have another deadline
	do(t, rdb, "SET", "lock:b", "token:5", "KEEPTTL")
	l.wait(t, "a theft", l.has(keyspace.Stolen, "lock:b"))

	take("lock:c", "token:6")
	do(t, rdb, "PERSIST", "lock:c")
	l.wait(t, "a lost deadline", l.has(keyspace.TTLLost, "lock:c"))

	do(t, rdb, "FLUSHALL")
	l.wait(t, "a flush", l.has(keyspace.Flushed, "lock:c"))
	l.wait(t, "the note of the flush", func() bool {
		return slices.ContainsFunc(l.notices, func(n keyspace.Notice) bool { return n.Kind == keyspace.ServerFlushed })
	})
}

// A lock that is renewed, released and acquired again at once has nearly the same deadline as
// before. That is not a theft, and a release in one script with the next acquire is not seen.
func TestTheNextHolderUnderASimilarDeadlineIsNotAThief(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	l := started(t, rdb, announcing())
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	const again = "redis.call('DEL', KEYS[1]) redis.call('SET', KEYS[1], ARGV[1]) return redis.call('PEXPIREAT', KEYS[1], ARGV[2])"
	do(t, rdb, "EVAL", again, 1, "lock:a", "token:first", until.UnixMilli())
	l.wait(t, "the first", l.has(keyspace.Acquired, "lock:a"))
	do(t, rdb, "EVAL", again, 1, "lock:a", "token:next", until.UnixMilli()+5)
	l.wait(t, "the next", func() bool {
		return slices.ContainsFunc(l.events, func(e reportedEvent) bool { return e.Kind == keyspace.Acquired && e.Holder.ID == "token:next" })
	})
	check.True(t, l.has(keyspace.Replaced, "lock:a")(), "%v", words(eventsOf(l, "lock:a")))
}

// eventsOf returns the reported events of a lock.
func eventsOf(l *log, key string) []keyspace.Event {
	var all []keyspace.Event
	for _, e := range l.all() {
		if e.Lock.Key == key {
			all = append(all, e.Event)
		}
	}
	return all
}

// That the server evicts keys proves nothing about this key; its notification does.
func TestAnEvictionIsKnownIfTheServerReportsIt(t *testing.T) {
	for notify, want := range map[string]keyspace.EventKind{"": keyspace.Vanished, "Ee": keyspace.Evicted} {
		t.Run(notify, func(t *testing.T) {
			t.Parallel()
			rdb := realServer(t, "--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb", "--notify-keyspace-events", notify)
			l := started(t, rdb, justTokens())
			do(t, rdb, "SET", "lock:a", "token:1", "PX", 600_000)
			l.wait(t, "the lock", l.has(keyspace.Acquired, "lock:a"))
			do(t, rdb, "CONFIG", "SET", "maxmemory", "1mb")
			for range 30 {
				_ = rdb.Set(t.Context(), "big", strings.Repeat("x", 100_000), 0).Err() // the server may be out of memory
			}
			l.wait(t, "an eviction", l.has(want, "lock:a"))
			all := eventsOf(l, "lock:a")
			check.Equal(t, fmt.Sprint(all[len(all)-1].Possible), map[keyspace.EventKind]string{keyspace.Vanished: "[released evicted]", keyspace.Evicted: "[]"}[want])
		})
	}
}

// A report that a database was emptied does not name it: a lock that was released meanwhile has a report of its own.
func TestAFlushOfAnotherDatabaseEndsNoLock(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	l := started(t, rdb, justTokens())
	const flush, release = "redis.call('SELECT', 1) redis.call('FLUSHDB') redis.call('SELECT', 0) ", "redis.call('DEL', KEYS[1]) "
	for i, script := range []string{flush + release, release + flush} {
		key := fmt.Sprint("lock:", i)
		do(t, rdb, "SET", key, "token:1", "PX", 60_000)
		l.wait(t, key, l.has(keyspace.Acquired, key))
		do(t, rdb, "EVAL", script+"return 1", 1, key)
		l.wait(t, "its release", l.has(keyspace.Released, key))
	}
}

// A scan may read the INFO that counts an eviction before the lock is read again.
func TestAnEvictedLockWasNotReleasedAlsoIfAScanCountsTheEviction(t *testing.T) {
	t.Parallel()
	admin := realServer(t, "--maxmemory-policy", "volatile-ttl", "--maxmemory", "100mb")
	do(t, admin, "SET", "lock:a", "token:1", "PX", 600_000)
	rdb := connect(t, redis.Options{Addr: admin.Options().Addr})
	scan := before(rdb, "dbsize") // at its begin
	f := pushing(t, rdb, justTokens())
	evict := func() {
		do(t, admin, "CONFIG", "SET", "maxmemory", "1mb")
		for do(t, admin, "EXISTS", "lock:a") == int64(1) {
			_ = admin.Append(t.Context(), "big", strings.Repeat("x", 100_000)).Err() // the server may be out of memory
		}
	}
	scan.Store(&evict)
	check.Equal(t, nextEnd(t, f), keyspace.Vanished)

	do(t, admin, "CONFIG", "SET", "maxmemory", "100mb")
	do(t, admin, "SET", "lock:b", "token:2", "PX", 600_000)
	followed(t, f, func(s keyspace.Snapshot) bool { return len(s.Locks) == 1 })
	do(t, admin, "DEL", "lock:b")
	check.Equal(t, nextEnd(t, f), keyspace.Released)
}

// nextEnd waits for the next end of a hold, and returns its kind.
func nextEnd(t *testing.T, f *Watcher) keyspace.EventKind {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for {
		events, _, err := f.Next(ctx)
		check.NoError(t, err)
		for _, e := range events {
			if e.Kind.Ends() {
				return e.Kind
			}
		}
	}
}

// While the server is unreachable, nothing is known of its locks.
func TestALostConnectionReleasesNothing(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	rdb := connect(t, redis.Options{Addr: child.Addr(), MaxRetries: -1, DialerRetries: 1})
	l := started(t, rdb, justTokens())
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 600_000)
	l.wait(t, "the lock", l.has(keyspace.Acquired, "lock:a"))
	check.NoError(t, child.Kill())
	l.wait(t, "the loss", func() bool { return l.failed }) // a restart between two requests is no loss
	check.NoError(t, child.Restart(t.Context()))
	l.wait(t, "the end of the lock", l.has(keyspace.Lost, "lock:a"))
	for _, e := range l.all() {
		check.True(t, e.Kind != keyspace.Released && e.Kind != keyspace.Expired, "%s is %s", e.Lock.Key, e.Kind)
	}
	l.wait(t, "one note of the loss and one of the return", func() bool {
		var kinds []keyspace.NoticeKind
		for _, n := range l.notices {
			kinds = append(kinds, n.Kind)
		}
		return slices.Equal(kinds, []keyspace.NoticeKind{keyspace.ServerLost, keyspace.ServerBack})
	})
	l.wait(t, "push again", func() bool { return l.follow.Mode == keyspace.Push })
	do(t, rdb, "SET", "lock:standing", "token:again", "PX", 600_000)
	do(t, rdb, "SET", "lock:b", "token:2", "PX", 600_000)
	l.wait(t, "the next lock", func() bool { return l.has(keyspace.Acquired, "lock:b")() || l.has(keyspace.Discovered, "lock:b")() })
}

// lateEnd is a connection whose end is noticed half a second late, once it asks for client tracking.
type lateEnd struct {
	net.Conn
	latency  time.Duration // of a reply
	tracking atomic.Bool
}

func (c *lateEnd) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("bcast")) {
		c.tracking.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *lateEnd) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	time.Sleep(c.latency)
	if c.tracking.Load() && err != nil {
		time.Sleep(500 * time.Millisecond)
	}
	return n, err
}

// The connection pool reconnects without an error. If the server restarts before the next command, as
// the read of a changed lock, or when a scan begins, no request fails.
func TestAnUnnoticedRestartReleasesNothing(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		command string   // after which the server restarts
		args    []string // with which it keeps its data; the holder releases the lock then
		latency time.Duration
	}{"before the next command": {}, "before a read ahead": {command: "getrange", latency: 10 * time.Millisecond}, "before a scan": {command: "dbsize"}, "with its data": {args: []string{"--appendonly", "yes", "--appendfsync", "always"}}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			child := servertest.RedisForTest(t, c.args...)
			other := connect(t, redis.Options{Addr: child.Addr()})
			rdb := connect(t, redis.Options{Addr: child.Addr(), Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &lateEnd{Conn: conn, latency: c.latency}, err
			}})
			read := before(rdb, c.command)
			do(t, other, "SET", "lock:a", "token:1", "PX", 600_000)
			f := pushing(t, rdb, justTokens())
			ends := keyspace.Lost
			restart := func() {
				check.NoError(t, errors.Join(child.Kill(), child.Restart(t.Context())))
				if c.args != nil {
					do(t, other, "DEL", "lock:a")
				}
			}
			if c.args != nil {
				ends = keyspace.Vanished // it may have been lost before it was released
			}
			read.Store(&restart)
			do(t, other, "PEXPIRE", "lock:a", 500_000)
			lost := false
			for deadline := time.Now().Add(30 * time.Second); ; {
				events, _, err := f.Next(t.Context())
				for _, e := range events {
					lost = lost || e.Kind == ends
					check.True(t, e.Kind == ends || e.Kind == keyspace.Renewed, "the lock is %s after the restart, want %s", e.Kind, ends)
				}
				if lost && err == nil { // it goes on with the new process
					return
				}
				check.Require(t, !time.Now().After(deadline), "the lock is %s: %v, and the last error is %v", ends, lost, err)
			}
		})
	}
}

// RENAME ends no hold and begins none: the holder has the lock under another name.
func TestALockThatGetsANewNameWasNotReleased(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 600_000)
	f := pushing(t, rdb, justTokens())
	do(t, rdb, "RENAME", "lock:a", "lock:b")
	all := make(map[string][]keyspace.EventKind)
	for len(all["lock:b"]) == 0 {
		events, _, err := f.Next(t.Context())
		check.NoError(t, err)
		maps.Copy(all, byKey(events))
	}
	check.DeepEqual(t, all, map[string][]keyspace.EventKind{"lock:a": {keyspace.Vanished}, "lock:b": {keyspace.Discovered}}, "the events are")
}

// The server closes the connection that delivers invalidations, again and
// again, while locks are acquired and released.
func TestNothingIsMissedWhenTheServerHangsUp(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	l := started(t, rdb, justTokens())
	const locks = 200
	for i := range locks {
		do(t, rdb, "SET", fmt.Sprintf("lock:%d", i), "token:1", "PX", 600_000)
		if i%50 == 25 {
			do(t, rdb, "CLIENT", "KILL", "TYPE", "pubsub")
		}
	}
	// A lock whose beginning falls into a long gap has appeared.
	l.wait(t, "all locks", func() bool { return l.count(keyspace.Acquired)+l.count(keyspace.Discovered) == locks })
	for i := range locks {
		do(t, rdb, "DEL", fmt.Sprintf("lock:%d", i))
	}
	l.wait(t, "all releases", func() bool { return l.count(keyspace.Released) == locks })
	check.Equal(t, len(l.all()), 2*locks, "events")
}

// looker creates a user who may run all commands of locktop except CLIENT TRACKING, and reports
// whether the server has channel permissions. Redis 6.0 has none.
func looker(t *testing.T, admin *redis.Client, channels string) bool {
	t.Helper()
	err := servertest.SetUser(t.Context(), admin, "looker", "on", ">pw", "~*", channels, "+@all", "-client", "+client|setname", "+client|id")
	check.NoError(t, err)
	user := fmt.Sprint(do(t, admin, "ACL", "GETUSER", "looker"))
	return strings.Contains(user, "channels")
}

// followed runs the watcher until a condition on the snapshot holds.
func followed(t testing.TB, f *Watcher, so func(keyspace.Snapshot) bool) keyspace.Snapshot {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		_, _, err := f.Next(t.Context())
		check.NoError(t, err)
		s := f.Known()
		if so(s) {
			return s
		}
		check.Require(t, !time.Now().After(deadline), "it stays at %q, %+v", keys(s), s.Watch)
	}
}

// Without pushes, the watcher follows keyspace notifications if they are on, and polls otherwise and says why. The user may
// have no right to CLIENT TRACKING. Without HELLO a connection stays in RESP2: then the server accepts CLIENT TRACKING and
// sends nothing.
func TestWithoutPushesThereIsPollingOrNotificationsAreFollowed(t *testing.T) {
	t.Parallel()
	notify, noHello := []string{"--notify-keyspace-events", "KEA"}, []string{"--rename-command", "HELLO", "other-name"}
	for _, c := range []struct {
		name     string
		args     []string // of the server
		channels string   // of a user without the right; "" = the default user
		want     keyspace.WatchMode
		why      string
	}{
		{"without the right", nil, "resetchannels", keyspace.Polling, "noperm"},
		{"without the right, notifications", notify, "allchannels", keyspace.Notifications, ""},
		{"without HELLO", noHello, "", keyspace.Polling, "hello"},
		{"without HELLO, notifications", slices.Concat(notify, noHello), "", keyspace.Notifications, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			admin := realServer(t, c.args...)
			do(t, admin, "SET", "lock:a", "token:1", "PX", 600_000)
			rdb, unheard := admin, false // the channels of the releases
			if c.channels != "" {
				unheard = looker(t, admin, c.channels) && c.channels == "resetchannels"
				rdb = connect(t, redis.Options{Addr: admin.Options().Addr, Username: "looker", Password: "pw"})
			}
			f := watch(t, rdb, announcing())
			followed(t, f, func(s keyspace.Snapshot) bool {
				check.Require(t, s.Watch.Mode != keyspace.Push, "it waits for pushes")
				why := strings.ToLower(strings.Join(s.Watch.Limitations, "; "))
				return s.Complete && s.Watch.Mode == c.want && strings.Contains(why, c.why) &&
					(c.want != keyspace.Polling || strings.Contains(why, "free:*") == unheard)
			})
			do(t, admin, "DEL", "lock:a")
			check.Equal(t, nextEnd(t, f), keyspace.Released)
			check.Equal(t, len(f.Known().Locks), 0, "locks that are left")
		})
	}
}

// Polling is as late as its reads are slow.
func TestTheDelayOfPollingIsMeasured(t *testing.T) {
	t.Parallel()
	rdb := realServer(t, "--rename-command", "HELLO", "other-name")
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 600_000)
	rdb.AddHook(pipelines(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		time.Sleep(2 * pollEvery) // a slow network
		return next(ctx, cmds)
	}))
	f := watch(t, rdb, justTokens())
	followed(t, f, func(s keyspace.Snapshot) bool {
		return s.Watch.Mode == keyspace.Polling && s.Watch.Lag >= 2*pollEvery && !strings.Contains(strings.Join(s.Watch.Limitations, ";"), "shorter than 100 ms")
	})
}

// If a server has renamed TIME, the local clock is used instead.
func TestAServerWithoutAClockIsReadByOurs(t *testing.T) {
	t.Parallel()
	rdb := realServer(t, "--rename-command", "TIME", "other-name")
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 60_000)
	s := scan(t, rdb, justTokens())
	left, ok := s.Locks[0].TTL(s.At)
	check.True(t, ok && left >= 50*time.Second && left <= time.Minute+time.Second, "it has %v left", left)
	want := []string{"the server does not have TIME"}
	check.True(t, slices.Equal(s.Problems, want) && s.Complete, "it says %q, want %q", s.Problems, want)
	f := pushing(t, rdb, justTokens())
	do(t, rdb, "DEL", "lock:a")
	followed(t, f, func(s keyspace.Snapshot) bool { return len(s.Locks) == 0 })
}

// Eight clients acquire and release a few locks in turns. No sequence of snapshots may show a
// theft. The clients go on until the watcher has seen a release: on a busy machine it can miss all
// of the first ones. With LOCKTOP_PROOF the test makes 10,000 releases for each hold time.
func TestALockThatIsReleasedWasNotStolen(t *testing.T) {
	t.Parallel()
	releases := int64(testtier.Size(40, 500, 10_000))
	for _, c := range []struct {
		hold  time.Duration
		locks int
	}{{0, 1}, {time.Millisecond, 2}, {20 * time.Millisecond, 8}} {
		t.Run(fmt.Sprintf("held for %v", c.hold), func(t *testing.T) {
			t.Parallel()
			rdb := realServer(t)
			l := listened(t, rdb, justTokens())
			seen := func(kind keyspace.EventKind) int {
				return count(l.all(), func(e reportedEvent) bool { return e.Kind == kind })
			}
			var done, number atomic.Int64
			var clients sync.WaitGroup
			for n := range 8 {
				clients.Go(func() {
					for i := n; done.Load() < releases || seen(keyspace.Released) == 0; i++ {
						key, token := fmt.Sprintf("lock:%d", i%c.locks), fmt.Sprintf("token:%d", number.Add(1))
						if taken, err := rdb.SetNX(t.Context(), key, token, 8*time.Second).Result(); err != nil {
							t.Error(err)
							return
						} else if !taken {
							time.Sleep(100 * time.Microsecond)
							continue
						}
						time.Sleep(c.hold)
						const release = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
						if n, err := rdb.Eval(t.Context(), release, []string{key}, token).Int(); err != nil || n != 1 {
							t.Errorf("released %d, %v", n, err)
							return
						}
						done.Add(1)
					}
				})
			}
			clients.Wait()
			check.Equal(t, seen(keyspace.Stolen), 0, "of %d proper releases it has seen %d, and thefts", done.Load(), seen(keyspace.Released))
		})
	}
}

// Redis before 7, and a user without the permission for PEXPIRETIME, report only the remaining time.
// The deadline is known to lie between two times, mostly within a millisecond.
func TestADeadlineIsWhereItsReadingSays(t *testing.T) {
	admin := realServer(t)
	want := make(map[string]time.Time)
	p := admin.Pipeline()
	begin := clock(t, admin)
	for i := range 600 {
		key := fmt.Sprintf("lock:%d", i)
		want[key] = begin.Add(time.Minute + time.Duration(7*i)*time.Millisecond).Truncate(time.Millisecond)
		p.Set(t.Context(), key, "token:x", 0)
		p.Do(t.Context(), "PEXPIREAT", key, want[key].UnixMilli())
	}
	p.Set(t.Context(), "never", "token:y", 0)
	want["never"] = time.Time{}
	want["far"] = begin.AddDate(600, 0, 0).Truncate(time.Millisecond) // a time.Duration is at most 292 years
	p.Set(t.Context(), "far", "token:z", 0)
	p.Do(t.Context(), "PEXPIREAT", "far", want["far"].UnixMilli())
	check.Must(p.Exec(t.Context()))(t)
	exact := 0
	var mu sync.Mutex
	f := tokens()
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		mu.Lock()
		defer mu.Unlock()
		off := want[e.Key].Sub(e.Expires)
		check.True(t, off >= 0 && off <= e.Spread && e.Expires.IsZero() == want[e.Key].IsZero(), "%s expires %v after what was read, and at most %v", e.Key, off, e.Spread)
		if e.Spread == 0 {
			exact++
		}
		return keyspace.Lock{Holders: []keyspace.Holder{{ID: e.Value}}}, keyspace.Certain
	}
	for _, rights := range []string{"+pexpiretime", "-pexpiretime"} {
		s := scan(t, userOf(t, admin, append(slices.Clone(readOnly), rights)...), ScanOptions{Formats: []keyspace.Format{f}})
		check.True(t, len(s.Locks) == len(want) && len(s.Problems) == 0, "%d locks, want %d, and no problem: %q", len(s.Locks), len(want), s.Problems)
		for _, l := range s.Locks {
			check.AtMost(t, want[l.Key].Sub(l.Expires).Abs(), 500*time.Millisecond, "the deadline of %s is off by", l.Key)
		}
	}
	check.True(t, exact >= len(want)/4, "only %d of %d are known to the millisecond", exact, len(want))
}

// This user may not read a lock any more, which does not change.
func TestALostPermissionIsNoticedWithoutAChange(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	do(t, admin, "SET", "lock:a", "token:1")
	do(t, admin, "SET", "other:b", "token:2")
	f := pushing(t, userOf(t, admin, "on", ">secret", "~*", "&*", "+@all"), justTokens())
	steps := []struct{ pattern, want string }{{"~other:*", "not read known locks any more"}, {"~*", "read all known locks again"}}
	for _, c := range steps[:testtier.Size(1, 2, 2)] { // each waits for a look for requests, which is due once a second
		do(t, admin, "ACL", "SETUSER", "tester", "resetkeys", c.pattern)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for said := false; !said; {
			events, notices, err := f.Next(ctx)
			check.Require(t, err == nil && len(events) == 0, "waiting for %q: %v, %v", c.want, err, words(events))
			said = slices.ContainsFunc(notices, func(n keyspace.Notice) bool {
				return n.Kind == keyspace.RightsChanged && strings.Contains(n.Text, c.want)
			})
		}
	}
}

// A server refuses prefixes of which one covers another, as those of these names.
func TestPrefixesThatCoverEachOtherAreNotSent(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	for _, key := range []string{"alone", "lock", "lock:a", "lock-b", "lock.c"} {
		do(t, rdb, "SET", key, "token:1", "PX", 600_000)
	}
	f := pushing(t, rdb, justTokens())
	do(t, rdb, "DEL", "lock-b")
	followed(t, f, func(s keyspace.Snapshot) bool { return len(s.Locks) == 4 })
}

// The deadline of a lock becomes short, and the lock expires before it is read. That
// cannot be told from a release, so it is not called one. A release that is read late is.
func TestAnEndThatIsReadLateIsAReleaseOnlyIfItMustBe(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		end  []any
		want keyspace.EventKind
	}{
		{"expiry", []any{"PEXPIRE", "lock:a", 200}, keyspace.Vanished},
		{"release", []any{"DEL", "lock:a"}, keyspace.Released},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			admin := realServer(t)
			do(t, admin, "SET", "lock:a", "token:1", "PX", 600_000)
			rdb := connect(t, redis.Options{Addr: admin.Options().Addr})
			read := before(rdb, "")
			f := pushing(t, rdb, justTokens())
			late := func() { time.Sleep(400 * time.Millisecond) }
			read.Store(&late)
			do(t, admin, c.end...)
			check.Equal(t, nextEnd(t, f), c.want)
		})
	}
}

// A lock expires, a waiting client acquires it and releases it at once, and all that is read
// later. The release message is of the second hold.
func TestTheReleaseOfTheNextHoldIsNoneOfALockThatExpired(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	rdb := connect(t, redis.Options{Addr: admin.Options().Addr})
	read := before(rdb, "")
	l := started(t, rdb, announcing())
	deadline := time.Now().Add(time.Second)
	do(t, admin, "EVAL", "redis.call('SET', KEYS[1], 'token:1') return redis.call('PEXPIREAT', KEYS[1], ARGV[1])", 1, "lock:a", deadline.UnixMilli())
	l.wait(t, "the hold", l.has(keyspace.Acquired, "lock:a"))
	late := func() { time.Sleep(time.Until(deadline.Add(500 * time.Millisecond))) }
	read.Store(&late)
	time.Sleep(time.Until(deadline.Add(50 * time.Millisecond)))
	do(t, admin, "SET", "lock:a", "token:2", "NX", "PX", 60_000)
	do(t, admin, "EVAL", "redis.call('DEL', KEYS[1]) return redis.call('PUBLISH', 'free:' .. KEYS[1], '')", 1, "lock:a")
	l.wait(t, "the end", func() bool { return l.count(keyspace.Expired)+l.count(keyspace.Released) > 0 })
	check.Equal(t, l.count(keyspace.Expired), 1, "holds that expired")
}

// A release message does not name the database. While a lock of one database expires, the
// lock with the same key in another one is released.
func TestAReleaseInAnotherDatabaseIsNoneOfALockThatExpires(t *testing.T) {
	t.Parallel()
	child := servertest.DebugForTest(t)
	other := connect(t, redis.Options{Addr: child.Addr()})
	do(t, other, "DEBUG", "SET-ACTIVE-EXPIRE", "0")
	rdb := connect(t, redis.Options{Addr: child.Addr(), DB: 7})
	do(t, other, "SET", "lock:a", "token:other")
	o := announcing()
	o.DB = 7
	l := started(t, rdb, o)
	const locks = 20
	key := func(i int) string { return fmt.Sprintf("lock:%d", i) }
	deadline := func(begin time.Time, i int) time.Time {
		return begin.Truncate(time.Millisecond).Add(time.Duration(500+15*i) * time.Millisecond)
	}
	begin := time.Now()
	for i := range locks {
		do(t, rdb, "EVAL", "redis.call('SET', KEYS[1], 'token:7') return redis.call('PEXPIREAT', KEYS[1], ARGV[1])", 1, key(i), deadline(begin, i).UnixMilli())
		do(t, other, "SET", key(i), "token:0", "PX", 60_000)
	}
	for i := range locks {
		time.Sleep(time.Until(deadline(begin, i).Add(500 * time.Microsecond)))
		do(t, other, "EVAL", "redis.call('DEL', ARGV[1]) redis.call('PUBLISH', 'free:' .. ARGV[1], '') return 1", 0, key(i))
	}
	l.wait(t, "the ends", func() bool { // on a busy machine some locks have ended before they are seen
		begun := l.count(keyspace.Acquired)
		return begun > 0 && l.count(keyspace.Expired)+l.count(keyspace.Released) == begun
	})
	check.Equal(t, l.count(keyspace.Released), 0, "locks that count as released, of %d that expired", locks)
	take := func(key string) {
		do(t, rdb, "SET", key, "token:early", "PX", 60_000)
		l.wait(t, key, l.has(keyspace.Acquired, key))
	}
	take("lock:early")
	do(t, rdb, "EVAL", "redis.call('DEL', KEYS[1]) redis.call('PUBLISH', 'free:' .. KEYS[1], '') return 1", 1, "lock:early")
	l.wait(t, "a release before the deadline", l.has(keyspace.Released, "lock:early"))
}
