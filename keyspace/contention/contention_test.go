package contention_test

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/formats"
	"locktop/keyspace/holds"
)

var began = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// after returns the time some milliseconds after the begin.
func after(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }

// lock returns a lock as a read shows it, held by the holders.
func lock(key, format string, holders ...string) *keyspace.Lock {
	l := &keyspace.Lock{Key: key, Format: format, Kind: keyspace.Mutex}
	for _, id := range holders {
		l.Holders = append(l.Holders, keyspace.Holder{ID: id, Depth: 1})
	}
	return l
}

func snapshot(ms int, locks ...*keyspace.Lock) keyspace.Snapshot {
	return keyspace.Snapshot{At: after(ms), Locks: locks}
}

// waiting returns a lock as a read shows it, with waiters.
func waiting(l *keyspace.Lock, ids ...string) *keyspace.Lock {
	for _, id := range ids {
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: id})
	}
	return l
}

func ledger() *contention.Ledger { return contention.NewLedger(formats.All()) }

// only returns the only class of a report.
func only(t *testing.T, r contention.Report) contention.Class {
	t.Helper()
	check.Require(t, len(r.Classes) == 1, "there are %d classes: %+v", len(r.Classes), r.Classes)
	return r.Classes[0]
}

// A hold is to blame up to the next one: while the lock is free, its clients wait until they hear
// of the release.
func TestStoredWaitersBlameTheHoldThatBlocksThem(t *testing.T) {
	t.Parallel()
	g := ledger()
	g.Snapshot(snapshot(0, lock("print:4711", "redisson")))
	g.Snapshot(snapshot(1000, lock("print:4711", "redisson", "a")))
	held := waiting(lock("print:4711", "redisson", "a"), "b", "c")
	held.Holders[0].Seen = after(1000) // a watch keeps it
	g.Snapshot(snapshot(2000, held))
	g.Snapshot(snapshot(5000, waiting(lock("print:4711", "redisson"), "b", "c")))
	g.Snapshot(snapshot(6000, waiting(lock("print:4711", "redisson", "b"), "c")))
	g.Snapshot(snapshot(10000, waiting(lock("print:4711", "redisson", "b"), "c")))
	r := g.Report()
	want := []contention.Blocked{
		{Lock: keyspace.ID{Key: "print:4711"}, Holder: "a", Waiter: "b", Waited: 4 * time.Second},
		{Lock: keyspace.ID{Key: "print:4711"}, Holder: "a", Waiter: "c", Waited: 4 * time.Second},
		{Lock: keyspace.ID{Key: "print:4711"}, Holder: "b", Waiter: "c", Waited: 4 * time.Second},
	}
	check.True(t, slices.Equal(r.Waits, want), "the waits are %+v", r.Waits)
	b := r.Blames[0]
	check.True(t, len(r.Blames) == 2 && b.Holder == "a" && b.Clients == 2 && b.Total == 8*time.Second && b.Longest == 4*time.Second &&
		b.Source == holds.Stored, "to blame are %+v", r.Blames)
	c := only(t, r)
	check.True(t, c.Name == "print:*" && c.Locks == 1 && c.Held == 0.8 && c.MostWaiting == 2 && c.Blocked == 1.2 && c.Worst == "a" &&
		c.WorstShare >= 0.66 && c.WorstShare <= 0.67, "the class is %+v", c)
	check.True(t, c.P50 == (contention.Quantile{Duration: 8 * time.Second, AtLeast: true}) && c.P99 == c.P50,
		"half of the waits take %+v, 99 %% %+v; the second one still goes on", c.P50, c.P99)
}

func TestWaitersWithoutNamesAreCounted(t *testing.T) {
	t.Parallel()
	g := ledger()
	g.Snapshot(snapshot(0, lock("a", "redisson", "x")))
	three := lock("a", "redisson", "x")
	three.Waiting = 3
	g.Snapshot(snapshot(1000, three))
	g.Snapshot(snapshot(3000, three))
	g.Snapshot(snapshot(4000, lock("a", "redisson", "x")))
	r := g.Report()
	c := only(t, r)
	check.True(t, c.Waited == 9*time.Second && c.MostWaiting == 3 && c.Source == holds.Stored && c.P50.AtLeast, "the class is %+v", c)
	b := r.Blames[0]
	check.True(t, b.Clients == 3 && b.Total == 9*time.Second && b.Longest == 3*time.Second, "to blame is %+v", b)
}

