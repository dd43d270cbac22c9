package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
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

// tokens returns a format of strings whose value begins with "token:".
func tokens() keyspace.Format {
	return keyspace.Format{
		About: keyspace.About{Name: "tokens"}, Type: "string",
		Probe: func(_, first string) keyspace.Confidence { return ofToken(first) },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			return keyspace.Lock{
				Kind:    keyspace.Mutex,
				Holders: []keyspace.Holder{{ID: e.Value, Depth: int(e.Len)}},
			}, ofToken(e.Value)
		},
	}
}

// hashTokens returns a format of hashes with a field whose name begins with "token:".
func hashTokens() keyspace.Format {
	return keyspace.Format{
		About: keyspace.About{Name: "hashes"}, Type: "hash",
		Probe: func(_, first string) keyspace.Confidence { return ofToken(first) },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			return keyspace.Lock{}, ofToken(e.Members[0].Name)
		},
	}
}

// queuedTokens returns a format of tokens with a queue of waiters in a key beside them.
func queuedTokens() keyspace.Format {
	f := tokens()
	f.Related = func(e keyspace.Entry) []keyspace.Companion {
		return []keyspace.Companion{{Key: e.Key + ":also", Type: "string"}, {Key: e.Key + ":queue", Type: "list"}, {Key: e.Key + ":none", Type: "zset"}}
	}
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l := keyspace.Lock{Kind: keyspace.Fair, Fence: int64(len(e.Related)), Holders: []keyspace.Holder{{ID: e.Value}}}
		for _, m := range e.Related[e.Key+":queue"].Members {
			l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name})
		}
		return l, ofToken(e.Value)
	}
	return f
}

func ofToken(value string) keyspace.Confidence {
	switch {
	case strings.HasPrefix(value, "token:"):
		return keyspace.Certain
	case strings.HasPrefix(value, "maybe:"):
		return keyspace.Possible
	default:
		return keyspace.No
	}
}

// elementsOf returns a format of keys of that type whose name begins with "lock:". Its lock shows
// what was read: one holder per element, and the length.
func elementsOf(typ string) keyspace.Format {
	return keyspace.Format{
		About: keyspace.About{Name: typ}, Type: typ,
		Match: func(key string) bool { return strings.HasPrefix(key, "lock:") },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Semaphore, Fence: e.Len}
			for _, m := range e.Members {
				l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Label: m.Value, Depth: int(m.Score)})
			}
			return l, keyspace.Certain
		},
	}
}

func connect(t testing.TB, o redis.Options) *redis.Client {
	t.Helper()
	rdb := redis.NewClient(&o)
	t.Cleanup(func() { check.ErrorIs(t, rdb.Close(), nil) })
	return rdb
}

func TestMain(m *testing.M) {
	servertest.Tests{M: m, Parallel: 20}.Run()
}

// realServer starts a redis-server and returns a client of it.
func realServer(t testing.TB, args ...string) *redis.Client {
	t.Helper()
	return connect(t, redis.Options{Addr: servertest.RedisForTest(t, args...).Addr()})
}

// do sends a command and fails the test if it returns an error.
func do(t testing.TB, rdb *redis.Client, argv ...any) any {
	t.Helper()
	reply, err := rdb.Do(t.Context(), argv...).Result()
	check.NoError(t, err, "%q", argv)
	return reply
}

func scan(t testing.TB, rdb *redis.Client, o ScanOptions) keyspace.Snapshot {
	t.Helper()
	return check.Must(NewScanner(rdb, o).Scan(t.Context()))(t)
}

func justTokens() ScanOptions {
	return ScanOptions{Formats: []keyspace.Format{tokens()}}
}

func keys(s keyspace.Snapshot) []string {
	all := []string{}
	for _, l := range s.Locks {
		all = append(all, l.Key)
	}
	return all
}

// fill sets so many ordinary keys of all types.
func fill(t testing.TB, rdb *redis.Client, n int) {
	t.Helper()
	p := rdb.Pipeline()
	for i := range n {
		key := fmt.Sprintf("ordinary:%d", i)
		switch i % 5 {
		case 0:
			p.Set(t.Context(), key, "value", time.Hour)
		case 1:
			p.HSet(t.Context(), key, "field", i)
		case 2:
			p.RPush(t.Context(), key, "element")
		case 3:
			p.SAdd(t.Context(), key, "element")
		default:
			p.ZAdd(t.Context(), key, redis.Z{Score: 1, Member: "element"})
		}
	}
	check.Must(p.Exec(t.Context()))(t)
}

