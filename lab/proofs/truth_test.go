package proofs

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/lab/internal/labtest"
)

// layout is how a library stores a lock. The name and the token get the number of the hold.
type layout struct {
	format string
	key    string
	token  func(n int) string
	hash   bool // the token is a field with a count
	tells  bool // a release is published
}

func uuidToken(int) string { return uuid.NewString() }

var layouts = []layout{
	{format: "set-nx", key: "lock:job:%d", token: uuidToken},
	{format: "bullmq", key: "bull:mail:%d:lock", token: func(int) string { return uuid.NewString() + ":1" }},
	{format: "shedlock", key: "job-lock:prod:task-%d", token: func(n int) string {
		return "ADDED:" + time.Now().UTC().Format("2006-01-02T15:04:05.000Z") + fmt.Sprintf("@web-%d", n)
	}},
	{format: "redisson", key: "orders:%d", token: func(n int) string { return fmt.Sprintf("%v:%d", uuid.New(), n) }, hash: true, tells: true},
	{format: "hash-reentrant", key: "lock:nested:%d", token: uuidToken, hash: true},
	{format: "laravel", key: "laravel_database_laravel_cache_:report%d", token: func(int) string { // Str::random(16)
		token := make([]byte, 16)
		for i := range token {
			token[i] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"[rand.N(62)]
		}
		return string(token)
	}},
	{format: "node-redlock", key: "redlock:%d", token: func(int) string { return strings.ReplaceAll(uuid.NewString(), "-", "") }},
	{format: "redsync", key: "mutex:%d", token: func(int) string { id := uuid.New(); return base64.StdEncoding.EncodeToString(id[:]) }},
	{format: "phpredis", key: "PHPREDIS_SESSION:k3v9q1sess%d_LOCK", token: func(n int) string { return fmt.Sprintf("web-02|%d", 1000+n) }},
	{format: "csredis", key: "CSRedisClientLock:basket:%d", token: uuidToken},
	{format: "hangfire", key: "{hangfire}:queue:q%d:dequeued:lock", token: uuidToken},
}

var (
	acquireField = redis.NewScript(`if redis.call('exists', KEYS[1]) == 1 then return 0 end
redis.call('hset', KEYS[1], ARGV[1], 1) redis.call('pexpire', KEYS[1], ARGV[2]) return 1`)
	releaseField = redis.NewScript(`if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('del', KEYS[1]) if ARGV[2] ~= '' then redis.call('publish', ARGV[2], 0) end return 1`)
	overwriteField = redis.NewScript(`local ttl = redis.call('pttl', KEYS[1]) redis.call('del', KEYS[1])
redis.call('hset', KEYS[1], ARGV[1], 1) if ttl > 0 then redis.call('pexpire', KEYS[1], ttl) end return 1`)
)

// acquire acquires a lock that is free.
func (l layout) acquire(ctx context.Context, rdb server.Client, key, token string, ttl time.Duration) (bool, error) {
	if l.hash {
		return acquireField.Run(ctx, rdb, []string{key}, token, ttl.Milliseconds()).Bool()
	}
	return rdb.SetNX(ctx, key, token, ttl).Result()
}

// release releases a lock, and reports whether the token had it.
func (l layout) release(ctx context.Context, rdb server.Client, key, token string) (bool, error) {
	if !l.hash {
		return labtest.FreeIfMine.Run(ctx, rdb, []string{key}, token).Bool()
	}
	channel := ""
	if l.tells {
		channel = "redisson_lock__channel:{" + key + "}"
	}
	return releaseField.Run(ctx, rdb, []string{key}, token, channel).Bool()
}

// overwrite gives a held lock to another token, as a client that does not look.
func (l layout) overwrite(ctx context.Context, rdb server.Client, key, token string) error {
	if l.hash {
		return overwriteField.Run(ctx, rdb, []string{key}, token).Err()
	}
	return rdb.Set(ctx, key, token, redis.KeepTTL).Err()
}

const deletedBySomebody = "deleted by another client"

// untrue are the kinds of ends that a watch must not tell of a hold that ended in this way. A key that is gone before its
// deadline counts as released unless its library publishes releases.
var untrue = map[string][]keyspace.EventKind{
	honestly:          {keyspace.Expired, keyspace.Evicted, keyspace.Flushed, keyspace.Lost, keyspace.Stolen, keyspace.Deleted},
	leftToExpire:      {keyspace.Released, keyspace.Evicted, keyspace.Flushed, keyspace.Lost, keyspace.Stolen, keyspace.Deleted, keyspace.Replaced},
	deletedBySomebody: {keyspace.Expired, keyspace.Evicted, keyspace.Flushed, keyspace.Lost, keyspace.Stolen},
	overwritten:       {keyspace.Expired, keyspace.Evicted, keyspace.Flushed, keyspace.Lost, keyspace.Deleted},
}