// A client that asks at least every 2 s waits. One request alone is no wait.
func TestALockThatIsAskedForAgainAndAgainHasAWaiter(t *testing.T) {
	t.Parallel()
	g := ledger()
	for i, ms := range []int{0, 1000, 2000, 3000, 9000, 10000} {
		l := lock("a", "redsync", "x")
		if i > 0 {
			l.AskedAt = after(ms)
		}
		g.Snapshot(snapshot(ms, l))
	}
	c := only(t, g.Report())
	check.True(t, c.Source == holds.Asked && c.Waited == 3*time.Second && c.MostWaiting == 1 && c.Worst == "x", "the class is %+v", c)
}

// commands gives the ledger commands, each at a number of milliseconds: its client, a colon, and
// its words; without a client it is one of a script.
func commands(g *contention.Ledger, at ...any) {
	for i := 0; i < len(at); i += 2 {
		client, words, _ := strings.Cut(at[i+1].(string), ": ")
		if client != "" {
			client += ":1"
		}
		g.Command(after(at[i].(int)), client, 0, strings.Fields(words))
	}
}

const (
	tokenA = "kFdoYH0xKruSNwCHu3t97w=="
	tokenB = "WIVWsw3WURePr9+/POx+WQ=="
	tokenC = "AyrY1jSWIklnQfs/yqPslg=="
)

func TestWhatMonitorShowsOfAWait(t *testing.T) {
	t.Parallel()
	const a, b, c = "set lock:a " + tokenA + " nx px 5000", "set lock:a " + tokenB + " nx px 5000", "set lock:a " + tokenC + " nx px 5000"
	for _, one := range []struct {
		name     string
		commands []any
		waited   map[string]int // ms by waiter
		atLeast  bool
		tries    int
	}{
		{"it ends with the success", []any{500, "x: " + b, 600, "x: " + b, 700, ": DEL lock:a", 750, "x: " + b}, map[string]int{"x:1": 250}, false, 3},
		{"it ends with the last attempt of a client that gives up", []any{500, "x: " + b, 600, "x: " + b}, map[string]int{"x:1": 100}, false, 2},
		{"it goes on at the end", []any{9700, "x: " + b, 9800, "x: " + b, 9900, "x: " + b}, map[string]int{"x:1": 300}, true, 3},
		{"it may have begun before", []any{5, "x: " + b, 105, "x: " + b}, map[string]int{"x:1": 100}, true, 2},
		{"a single attempt is no wait", []any{100, "x: " + b, 200, "y: " + c}, nil, false, 2},
		{"connections of a pool, one token", []any{500, "x: " + b, 600, "y: " + b, 700, "z: " + b}, map[string]int{tokenB: 200}, false, 3},
		{"one connection, a token for each try, is one client", []any{500, "x: " + b, 600, "x: " + c}, map[string]int{"x:1": 100}, false, 2},
		{"one connection that asks every minute is none", []any{100, "x: " + b, 7000, "x: " + c}, nil, false, 2},
		{"EVALSHA without the script, and EVAL with it, are one", []any{500, "x: evalsha 1f 1 lock:a " + tokenB + " 5000", 501, "x: eval s 1 lock:a " + tokenB + " 5000"}, nil, false, 1},
		{"but a deletion between them lets the second one succeed", []any{500, "x: " + b, 501, ": DEL lock:a", 502, "x: evalsha 1f 1 lock:a " + tokenB + " 5000", 600, "y: " + c, 700, "y: " + c, 800, ": DEL lock:a", 801, "y: " + c}, map[string]int{"x:1": 2, "y:1": 201}, false, 5},
		{"renewals of the holder", []any{100, "x: evalsha 1f 1 lock:a " + tokenA + " 5000", 200, "x: evalsha 1f 1 lock:a " + tokenA + " 5000"}, nil, false, 0},
		{"reads, and releases of others", []any{100, "x: get lock:a", 200, "x: get lock:a", 300, "x: evalsha 1f 1 lock:a " + tokenB, 400, "x: evalsha 1f 1 lock:a " + tokenB}, nil, false, 0},
		{"renewals of a lock that is lost", []any{100, ": DEL lock:a", 110, "x: " + b, 200, ": DEL lock:a", 210, "y: " + c, 300, "x: evalsha 1f 1 lock:a " + tokenB + " 5000", 400, "x: evalsha 1f 1 lock:a " + tokenB + " 5000"}, nil, false, 2},
		{"another lock", []any{100, "x: set lock:b " + tokenB + " nx", 200, "x: set lock:b " + tokenB + " nx"}, nil, false, 0},
	} {
		g := ledger()
		g.Snapshot(snapshot(0, lock("lock:a", "redsync", tokenA)))
		commands(g, one.commands...)
		g.Monitored(contention.Span{From: began, Until: after(10000)})
		g.Snapshot(snapshot(10000, lock("lock:a", "redsync", tokenA)))
		r := g.Report()
		got := make(map[string]int)
		for _, w := range r.Waits {
			got[w.Waiter] += int(w.Waited.Milliseconds())
		}
		k := only(t, r)
		check.True(t, maps.Equal(got, one.waited) && k.P50.AtLeast == one.atLeast && k.Attempts == one.tries,
			"%s: the waits are %v, want %v; %+v", one.name, got, one.waited, k)
	}
}