func TestScanFindsEveryLockAmongOrdinaryKeys(t *testing.T) {
	rdb := realServer(t)
	fill(t, rdb, 7000)
	var want []string
	for i := range 300 {
		key := fmt.Sprintf("ordinary:lock:%03d", i)
		do(t, rdb, "SET", key, "token:"+strconv.Itoa(i), "PX", 60_000)
		want = append(want, key)
	}
	o := justTokens()
	var progress []keyspace.Cost
	early := 0
	o.Progress = func(s keyspace.Snapshot) {
		progress = append(progress, s.Cost)
		early += len(s.Locks)
	}
	o.DB = 3
	before := clock(t, rdb)
	s := scan(t, rdb, o)
	after := clock(t, rdb)
	check.True(t, !s.At.Before(before) && !s.At.After(after), "the snapshot is of %v, between %v and %v of the server", s.At, before, after)
	check.True(t, slices.Equal(keys(s), want), "found %d locks, want %d in order", len(s.Locks), len(want))
	check.True(t, s.Complete && s.Cost.Keys == 7300 && s.Cost.Scanned == 7300 && s.Cost.WaitTime > 0,
		"complete %v at a cost of %+v", s.Complete, s.Cost)
	check.True(t, slices.IsSortedFunc(progress, func(a, b keyspace.Cost) int { return int(a.Scanned - b.Scanned) }) && len(progress) >= 4,
		"the progress was %+v", progress)
	check.True(t, early == len(want), "the progress showed %d locks, want %d", early, len(want))
	l := s.Locks[0]
	check.True(t, l.Format == "tokens" && l.Confidence == keyspace.Certain && l.DB == 3 && l.Node == rdb.Options().Addr && l.Node != "",
		"found %+v", l)
	left, ok := l.TTL(s.At)
	check.True(t, ok && left >= 50*time.Second && left <= 60*time.Second && l.Holders[0].Expires.Equal(l.Expires), "it has %v left", left)
	check.True(t, s.Server.Version != "" && s.Server.Mode == "standalone" && s.Server.Role == "master" && s.Server.Addr == l.Node,
		"the server is %+v", s.Server)
}

func TestGlobsChooseTheKeys(t *testing.T) {
	rdb := realServer(t)
	for _, key := range []string{"a:1", "a:2", "b:1", "c:1"} {
		do(t, rdb, "SET", key, "token:x")
	}
	for _, c := range []struct{ globs, want []string }{
		{nil, []string{"a:1", "a:2", "b:1", "c:1"}},
		{[]string{"a:*"}, []string{"a:1", "a:2"}},
		{[]string{"a:*", "?:1"}, []string{"a:1", "a:2", "b:1", "c:1"}},
		{[]string{"[bc]:1", "d:*"}, []string{"b:1", "c:1"}},
	} {
		o := justTokens()
		o.Match = c.globs
		s := scan(t, rdb, o)
		check.True(t, slices.Equal(keys(s), c.want), "%q: found %q, want %q", c.globs, keys(s), c.want)
		check.True(t, s.Cost.Scanned == 4, "%q: %d of 4 keys were scanned", c.globs, s.Cost.Scanned)
	}
}

func TestPossibleLocksAreShownOnRequest(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "maybe:a")
	do(t, rdb, "SET", "b", "token:b")
	o := justTokens()
	few := scan(t, rdb, o)
	check.True(t, slices.Equal(keys(few), []string{"b"}) && few.NotShown() == "1 possible lock not shown", "by default it found %q, %s", keys(few), few.NotShown())
	w := watch(t, rdb, o)
	for range 3 {
		s := followed(t, w, keyspace.Snapshot.Scanned)
		check.Equal(t, s.NotShown(), few.NotShown(), "a watcher says")
	}
	o.MinConfidence = keyspace.Possible
	all := scan(t, rdb, o)
	check.True(t, slices.Equal(keys(all), []string{"a", "b"}) && all.NotShown() == "", "of those that are possible it found %q, %s", keys(all), all.NotShown())
}