// truth is what really happened to the locks.
type truth struct {
	rdb      server.Client
	ttl      time.Duration // of a hold that is not left to expire
	shortest time.Duration // of a hold
	serves   sync.RWMutex  // a request holds it for reading, a restart of the server for writing
	mu       sync.Mutex
	began    map[change]bool   // by key and holder
	ended    map[change]string // how
	layout   map[change]layout
}

func (x *truth) note(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// hold acquires a new lock, and ends its hold in one of four ways.
func (x *truth) hold(t *testing.T, l layout, n int) {
	ctx, key, token, ttl := context.WithoutCancel(t.Context()), fmt.Sprintf(l.key, n), l.token(n), x.ttl
	how := honestly
	switch n / len(layouts) % 10 {
	case 7:
		how, ttl = leftToExpire, 3*x.shortest
	case 8:
		how = deletedBySomebody
	case 9:
		how = overwritten
	}
	hold := change{Key: key, Holder: token}
	x.serves.RLock()
	acquired, err := l.acquire(ctx, x.rdb, key, token, ttl)
	x.serves.RUnlock()
	check.True(t, err == nil && acquired, "%s is acquired: %v, %v", key, acquired, err)
	x.note(func() { x.began[hold], x.layout[hold] = true, l })
	time.Sleep(x.shortest + rand.N(2*x.shortest)) // the work under the lock
	x.serves.RLock()
	defer x.serves.RUnlock()
	switch how {
	case deletedBySomebody:
		had, err := x.rdb.Del(ctx, key).Result()
		check.ErrorIs(t, err, nil)
		if had == 0 {
			return // the server evicted it
		}
	case overwritten:
		next := change{Key: key, Holder: l.token(n + 1)}
		check.ErrorIs(t, l.overwrite(ctx, x.rdb, key, next.Holder), nil)
		x.note(func() { x.ended[hold], x.began[next], x.layout[next] = how, true, l })
		x.serves.RUnlock()
		time.Sleep(x.shortest)
		x.serves.RLock()
		hold, token, how = next, next.Holder, honestly
		fallthrough
	case honestly:
		had, err := l.release(ctx, x.rdb, key, token)
		check.ErrorIs(t, err, nil)
		if !had {
			return // the server evicted it
		}
	}
	x.note(func() { x.ended[hold] = how })
}

// told is what a watch has printed.
type told struct {
	began    map[change]int
	ends     map[change][]keyspace.EventKind
	open     map[change]bool // the key may also have been deleted
	outlived int             // findings
}

// printed reads what a watch has printed.
func printed(t *testing.T, text string) told {
	t.Helper()
	all := told{map[change]int{}, map[change][]keyspace.EventKind{}, map[change]bool{}, 0}
	for line := range strings.Lines(text) {
		var l struct {
			Event, Finding keyspace.EventKind
			ID, Key        string
			Holder         struct{ ID string }
			Possible       []keyspace.EventKind
		}
		if !strings.HasSuffix(line, "\n") {
			continue // it is not whole yet
		}
		check.ErrorIs(t, json.Unmarshal([]byte(line), &l), nil, "%s", line)
		hold := change{Key: l.Key, Holder: l.Holder.ID}
		switch {
		case l.ID == "outlived" || l.Finding == "outlived":
			all.outlived++
		case l.Event == keyspace.Acquired || l.Event == keyspace.Discovered:
			all.began[hold]++
		case l.Event.Ends():
			all.ends[hold] = append(all.ends[hold], l.Event)
			all.open[hold] = slices.Contains(l.Possible, keyspace.Deleted)
		}
	}
	return all
}

// teach lets a watch learn each name, with holds that do not count. It returns the number of the last of them.
func (x *truth) teach(t *testing.T, w *labtest.Program) (n int) {
	t.Helper()
	for _, l := range layouts {
		for seen := 0; seen < 3; { // in a row: a scan may find a hold by chance
			n += len(layouts)
			key, token := fmt.Sprintf(l.key, n), l.token(n)
			acquired, err := l.acquire(t.Context(), x.rdb, key, token, 5*time.Second)
			check.Require(t, err == nil && acquired, "%s: %v", key, err)
			time.Sleep(x.shortest)
			_, err = l.release(t.Context(), x.rdb, key, token)
			check.NoError(t, err)
			time.Sleep(x.shortest)
			if seen++; !strings.Contains(w.Out.String(), `"event":"acquired","key":"`+key+`"`) {
				seen = 0
			}
			check.Require(t, n < 2000*len(layouts), "it never sees a hold of %s", l.format)
		}
	}
	return n
}

// run holds locks with higher numbers until a time has passed, and compares what a watch tells with what happened.
func (x *truth) run(t *testing.T, w *labtest.Program, n, perSec int, lasts time.Duration) {
	t.Helper()
	x.began, x.ended, x.layout = map[change]bool{}, map[change]string{}, map[change]layout{}
	var all sync.WaitGroup
	n = 100 * (n/100 + 1) * len(layouts)
	for began, done := time.Now(), 0; time.Since(began) < lasts && !t.Failed(); done++ {
		time.Sleep(time.Until(began.Add(time.Duration(done) * time.Second / time.Duration(perSec))))
		at, l := n+done, layouts[done%len(layouts)]
		all.Go(func() { x.hold(t, l, at) })
	}
	all.Wait()
	whole := func() bool {
		got := printed(t, w.Out.String())
		return !slices.ContainsFunc(slices.Collect(maps.Keys(x.ended)), func(hold change) bool { return got.began[hold] > len(got.ends[hold]) })
	}
	for deadline := time.Now().Add(8 * time.Second); !whole() && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
	}
	x.compare(t, printed(t, w.Out.String()))
}