// A token may name its client, also one that never holds the lock.
func TestAWaiterHasTheLabelOfItsToken(t *testing.T) {
	t.Parallel()
	g := ledger()
	g.Snapshot(snapshot(0, lock("lock:a", "set-nx", "1")))
	const try = `x: set lock:a {"owner":"etl-2","pid":318} nx`
	commands(g, 500, try, 600, try)
	g.Monitored(contention.Span{From: began, Until: after(10000)})
	g.Snapshot(snapshot(10000, lock("lock:a", "set-nx", "1")))
	w := g.Report().Waits
	check.True(t, len(w) == 1 && w[0].Waiter == "etl-2" && w[0].Waited == 100*time.Millisecond, "the waits are %+v", w)
}

// Attempts at a semaphore with free permits, and of readers while others read, are no waits.
func TestOnlyAFullLockRefuses(t *testing.T) {
	t.Parallel()
	for limit, want := range map[int]int{2: 1, 3: 0} {
		l := lock("gpu", "locktop-semaphore", "a~01a20e38-003e-728b-bd7a-a937a0ccff21", "b~01a20e38-003e-7880-bfe0-003529967b2a")
		l.Kind, l.Limit = keyspace.Semaphore, limit
		g := ledger()
		g.Snapshot(snapshot(0, l))
		for ms := 100; ms < 1000; ms += 100 {
			commands(g, ms, fmt.Sprintf("x: evalsha a3 1 gpu c~01a20e38-0040-72ef-bda0-d6cbc401%04d 5000 2 limit", ms))
		}
		g.Monitored(contention.Span{From: began, Until: after(1000)})
		g.Snapshot(snapshot(1000, l))
		r := g.Report()
		check.Equal(t, len(r.Waits), 2*want, "waits with %d permits, of which each holder has a share", limit)
	}
}