// A format with a higher confidence wins over one that is listed earlier.
func TestTheSurestFormatHasALock(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "token:a")
	hesitant := func(name string, c keyspace.Confidence) keyspace.Format {
		f := tokens()
		f.Name = name
		f.Probe = nil
		f.Decode = func(keyspace.Entry) (keyspace.Lock, keyspace.Confidence) { return keyspace.Lock{}, c }
		return f
	}
	o := ScanOptions{Formats: []keyspace.Format{
		hesitant("first", keyspace.Likely), hesitant("second", keyspace.Certain), tokens(),
	}}
	s := scan(t, rdb, o)
	check.True(t, len(s.Locks) == 1 && s.Locks[0].Format == "second", "found %+v", s.Locks)
}

func TestCompanionsAreReadAndAreNoLocks(t *testing.T) {
	f := queuedTokens()
	f.Companion = func(key string) bool { return strings.HasSuffix(key, ":latch") }
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "token:a")
	do(t, rdb, "SET", "a:also", "token:b")
	do(t, rdb, "SET", "a:latch", "token:c")
	do(t, rdb, "SET", "gone:latch", "token:d")
	do(t, rdb, "RPUSH", "a:queue", "first", "second")
	do(t, rdb, "SET", "b", "other:b") // of a format without companions
	do(t, rdb, "SET", "b:also", "token:b")
	others := tokens()
	others.Name, others.Probe = "others", nil
	others.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		if e.Key == "b" {
			return keyspace.Lock{}, keyspace.Certain
		}
		return keyspace.Lock{}, keyspace.No
	}
	s := scan(t, rdb, ScanOptions{Formats: []keyspace.Format{f, others}})
	check.Require(t, slices.Equal(keys(s), []string{"a", "b", "b:also"}), "found %q", keys(s))
	l := s.Locks[0]
	check.True(t, l.Fence == 2 && len(l.Waiters) == 2 && l.Waiters[1].ID == "second", "found %+v", l)
}

func TestValuesAreReadInBounds(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "lock:string", "token:"+strings.Repeat("x", 1<<20))
	for i := range 50 {
		hash, set, zset, list := []any{"HSET", "lock:hash"}, []any{"SADD", "lock:set"}, []any{"ZADD", "lock:zset"}, []any{"RPUSH", "lock:list"}
		for j := range 100 {
			name := fmt.Sprintf("%04d", 100*i+j)
			hash, set, zset, list = append(hash, name, strings.Repeat("v", 5000)), append(set, name), append(zset, 100*i+j, name), append(list, name)
		}
		do(t, rdb, hash...)
		do(t, rdb, set...)
		do(t, rdb, zset...)
		do(t, rdb, list...)
	}
	s := scan(t, rdb, ScanOptions{Formats: []keyspace.Format{
		tokens(), elementsOf("hash"), elementsOf("set"), elementsOf("zset"), elementsOf("list"),
	}})
	check.Require(t, len(s.Locks) == 5, "found %q", keys(s))
	for _, l := range s.Locks {
		if l.Format == "tokens" {
			check.True(t, len(l.Holders[0].ID) == 4096 && l.Holders[0].Depth == 1<<20+6,
				"read %d of %d bytes", len(l.Holders[0].ID), l.Holders[0].Depth)
			continue
		}
		n := len(l.Holders)
		check.True(t, n != 0 && n <= 256 && l.Fence == 5000, "%s: read %d of %d elements", l.Key, n, l.Fence)
		check.True(t, l.Format != "hash" || len(l.Holders[0].Label) == 4096,
			"kept %d bytes of a field", len(l.Holders[0].Label))
	}
}

func TestElementsComeAsTheyAre(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "HSET", "lock:hash", "b", "2", "a", "1")
	do(t, rdb, "RPUSH", "lock:list", "b", "a", "b")
	do(t, rdb, "SADD", "lock:set", "b", "a")
	do(t, rdb, "ZADD", "lock:zset", 2, "a", 1, "b")
	s := scan(t, rdb, ScanOptions{Formats: []keyspace.Format{
		elementsOf("hash"), elementsOf("list"), elementsOf("set"), elementsOf("zset"),
	}})
	want := []string{"lock:hash a=1 b=2", "lock:list b= a= b=", "lock:set a= b=", "lock:zset b= a="}
	var got []string
	for _, l := range s.Locks {
		line := l.Key
		for _, h := range l.Holders {
			line += " " + h.ID + "=" + h.Label
		}
		got = append(got, line)
	}
	check.True(t, slices.Equal(got, want), "got %q, want %q", got, want)
	zset := s.Locks[3].Holders
	check.True(t, zset[0].Depth == 1 && zset[1].Depth == 2, "the scores are %d and %d", zset[0].Depth, zset[1].Depth)
}

