package proofs

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/lab/internal/labtest"
)

// rawClient is a connection that sends commands one by one.
type rawClient struct {
	conn    net.Conn
	replies *bufio.Reader
	mu      sync.Mutex
}

func dialRaw(t *testing.T, addr string) *rawClient {
	t.Helper()
	conn := check.Must(net.Dial("tcp", addr))(t)
	t.Cleanup(func() { conn.Close() })
	return &rawClient{conn: conn, replies: bufio.NewReader(conn)}
}

// run sends a command whose reply is one line.
func (c *rawClient) run(argv ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(argv))
	for _, arg := range argv {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := c.conn.Write([]byte(b.String())); err != nil {
		return err
	}
	line, err := c.replies.ReadString('\n')
	if err == nil && line[0] == '-' {
		err = errors.New(line)
	}
	return err
}

// repeat sends commands until ctx ends. The returned function waits for the end.
func (c *rawClient) repeat(ctx context.Context, every time.Duration, command func(i int) []string) (wait func()) {
	var renewing sync.WaitGroup
	renewing.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = c.run(command(i)...)
			}
		}
	})
	return renewing.Wait
}

func (c *rawClient) addr() string { return c.conn.LocalAddr().String() }

// crowd is a server with clients, of which some are busy with ordinary commands and with
// those of other locks.
type crowd struct {
	rdb  server.Client
	idle []*rawClient
}

const renewScript = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0"

func gather(t *testing.T, clients, busy int) *crowd {
	t.Helper()
	c := &crowd{rdb: labtest.Client(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{})}
	addr := servertest.AddrOf(c.rdb)
	ctx, stop := context.WithCancel(context.Background())
	var waits []func()
	t.Cleanup(func() {
		stop()
		for _, wait := range waits {
			wait()
		}
	})
	for i := range clients {
		one := dialRaw(t, addr)
		check.NoError(t, one.run("PING"))
		if i >= busy {
			c.idle = append(c.idle, one)
			continue
		}
		rng := rand.New(rand.NewPCG(uint64(i), 2))
		waits = append(waits, one.repeat(ctx, time.Duration(50+rng.IntN(450))*time.Millisecond, func(int) []string {
			key := fmt.Sprintf("other:%d", i)
			commands := [][]string{
				{"SET", key, "x", "PX", "60000"}, {"EXISTS", key}, {"INCR", key + ":n"}, {"HSET", key + ":h", "f", "v"},
				{"PUBLISH", "news", "x"}, {"EVAL", renewScript, "1", key, "x", "60000"}, {"STRLEN", key}, {"PTTL", key},
			}
			return commands[rng.IntN(len(commands))]
		}))
	}
	return c
}

// investigate lets a client hold and renew a lock, and watches until one is named. It also
// returns the number of changes.
func (c *crowd) investigate(t *testing.T, trial int, period, most time.Duration) (inspect.Investigation, int, *rawClient) {
	t.Helper()
	key, token := fmt.Sprintf("lock:%d", trial), uuid.NewString()
	holder := c.idle[(trial*37)%len(c.idle)]
	check.NoError(t, holder.run("SET", key, token, "PX", "60000"))
	ctx, cancel := context.WithTimeout(t.Context(), most)
	defer cancel()
	defer holder.repeat(ctx, period, func(int) []string { return []string{"EVAL", renewScript, "1", key, token, "60000"} })()
	defer cancel()
	scanner := inspect.NewScanner(c.rdb, inspect.ScanOptions{Formats: formats.All(), Budget: inspect.NewBudget(inspect.DefaultShare)})
	l, err := scanner.ReadLock(ctx, key)
	check.Require(t, err == nil && l != nil, "the lock is %v, %v", l, err)
	changes := 0
	got, err := scanner.WatchHolder(ctx, *l, l.Holders[0], nil, time.Hour, func(inspect.Investigation) { changes++ })
	check.ErrorIs(t, err, nil)
	return got, changes, holder
}