func TestOrdinaryCommandsMakeNoWaiters(t *testing.T) {
	t.Parallel()
	g := ledger()
	r := rand.New(rand.NewPCG(1, 2))
	locks := []*keyspace.Lock{lock("lock:a", "redsync", tokenA), lock("job:1", "redisson", "8743c9c0-0795-4907-87fd-6c719a6b4586:52"), lock("lock:report", "set-nx", "1")}
	g.Snapshot(snapshot(0, locks...))
	keys := []string{"lock:a", "job:1", "lock:report", "user:4711", "cart:17", "queue:mail", "session:8f14"}
	for i := range 100_000 {
		key, n := keys[r.IntN(len(keys))], strconv.Itoa(r.IntN(1000))
		token := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%016x", r.Uint64()))
		free := keys[3+r.IntN(len(keys)-3)] // no lock
		client := fmt.Sprintf("10.0.0.%d:%d", r.IntN(20), 40_000+r.IntN(50))
		g.Command(began.Add(time.Duration(i)*200*time.Microsecond), client, 0, [][]string{
			{"GET", key}, {"TTL", key}, {"EXISTS", key}, {"TYPE", key}, {"OBJECT", "idletime", key}, {"HGETALL", key}, {"MGET", key, free},
			{"SET", free, token, "EX", n}, {"SET", free, token, "NX", "EX", n}, {"SETNX", free, n}, {"HSET", free, "f", n}, {"INCR", free}, {"DEL", free},
			{"EVALSHA", token, "1", free, token, n}, {"EVALSHA", token, "0", key}, {"EVAL", "return 1", "1", key}, {"EVALSHA", token, "1", free, key, n},
			{"EVALSHA", token, "1", "lock:a", tokenA, n}, {"EVALSHA", token, "1", "job:1", n, "8743c9c0-0795-4907-87fd-6c719a6b4586:52"}, // renewals
			{"LPUSH", free, key}, {"PUBLISH", "news", key}, {"SADD", "locks", key}, {"ZADD", free, n, key}, {"PING"}, {"EXPIRE", key, n}, {"PEXPIRE", key, n, "NX"},
		}[r.IntN(26)])
	}
	g.Monitored(contention.Span{From: began, Until: after(20000)})
	g.Snapshot(snapshot(20000, locks...))
	report := g.Report()
	check.True(t, len(report.Waits) == 0 && len(report.Blames) == 0, "%d waits are invented: %+v", len(report.Waits), report.Waits)
}

func TestClassesAreInTheOrderOfTheirWaiting(t *testing.T) {
	t.Parallel()
	g := ledger()
	free := []*keyspace.Lock{lock("idle:1", "redsync"), lock("order:1", "redisson", "a"), lock("order:2", "redisson", "b"), lock("stock:1", "redisson", "c")}
	g.Snapshot(snapshot(0, free...))
	busy := func() []*keyspace.Lock {
		return []*keyspace.Lock{lock("idle:1", "redsync"), waiting(lock("order:1", "redisson", "a"), "w"), waiting(lock("order:2", "redisson", "b"), "v", "w"), waiting(lock("stock:1", "redisson", "c"), "w")}
	}
	g.Snapshot(snapshot(1000, busy()...))
	g.Snapshot(snapshot(2000, busy()...))
	r := g.Report()
	var names []string
	for _, c := range r.Classes {
		names = append(names, fmt.Sprintf("%s %d %.1f %s", c.Name, c.Locks, c.Blocked, c.Worst))
	}
	check.DeepEqual(t, names, []string{"order:* 2 1.5 b", "stock:* 1 0.5 c", "idle:* 1 0.0 "}, "the classes are")
	check.True(t, r.Blames[0].Holder == "b" && r.Blames[0].Lock.Key == "order:2" && r.Watched.Duration() == 2*time.Second &&
		r.Monitored.Duration() == 0, "the report is %+v", r)
}