// Whatever a keyspace contains, locktop sends only these commands.
func TestScanOnlyReads(t *testing.T) {
	rdb := realServer(t)
	fill(t, rdb, 5000)
	do(t, rdb, "SET", "lock:string", "token:x")
	do(t, rdb, "RPUSH", "lock:list", "x")
	exact := knows(t, rdb, "pexpiretime")
	logCommands(t, rdb)
	scan(t, rdb, ScanOptions{Formats: []keyspace.Format{
		tokens(), elementsOf("hash"), elementsOf("list"), elementsOf("set"), elementsOf("zset"),
	}})
	allowed := []string{"time", "dbsize", "info", "scan", "type", "getrange", "strlen", "hrandfield", "hscan", "hlen", "lrange", "llen",
		"sscan", "scard", "zrange", "zcard", "memory usage", "object idletime", "pexpiretime", "hello", "client setinfo", "client maint_notifications"}
	if !exact { // before Redis 7
		allowed = append(allowed, "pttl")
	}
	scans := 0
	counts := make(map[string]bool)
	for _, argv := range logged(t, rdb) {
		name := strings.ToLower(argv[0])
		if slices.Contains([]string{"client", "config", "memory", "object", "debug", "pubsub"}, name) {
			name = strings.ToLower(strings.Join(argv[:2], " "))
		}
		check.True(t, slices.Contains(allowed, name), "it sent %q", argv)
		if at, limited := map[string]int{"lrange": 3, "zrange": 3, "memory usage": 4}[name]; limited { // the end, or the samples
			n, err := strconv.Atoi(argv[at])
			check.True(t, err == nil && n >= 0 && n <= 256 && (n > 0 || name != "memory usage"), "the server has to go through a whole value: %q", argv)
		}
		if i := slices.Index(argv, "count"); i > 0 && name == "scan" {
			scans++
			counts[argv[i+1]] = true
			n, err := strconv.Atoi(argv[i+1])
			check.True(t, err == nil && n <= 1000, "it sent %q", argv)
		}
	}
	check.True(t, scans >= 5000/1000, "only %d SCANs were seen", scans)
	check.True(t, counts["250"] && len(counts) != 1, "their COUNTs were %v; they should begin at 250, and then fit the server", counts)
}

// knows reports whether a server has a command.
func knows(t *testing.T, rdb *redis.Client, command string) bool {
	t.Helper()
	infos, _ := do(t, rdb, "COMMAND", "INFO", command).([]any)
	return len(infos) == 1 && infos[0] != nil
}

// logCommands makes a server record all commands from now on.
func logCommands(t *testing.T, rdb *redis.Client) {
	t.Helper()
	do(t, rdb, "CONFIG", "SET", "slowlog-max-len", "100000")
	do(t, rdb, "CONFIG", "SET", "slowlog-log-slower-than", "0")
	do(t, rdb, "SLOWLOG", "RESET")
}

// logged returns the recorded commands, without those that read the record.
func logged(t *testing.T, rdb *redis.Client) [][]string {
	t.Helper()
	entries := check.Must(rdb.SlowLogGet(t.Context(), 100_000).Result())(t)
	var all [][]string
	for _, e := range entries {
		if !strings.EqualFold(e.Args[0], "slowlog") {
			all = append(all, e.Args)
		}
	}
	return all
}

// stats returns how often each command was called.
func stats(t *testing.T, rdb *redis.Client) map[string]string {
	t.Helper()
	info := check.Must(rdb.Info(t.Context(), "commandstats").Result())(t)
	calls := make(map[string]string)
	for line := range strings.Lines(info) {
		if name, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			name, call, _ := strings.Cut(name, ":")
			calls[name] = call
		}
	}
	return calls
}

// The permissions of the user that the documentation recommends, without those
// for reading the beginning of a hash.
var readOnly = strings.Fields("reset on >secret resetchannels %R~* -@all +ping +hello +auth +select +client|setname +client|id +info +dbsize" +
	" +role +scan +type +exists +pttl +pexpiretime +strlen +getrange +hlen +hscan +hget +llen +lrange +scard +sscan +zcard +zscan +zrange +time +object|idletime")