// compare fails the test if the watch has told what did not happen.
func (x *truth) compare(t *testing.T, got told) {
	t.Helper()
	missed, of, gone, reasons := 0, map[string]int{}, 0, map[string]map[keyspace.EventKind]int{}
	for hold := range x.began {
		if got.began[hold] == 0 {
			missed++
			of[x.layout[hold].format]++
		}
	}
	for hold, n := range got.began {
		_, ours := x.layout[change{Key: hold.Key, Holder: hold.Holder}]
		check.True(t, n == 1, "%v began %d times", hold, n)
		check.True(t, ours || !x.counts(hold.Key), "%v began by what the watch says", hold)
	}
	for hold, how := range x.ended {
		kinds := got.ends[hold]
		check.True(t, len(kinds) < 2, "%v ended as %v", hold, kinds)
		if len(kinds) == 0 {
			continue
		}
		if reasons[how] == nil {
			reasons[how] = map[keyspace.EventKind]int{}
		}
		reasons[how][kinds[0]]++
		if kinds[0] == keyspace.Vanished {
			gone++
		}
		l := x.layout[hold]
		wrong := slices.Contains(untrue[how], kinds[0]) || how == deletedBySomebody && l.tells && kinds[0] == keyspace.Released && !got.open[hold]
		check.False(t, wrong, "%s %v was %s, and the watch says %s", l.format, hold, how, kinds[0])
	}
	t.Logf("%d holds, %d missed %v, %d ends are gone, %d findings outlived: %v", len(x.began), missed, of, gone, got.outlived, reasons)
	check.True(t, !testtier.Proving() || x.shortest > 100*time.Millisecond || missed <= len(x.began)/1000, "it missed %d of %d holds", missed, len(x.began))
	check.Equal(t, got.outlived, 0, "healthy clients have findings outlived")
}

// counts reports whether the holds of a key are compared.
func (x *truth) counts(key string) bool {
	for hold := range x.began {
		if hold.Key == key {
			return true
		}
	}
	return false
}