// Goal of the design: of 1,000 connections, 100 are busy. The client is named within three
// changes in 95 % of 200 trials, and another one never. By default the crowd is smaller, and
// half of the trials may take more changes: on a machine with other work the lists before and
// after a change lie farther apart.
func TestTheClientOfAHolderIsNamedByCoincidence(t *testing.T) {
	testtier.Long(t, "it samples connections for seconds")
	t.Parallel()
	const enough = 3 // changes
	clients, busy, trials, want, atOnce, period := 120, 12, 4, 2, 4, 1200*time.Millisecond
	if testtier.Proving() {
		clients, busy, trials, want, atOnce, period = 1000, 100, 200, 190, 10, 3500*time.Millisecond
	}
	c := gather(t, clients, busy)
	var right, within, changes atomic.Int64
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for trial := range trials {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			// Two holders that always renew at once cannot be told apart.
			got, n, holder := c.investigate(t, trial, period+time.Duration(trial*173%600)*time.Millisecond, time.Minute)
			switch {
			case !got.Named:
				t.Logf("trial %d names none: %+v", trial, got.Suspicion)
			case got.Client.Addr != holder.addr():
				t.Errorf("trial %d names %+v, the holder is %s", trial, got.Client, holder.addr())
			default:
				right.Add(1)
				changes.Add(int64(n))
				if n <= enough {
					within.Add(1)
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d of %d named, %d of them within %d changes, %.2f changes on average", right.Load(), trials, within.Load(), enough, float64(changes.Load())/float64(max(1, right.Load())))
	check.True(t, int(right.Load()) >= trials-trials/20, "%d of %d are named", right.Load(), trials)
	check.True(t, int(within.Load()) >= want, "%d of %d are named within %d changes, want %d", within.Load(), trials, enough, want)
}

// A client renews its locks apart from each other. The changes of all show which client it is,
// also for a lock that does not change.
func TestTheOtherLocksOfAClientNameItToo(t *testing.T) {
	testtier.Long(t, "it samples connections for seconds")
	t.Parallel()
	c := gather(t, 40, 4)
	const id = "8743c9c0-0795-4907-87fd-6c719a6b4586"
	holder := c.idle[20]
	keys := []string{"lock:a", "lock:b", "lock:bc"}
	for _, key := range keys {
		check.NoError(t, errors.Join(holder.run("HSET", key, id+":7", "1"), holder.run("PEXPIRE", key, "60000")))
	}
	scanner := inspect.NewScanner(c.rdb, inspect.ScanOptions{Formats: formats.All()})
	var locks []*keyspace.Lock
	for _, key := range keys {
		l, err := scanner.ReadLock(t.Context(), key)
		check.Require(t, err == nil && l != nil && len(l.Holders) == 1, "%s is %v, %v", key, l, err)
		locks = append(locks, l)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	defer holder.repeat(ctx, 1300*time.Millisecond, func(i int) []string {
		return []string{"EVAL", "return redis.call('pexpire',KEYS[1],ARGV[1])", "1", keys[1+i%2], "60000"}
	})()
	defer cancel()
	got, err := scanner.WatchHolder(ctx, *locks[0], locks[0].Holders[0], locks, time.Hour, func(inspect.Investigation) {})
	check.True(t, err == nil && got.Named && got.Client.Addr == holder.addr() && got.Lock.Key == keys[0],
		"it names %+v, %v; the holder is %s", got, err, holder.addr())
}

// lateReports is a connection that delays what it receives, once it asks for client tracking.
type lateReports struct {
	net.Conn
	tracking atomic.Bool
}

func (c *lateReports) Write(p []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(p), []byte("bcast")) {
		c.tracking.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *lateReports) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.tracking.Load() {
		time.Sleep(150 * time.Millisecond)
	}
	return n, err
}

// The server reports each change late, so that lists that come before the report show the
// change already. They do not count as lists from before it.
func TestAHolderIsNamedAlthoughReportsAreLate(t *testing.T) {
	testtier.Long(t, "reports of a server arrive late for seconds")
	t.Parallel()
	c := gather(t, 40, 4)
	c.rdb = labtest.Client(t, servertest.AddrOf(c.rdb), server.ClientOptions{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &lateReports{Conn: conn}, err
	}})
	got, _, holder := c.investigate(t, 0, 1900*time.Millisecond, time.Minute)
	check.True(t, got.Named && got.Client.Addr == holder.addr(), "it names %+v, the holder is %s", got, holder.addr())
}

// It prints what CLIENT LIST costs the server.
func TestTheCostOfAListOfClients(t *testing.T) {
	testtier.Proof(t, "it is a measurement with 10,000 connections")
	addr := servertest.RedisForTest(t, "--maxclients", "12000").Addr()
	rdb := labtest.Client(t, addr, server.ClientOptions{Timeout: 10 * time.Second})
	for n, clients := 0, 0; n < 2; n++ {
		for ; clients < []int{1000, 10_000}[n]; clients++ {
			dialRaw(t, addr)
		}
		labtest.Within(t, labtest.LongestWait, func() bool {
			return strings.Contains(rdb.Info(t.Context(), "clients").Val(), fmt.Sprintf("connected_clients:%d", clients+1))
		})
		for name, argv := range map[string][]any{"all": {"client", "list"}, "20 of them": append([]any{"client", "list", "id"}, manyIDs(20)...)} {
			check.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
			began := time.Now()
			bytes := 0
			for range 50 {
				text, err := rdb.Do(t.Context(), argv...).Text()
				if err != nil {
					t.Log(err)
					break
				}
				bytes = len(text)
			}
			var stats []string
			for line := range strings.Lines(rdb.Info(t.Context(), "commandstats").Val()) {
				if strings.HasPrefix(line, "cmdstat_client") {
					stats = append(stats, strings.TrimSpace(line))
				}
			}
			t.Logf("%d clients, %s: %d bytes, %v per list seen by the client; %v", clients, name, bytes, time.Since(began)/50, stats)
		}
	}
}

func manyIDs(n int) []any {
	var ids []any
	for i := range n {
		ids = append(ids, 10+i)
	}
	return ids
}