func TestAUserWithFewRightsFindsTheLocks(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	fill(t, admin, 10_000)
	do(t, admin, "SET", "string", "token:x")
	do(t, admin, "HSET", "hash", "token:y", "1")
	rdb := userOf(t, admin, readOnly...)
	var probes atomic.Int64
	rdb.AddHook(pipelines(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		probes.Add(int64(count(cmds, func(c redis.Cmder) bool { return c.Name() == "hrandfield" })))
		return next(ctx, cmds)
	}))
	s := scan(t, rdb, ScanOptions{Formats: []keyspace.Format{tokens(), hashTokens()}})
	check.True(t, slices.Equal(keys(s), []string{"hash", "string"}) && s.Complete, "found %q", keys(s))
	// After a refusal the command is not sent again for each of the 2,001 hashes.
	check.Between(t, probes.Load(), 1, 2000, "probes of hashes")
}

func TestKeysThatMayNotBeReadArePassedOver(t *testing.T) {
	admin := realServer(t)
	do(t, admin, "SET", "open:1", "token:x")
	do(t, admin, "SET", "hidden:1", "token:x")
	do(t, admin, "SET", "hidden:2", "token:x")
	rights := slices.Clone(readOnly)
	rights[slices.Index(rights, "%R~*")] = "%R~open:*"
	s := scan(t, userOf(t, admin, rights...), justTokens())
	check.True(t, slices.Equal(keys(s), []string{"open:1"}), "found %q", keys(s))
	check.DeepEqual(t, s.Problems, []string{"Locks and waiters on " + admin.Options().Addr + " may be missing: 2 keys may not be read by this user"}, "it says")
	check.True(t, !s.Complete && s.Scanned(), "complete %v, scanned %v", s.Complete, s.Scanned())
}

// Only the missing permissions that hide something are reported. Without the commands that read the
// beginning of a value, locktop reads more and misses nothing.
func TestDeniedCommandsAreReported(t *testing.T) {
	admin := realServer(t)
	do(t, admin, "SET", "a", "token:a", "PX", "60000")
	do(t, admin, "HSET", "lock:hash", "f", "1")
	rights := strings.Fields("reset on >secret %R~* -@all +@read +scan -time -hrandfield")
	s := scan(t, userOf(t, admin, rights...), ScanOptions{Formats: []keyspace.Format{tokens(), elementsOf("hash")}})
	check.True(t, slices.Equal(keys(s), []string{"a", "lock:hash"}) && s.Complete, "found %q", keys(s))
	check.DeepEqual(t, s.Problems, []string{"this user may not run INFO, TIME"}, "it says")
	left, ok := s.Locks[0].TTL(s.At)
	check.True(t, ok && left >= 30*time.Second && left <= time.Minute+time.Second, "without the server's clock it has %v left", left)
}

// The type of a key is guessed from its name, and the guess is checked.
func TestAKeyUnlikeItsNamesakesIsFoundAllTheSame(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	for _, typ := range []string{"RPUSH", "SADD", "SET", "HSET"} {
		do(t, rdb, "FLUSHALL")
		p := rdb.Pipeline()
		for i := range 5000 {
			argv := []any{typ, fmt.Sprintf("item:%d", i), "a"}
			if typ == "HSET" {
				argv = append(argv, "b")
			}
			p.Do(t.Context(), argv...)
		}
		check.Must(p.Exec(t.Context()))(t)
		do(t, rdb, "SET", "item:777", "token:x")
		do(t, rdb, "DEL", "item:778")
		do(t, rdb, "HSET", "item:778", "token:y", "1")
		s := scan(t, rdb, ScanOptions{Formats: []keyspace.Format{tokens(), hashTokens()}})
		check.True(t, slices.Equal(keys(s), []string{"item:777", "item:778"}), "among keys made by %s it found %q", typ, keys(s))
	}
}

// userOf connects as a new user with these permissions.
func userOf(t *testing.T, admin *redis.Client, rights ...string) *redis.Client {
	t.Helper()
	check.NoError(t, servertest.SetUser(t.Context(), admin, "tester", rights...))
	return connect(t, redis.Options{Addr: admin.Options().Addr, Username: "tester", Password: "secret"})
}

func TestExpiredKeysAreNoLocks(t *testing.T) {
	rdb := connect(t, redis.Options{Addr: servertest.DebugForTest(t).Addr()})
	do(t, rdb, "DEBUG", "SET-ACTIVE-EXPIRE", "0")
	do(t, rdb, "SET", "a", "token:a", "PX", "1")
	do(t, rdb, "SET", "b", "token:b")
	set := clock(t, rdb)
	for clock(t, rdb).Sub(set) < 5*time.Millisecond { // wait until the server's clock has advanced
	}
	check.DeepEqual(t, keys(scan(t, rdb, justTokens())), []string{"b"}, "found")
}