// shapes are the tokens that one client makes, a new one for each try.
var shapes = map[string]func(try int) string{
	"UUID":             func(i int) string { return fmt.Sprintf("0199f3a4-6f00-7000-8000-%012d", i) },
	"base64":           func(i int) string { return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%016x", i*7919)) },
	"raw bytes":        func(i int) string { return fmt.Sprintf("\xdf?\x9b\xb5:.y\xfdg%020d", i) },
	"time":             func(i int) string { return strconv.Itoa(1_795_848_791_517 + 50*i) },
	"name, time":       func(i int) string { return fmt.Sprintf("redis_%d_zhv61nln2q0", 1_795_848_786_348+50*i) },
	"a number below 1": func(i int) string { return fmt.Sprintf("0.68400643857%05d", i) },
	"time in seconds":  func(i int) string { return strconv.Itoa(1_795_848_791 + i/20) },
	"one of 1000":      func(i int) string { return strconv.Itoa(1 + i*7919%1000) },
	"a flag":           func(int) string { return "1" },
	"the same":         func(int) string { return tokenC },
	"base64url": func(i int) string {
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%08d\xff\xfb\xfe>?~~~", i))
	},
}

// A connection is a client, whatever its tokens look like, and whatever holds the lock.
func TestAConnectionIsAClient(t *testing.T) {
	t.Parallel()
	for name, token := range shapes {
		for _, format := range []string{"set-nx", "redislock"} {
			for _, pollers := range []int{1, 2} {
				if name == "time in seconds" && pollers == 2 {
					continue // connections with one token may be those of a pool
				}
				g := ledger()
				l := lock("lock:a", format, token(5000))
				g.Snapshot(snapshot(0, l))
				for i := range 20 * 9 * pollers { // from 500 ms on, each 50 ms
					g.Command(after(500+50*(i/pollers)+i%pollers), fmt.Sprintf("10.0.0.7:%d", 40_000+i%pollers), 0, []string{"SET", "lock:a", token(i), "NX", "PX", "5000"})
				}
				g.Clients([]keyspace.Client{{Addr: "10.0.0.7:40000", Name: "web-1"}, {Addr: "10.0.0.7:40001", Name: "web"}, {Addr: "10.0.0.9:1", Name: "web"}})
				g.Monitored(contention.Span{From: began, Until: after(10_000)})
				g.Snapshot(snapshot(10_000, l))
				r := g.Report()
				k := only(t, r)
				want := time.Duration(pollers) * 9500 * time.Millisecond
				check.True(t, k.MostWaiting == pollers && k.Attempts == 180*pollers && (k.Waited-want).Abs() <= 100*time.Millisecond, "%s, %s: %d waiters, %v, want %d, %v", name, format, k.MostWaiting, k.Waited, pollers, want)
				names := []string{"web-1", "10.0.0.7:40001 web"}
				for _, w := range r.Waits {
					check.True(t, name == "base64" || slices.Contains(names, w.Waiter), "%s, %s: %+v waits", name, format, w)
					check.Equal(t, w.Holder == "", slices.Contains([]string{"a flag", "the same", "one of 1000"}, name), "%s: the holder %q is not known", name, w.Holder)
				}
			}
		}
	}
}

// On a busy machine a read has an earlier time than the command whose effect it shows.
func TestAReadBeforeItsCommandMakesNoFlagOfAToken(t *testing.T) {
	t.Parallel()
	const before, holder, waiter = "5f0c9a4e-2d3b-4c8a-9e1f-7a6b5c4d3e2f", "b1d2c3e4-f5a6-4b7c-8d9e-0f1a2b3c4d5e", "d4f5a6b7-b1d2-4b7c-8d9e-0f1a2b3c4d5e"
	g := ledger()
	set := func(ms int, client, token string) {
		g.Command(after(ms), client, 0, []string{"SET", "lock:a", token, "NX", "PX", "5000"})
	}
	g.Snapshot(snapshot(0, lock("lock:a", "set-nx", before)))
	set(100, "10.0.0.7:1", waiter)
	g.Snapshot(snapshot(300, lock("lock:a", "set-nx", holder)))
	set(310, "10.0.0.7:2", holder) // the command of this read
	for ms := 320; ms < 2000; ms += 50 {
		set(ms, "10.0.0.7:1", waiter)
	}
	g.Monitored(contention.Span{From: began, Until: after(2000)})
	for _, w := range g.Report().Waits {
		check.True(t, w.Holder != "", "%+v waits for nobody", w)
	}
}

// Two owners deadlock that poll for the lock of each other: their attempts are the evidence.
func TestADeadlockOfClientsThatPollIsSeen(t *testing.T) {
	t.Parallel()
	const thread1, thread2 = "8743c9c0-0795-4907-87fd-6c719a6b4586:1", "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11:7"
	for _, c := range []struct {
		name, a, b string   // who holds the locks a and b
		poll       []string // for 3 s
		once       []string // before
		want       string
		from, to   int // of the polls; 0, 0 = 100 to 3000
	}{
		{"a token for all locks", "svc-a", "svc-b", []string{"x: set b svc-a nx", "y: set a svc-b nx"}, nil, "possible-deadlock: Possible deadlock between processes: svc-a waits for b of svc-b, svc-b waits for a of svc-a. No deadline ends it.", 0, 0},
		{"connections of a pool", "svc-a", "svc-b", []string{"x: set b svc-a nx", "z: set b svc-a nx", "y: set a svc-b nx"}, nil, "possible-deadlock", 0, 0},
		{"threads", thread1, thread2, []string{"x: set b " + thread1 + " nx", "y: set a " + thread2 + " nx"}, nil, "deadlock: Deadlock: ", 0, 0},
		{"a connection that has acquired a lock", "", "", []string{"x: set b " + tokenA + " nx", "y: set a " + tokenB + " nx"}, []string{"x: set a one nx", "y: set b two nx"}, "possible-deadlock: Possible deadlock between processes: x:1 waits for b of y:1, y:1 waits for a of x:1.", 0, 0},
		{"a connection of several threads", "", "", []string{"x: set b " + tokenA + " nx", "x: set c " + tokenA + " nx", "y: set a " + tokenB + " nx"}, []string{"x: set a one nx", "y: set b two nx"}, "", 0, 0},
		{"a connection whose tokens are threads", "", "", []string{"x: set b " + thread1 + " nx", "y: set a " + thread2 + " nx"}, []string{"x: set a one nx", "y: set b two nx"}, "", 0, 0},
		{"nobody polls", "svc-a", "svc-b", nil, nil, "", 0, 0},
		{"one of them tries once", "svc-a", "svc-b", []string{"x: set b svc-a nx"}, []string{"y: set a svc-b nx"}, "", 0, 0},
		{"a value that all clients write", "1", "2", []string{"x: set b 1 nx", "y: set a 2 nx"}, nil, "", 0, 0},
		{"they give up", "svc-a", "svc-b", []string{"x: set b svc-a nx", "y: set a svc-b nx"}, nil, "", 100, 1500},
		{"they have just begun", "svc-a", "svc-b", []string{"x: set b svc-a nx", "y: set a svc-b nx"}, nil, "", 2500, 3000},
	} {
		last := []*keyspace.Lock{lock("a", "set-nx", cmp.Or(c.a, "one")), lock("b", "set-nx", cmp.Or(c.b, "two")), lock("c", "set-nx", "svc-c")}
		for _, l := range last {
			l.Holders[0].Seen = after(60)
		}
		first, g := last, ledger()
		if c.a == "" {
			first = []*keyspace.Lock{lock("a", "set-nx"), lock("b", "set-nx"), last[2]}
		}
		g.Snapshot(snapshot(0, first...))
		for _, one := range c.once {
			commands(g, 50, one)
		}
		g.Snapshot(snapshot(60, last...))
		for ms := cmp.Or(c.from, 100); ms < cmp.Or(c.to, 3000); ms += 100 {
			for _, one := range c.poll {
				commands(g, ms, one)
			}
		}
		g.Monitored(contention.Span{From: began, Until: after(3000)})
		g.Snapshot(snapshot(3000, last...))
		got := ""
		for _, f := range g.Report().Findings {
			got += f.ID + ": " + f.Text
		}
		check.True(t, c.from == 0 || len(g.Waiters(snapshot(3000, last...), nil)) == 0, "%s: a client waits that may not", c.name)
		check.True(t, strings.HasPrefix(got, c.want) && (c.want != "" || got == ""), "%s: the findings are %q, want %q", c.name, got, c.want)
	}
}