// What a watch tells of holds, how they end, and why, is what happened: in eleven formats with new keys, on a slow link,
// while the server evicts other keys and another database is emptied, while connections are ended, while slots of a
// cluster move with their locks, and while the server restarts with its data.
func TestAWatchTellsTheTruth(t *testing.T) {
	testtier.Long(t, "it holds a thousand locks")
	perSec, lasts := testtier.Size(60, 60, 2000), time.Duration(testtier.Size(4, 6, 30))*time.Second
	cache := func(rdb server.Client) { // 20 keys of 10 kB
		pipe := rdb.Pipeline()
		for range 20 {
			pipe.Set(t.Context(), fmt.Sprint("cache:", rand.Int()), strings.Repeat("x", 10_000), 0)
		}
		_, _ = pipe.Exec(t.Context())
	}
	for _, c := range []struct {
		name    string
		args    []string      // of the server
		delay   time.Duration // of each direction of the link
		every   time.Duration // between two disturbances
		disturb func(rdb, other server.Client)
		moves   bool // a cluster, whose slots move
		restart bool // the server restarts with its data
	}{
		{name: "an idle server"},
		{name: "a round trip of 100 ms", delay: 50 * time.Millisecond},
		{name: "the server evicts caches", args: []string{"--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"}, every: 20 * time.Millisecond,
			disturb: func(rdb, _ server.Client) { cache(rdb) }},
		{name: "another database is emptied", every: 50 * time.Millisecond, disturb: func(_, other server.Client) { other.FlushDB(t.Context()) }},
		{name: "connections of locktop are ended", every: 2 * time.Second, disturb: func(rdb, _ server.Client) {
			for line := range strings.Lines(rdb.ClientList(t.Context()).Val()) {
				var id int64
				if _, err := fmt.Sscanf(line, "id=%d", &id); err == nil && strings.Contains(line, "name=locktop") {
					rdb.ClientKillByFilter(t.Context(), "ID", fmt.Sprint(id))
				}
			}
		}},
		{name: "slots of a cluster move", every: 20 * time.Millisecond, moves: true},
		{name: "the server restarts with its data", args: []string{"--appendonly", "yes", "--appendfsync", "always"}, every: 3 * time.Second, restart: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if !testtier.Proving() {
				t.Parallel()
			}
			x, args := &truth{ttl: time.Minute, shortest: 100 * time.Millisecond}, []string{"watch", "--json"}
			var addr string
			var other server.Client
			if c.moves {
				cluster := servertest.ClusterForTest(t, servertest.ClusterOptions{Masters: 2})
				addr, args = cluster.Addrs()[0], append(args, "--cluster")
				x.rdb = redis.NewClusterClient(&redis.ClusterOptions{Addrs: cluster.Addrs(), MaxRedirects: 16, PoolSize: 256})
				t.Cleanup(func() { _ = x.rdb.Close() })
				c.disturb = func(server.Client, server.Client) { moveALock(t, cluster) }
			} else {
				child := servertest.RedisForTest(t, append([]string{"--databases", "2"}, c.args...)...)
				addr = child.Addr()
				x.rdb = labtest.Client(t, addr, server.ClientOptions{PoolSize: 256})
				other = labtest.Client(t, addr, server.ClientOptions{DB: 1})
				if c.restart {
					x.shortest = 300 * time.Millisecond // a watch that is not connected misses short holds
					c.disturb = func(server.Client, server.Client) { x.restart(t, child) }
				}
			}
			at := addr
			if c.delay > 0 {
				x.ttl, x.shortest = 3*time.Second, 600*time.Millisecond // two holds under one TTL leave 0.6 s of it
				link := netfault.New((&net.Dialer{}).DialContext)
				link.Delay(func() time.Duration { return c.delay })
				proxy := check.Must(link.Listen("tcp", addr))(t)
				t.Cleanup(func() { _ = proxy.Close() })
				at = proxy.Addr()
			}
			w := labtest.Start(t, append(args, "-u", "redis://"+at)...)
			n := x.teach(t, w)
			ctx, stop := context.WithCancel(t.Context())
			var disturbing sync.WaitGroup
			if c.disturb != nil {
				disturbing.Go(func() {
					for ctx.Err() == nil {
						time.Sleep(c.every)
						c.disturb(x.rdb, other)
					}
				})
			}
			x.run(t, w, n, perSec, lasts)
			stop()
			disturbing.Wait()
		})
	}
}

// restart ends the server between two requests, and starts it again with its data.
func (x *truth) restart(t *testing.T, child *server.Child) {
	x.serves.Lock()
	defer x.serves.Unlock()
	check.NoError(t, child.Kill())
	check.NoError(t, child.Restart(context.WithoutCancel(t.Context())))
}

// moveALock moves the slot of one of the keys of a cluster to its other node.
func moveALock(t *testing.T, cluster *servertest.Cluster) {
	ctx := context.WithoutCancel(t.Context())
	nodes := cluster.Nodes()
	from := rand.N(2)
	rdb := redis.NewClient(&redis.Options{Addr: nodes[from].Addr()})
	defer rdb.Close()
	key, err := rdb.RandomKey(ctx).Result()
	if err != nil {
		return // the node has no key
	}
	slot := check.Must(rdb.ClusterKeySlot(ctx, key).Result())(t)
	m := check.Must(cluster.StartMigration(ctx, int(slot), nodes[1-from]))(t)
	check.NoError(t, m.Finish(ctx))
	check.NoError(t, m.Close())
}