func clock(t *testing.T, rdb *redis.Client) time.Time {
	t.Helper()
	return check.Must(rdb.Time(t.Context()).Result())(t)
}

// hiccup makes the server of a client answer with an error to one pipeline, and counts what is sent, without the greetings.
func hiccup(rdb *redis.Client, at int64, answer refusal) (sent, commands *atomic.Int64) {
	sent, commands = new(atomic.Int64), new(atomic.Int64)
	rdb.AddHook(pipelines(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if cmds[0].Name() == "hello" || cmds[0].Name() == "client" {
			return next(ctx, cmds)
		}
		commands.Add(int64(len(cmds)))
		now := sent.Add(1) == at
		err := next(ctx, cmds)
		if now {
			err = answer
			cmds[1].SetErr(err)
		}
		return err
	}))
	return sent, commands
}

// The cursor of a scan survives errors: no key is lost or read twice. The cost of repeated requests is included in the total.
func TestAFailedStepIsRepeated(t *testing.T) {
	t.Parallel()
	admin := realServer(t)
	fill(t, admin, 5000)
	var want []string
	for i := range 300 {
		want = append(want, fmt.Sprintf("ordinary:lock:%03d", i))
		do(t, admin, "SET", want[i], "token:"+strconv.Itoa(i))
	}
	for at := 2; at <= 12; at += testtier.Size(5, 1, 1) { // the first pipeline is sent before the scan
		rdb := connect(t, redis.Options{Addr: admin.Options().Addr})
		answers := []refusal{"LOADING Redis is loading the dataset in memory", "BUSY Redis is busy running a script."}
		pipelines, commands := hiccup(rdb, int64(at), answers[at%2])
		o := justTokens()
		o.Budget, o.RetryTimeout = NewBudget(1), time.Minute
		var pages []int64
		o.Progress = func(s keyspace.Snapshot) { pages = append(pages, s.Cost.Scanned) }
		s := scan(t, rdb, o)
		check.True(t, pipelines.Load() > int64(at) && slices.Equal(keys(s), want) && s.Complete,
			"with a hiccup at pipeline %d of %d it found %d locks of %d, complete: %v", at, pipelines.Load(), len(s.Locks), len(want), s.Complete)
		check.True(t, s.Cost.Commands == commands.Load(), "it says %d commands, and %d were sent", s.Cost.Commands, commands.Load())
		check.True(t, slices.IsSorted(pages), "it began anew: %v", pages)
	}
}

// The cursors of one server process are invalid in another: a scan with retries starts again, and one without is an error.
// The change of the process may go unnoticed, because the connection pool reconnects without an error.
func TestAScanDoesNotOutliveTheServerAndStartsAgainWithRetries(t *testing.T) {
	t.Parallel()
	for _, retries := range []time.Duration{0, time.Minute} {
		t.Run(retries.String(), func(t *testing.T) {
			t.Parallel()
			child := servertest.RedisForTest(t, "--appendonly", "yes", "--appendfsync", "always")
			rdb := connect(t, redis.Options{Addr: child.Addr()})
			fill(t, rdb, 5000)
			do(t, rdb, "SET", "lock:a", "token:a")
			var once sync.Once
			o := justTokens()
			o.RetryTimeout = retries
			o.Progress = func(keyspace.Snapshot) {
				once.Do(func() { check.ErrorIs(t, errors.Join(child.Kill(), child.Restart(t.Context())), nil) })
			}
			s, err := NewScanner(rdb, o).Scan(t.Context())
			found := slices.Equal(keys(s), []string{"lock:a"}) && s.Complete && s.Cost.Scanned == 5001
			check.True(t, (err == nil) == (retries > 0) && (err != nil || found),
				"found %q, complete: %v, at a cost of %+v: %v", keys(s), s.Complete, s.Cost, err)
		})
	}
}

// occupy keeps the server busy until release is called.
func occupy(t *testing.T, rdb *redis.Client) (release func()) {
	t.Helper()
	other := connect(t, redis.Options{Addr: rdb.Options().Addr, MaxRetries: -1, ReadTimeout: time.Minute})
	over := make(chan error, 1)
	go func() { over <- other.Eval(context.Background(), "while true do end", nil).Err() }()
	waitFor(t, func() bool { return redis.HasErrorPrefix(rdb.Ping(t.Context()).Err(), "BUSY") })
	return func() {
		check.ErrorIs(t, rdb.ScriptKill(context.Background()).Err(), nil)
		<-over
	}
}

// When authentication fails, go-redis leaves the commands without an error.
func TestAnAccountThatIsSwitchedOffIsAnError(t *testing.T) {
	admin := realServer(t)
	do(t, admin, "SET", "a", "token:a")
	rdb := userOf(t, admin, readOnly...)
	s := NewScanner(rdb, justTokens())
	f := NewWatcher(s)
	until(t, f, complete)
	do(t, admin, "ACL", "SETUSER", "tester", "off")
	do(t, admin, "CLIENT", "KILL", "USER", "tester")
	got, err := f.Snapshot(t.Context())
	check.True(t, err != nil, "following, it got %+v", got)
	got, err = s.Scan(t.Context())
	check.True(t, err != nil, "scanning, it got %+v", got)
	do(t, admin, "ACL", "SETUSER", "tester", "on")
	check.DeepEqual(t, keys(until(t, f, complete)), []string{"a"}, "when it may again, it finds")
}

// An error for one command is reported even if the others have replies.
func TestAnyAnswerThatIsNoneIsAnError(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "a", "token:a")
	for _, name := range []string{"time", "scan", "getrange", "strlen", "pexpiretime"} {
		faulty := connect(t, redis.Options{Addr: rdb.Options().Addr})
		faulty.AddHook(loading(name))
		s, err := NewScanner(faulty, justTokens()).Scan(t.Context())
		check.True(t, redis.HasErrorPrefix(err, "LOADING"), "%s goes wrong, and it got %+v, %v", name, s, err)
	}
	faulty := connect(t, redis.Options{Addr: rdb.Options().Addr})
	faulty.AddHook(loading("info"))
	faulty.AddHook(loading("dbsize"))
	check.DeepEqual(t, keys(scan(t, faulty, justTokens())), []string{"a"}, "without what the server says of itself it finds")
	f := tokens()
	f.Related = func(keyspace.Entry) []keyspace.Companion {
		return []keyspace.Companion{{Key: "a:fence", Type: "string"}}
	}
	do(t, rdb, "SET", "a:fence", "1")
	faulty.AddHook(pipelines(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "getrange" && c.Args()[1] == "a:fence" }) {
			return refusal("LOADING Redis is loading the dataset in memory")
		}
		return next(ctx, cmds)
	}))
	read, err := NewScanner(faulty, ScanOptions{Formats: []keyspace.Format{f}}).ReadKey(t.Context(), "a")
	check.True(t, err != nil && len(read.Locks) == 0, "if the companion of a key cannot be read, it got %+v, %v", read.Locks, err)
}

// loading is a hook that makes a server answer one command with LOADING.
func loading(name string) pipelines {
	return func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		err := next(ctx, cmds)
		for _, c := range cmds {
			if c.Name() == name {
				c.SetErr(refusal("LOADING Redis is loading the dataset in memory"))
				err = cmp.Or(err, c.Err())
			}
		}
		return err
	}
}

// pipelines is a hook for the pipelines of a client.
type pipelines func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error

func (pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { return p(ctx, cmds, next) }
}

// before makes a client call a function once, before a pipeline with a command, or before any if that is "". The
// returned pointer gets the function.
func before(rdb *redis.Client, command string) *atomic.Pointer[func()] {
	var pending atomic.Pointer[func()]
	rdb.AddHook(pipelines(func(ctx context.Context, cmds []redis.Cmder, next redis.ProcessPipelineHook) error {
		if command == "" || slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == command }) {
			if call := pending.Swap(nil); call != nil {
				(*call)()
			}
		}
		return next(ctx, cmds)
	}))
	return &pending
}

// refusal is an error reply of the server.
type refusal string

func (r refusal) Error() string { return string(r) }
func (r refusal) RedisError()   {}

func TestAScanEndsWithItsContext(t *testing.T) {
	rdb := realServer(t)
	fill(t, rdb, 5000)
	ctx, cancel := context.WithCancel(t.Context())
	o := justTokens()
	o.Progress = func(keyspace.Snapshot) { cancel() }
	_, err := NewScanner(rdb, o).Scan(ctx)
	check.True(t, errors.Is(err, context.Canceled), "got %v", err)
}

// A scan ends with its context while it waits, for an answer or for the budget.
func TestAScanThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	l := check.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	spent := NewBudget(0.001)
	spent.charge(time.Hour, 0, time.Now())
	ended := make(chan error, 2)
	for addr, o := range map[string]ScanOptions{l.Addr().String(): justTokens(), realServer(t).Options().Addr: {Budget: spent}} {
		rdb := connect(t, redis.Options{Addr: addr, ContextTimeoutEnabled: true, ReadTimeout: time.Hour, MaxRetries: -1})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		go func() {
			_, err := NewScanner(rdb, o).Scan(ctx)
			ended <- err
		}()
	}
	for range cap(ended) {
		select {
		case err := <-ended:
			late, timeout := errors.AsType[net.Error](err)
			check.True(t, errors.Is(err, context.DeadlineExceeded) || timeout && late.Timeout(), "got %v", err)
		case <-time.After(time.Minute):
			t.Error("it goes on")
		}
	}
}

func TestBinaryKeysAndValuesSurviveVerbatim(t *testing.T) {
	rdb := realServer(t)
	want := map[string]string{
		"lock:\x1b[2J\x1b]0;x\x07":     "token:\x00\xff\xfe\x1b[31m",
		"":                             "token:empty name",
		"\x00\xff\n\r":                 "token:\r\n",
		strings.Repeat("long", 20_000): "token:long",
	}
	for key, value := range want {
		do(t, rdb, "SET", key, value)
	}
	got := make(map[string]string)
	for _, l := range scan(t, rdb, justTokens()).Locks {
		got[l.Key] = l.Holders[0].ID
	}
	check.True(t, maps.Equal(got, want), "found %d of them: %.300q", len(got), got)
}

// However slow the machine, the server time used is at most the budget's share of the elapsed time.
//
// Promise P8.
func TestAScanKeepsToItsBudget(t *testing.T) {
	t.Parallel()
	rdb := realServer(t)
	fill(t, rdb, 20_000)
	o := justTokens()
	o.Budget = NewBudget(0.05)
	begin := time.Now()
	s := scan(t, rdb, o)
	passed := time.Since(begin)
	check.Require(t, s.Complete && s.Cost.ServerTime > 0, "complete %v at a cost of %+v", s.Complete, s.Cost)
	// The budget may have saved 200 ms before, and the scan does not wait after the last step.
	check.True(t, s.Cost.ServerTime <= (passed+200*time.Millisecond)/10, "in %v the server was busy for %v", passed, s.Cost.ServerTime)
}

// The server counts the commands, too.
func TestAMeterCountsWhatTheServerCounts(t *testing.T) {
	rdb := realServer(t)
	fill(t, rdb, 1000)
	own := connect(t, redis.Options{Addr: rdb.Options().Addr})
	do(t, rdb, "CONFIG", "RESETSTAT")
	var meter Meter
	o := justTokens()
	o.Meter = &meter
	s := scan(t, own, o)
	u := meter.Usage()
	calls := stats(t, rdb) // its own INFO is not in it
	var all int64
	for command, n := range u.Commands {
		all += n
		said := cmp.Or(calls[command], calls[command+"|idletime"]) // since Redis 7
		check.True(t, strings.HasPrefix(said, fmt.Sprintf("calls=%d,", n)), "%d × %s, and the server says %s", n, command, said)
	}
	check.True(t, all == s.Cost.Commands && u.ServerTime == s.Cost.ServerTime && u.Commands["scan"] != 0 && u.ServerTime != 0, "the meter says %v, the snapshot %+v", u, s.Cost)
}

// A known scan keeps its time until the next one is complete.
func TestASnapshotSaysWhenTheKeysWereLastScanned(t *testing.T) {
	rdb := realServer(t)
	began := time.Now()
	f := watch(t, rdb, justTokens())
	node := func(s keyspace.Snapshot) keyspace.Node { return s.Nodes[0] }
	s := until(t, f, complete)
	first := node(s)
	check.True(t, !first.ScannedAt.Before(began) && !first.ScannedAt.After(time.Now()) && first.ScanTime > 0 &&
		first.ScanTime <= time.Since(began), "scanned at %v in %v; the watch began at %v", first.ScannedAt, first.ScanTime, began)
	until(t, f, func(s keyspace.Snapshot) bool { return node(s).ScannedAt.After(first.ScannedAt) })
}
