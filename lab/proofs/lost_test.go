package proofs

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
)

// manyKeys sets so many keys on a server, if they are in its slots. A scan with
// a budget of 1% takes some seconds for them.
func manyKeys(t *testing.T, addr string) {
	t.Helper()
	const most = 60_000
	rdb := labtest.Client(t, addr, server.ClientOptions{})
	p := rdb.Pipeline()
	for i := range most {
		p.Set(t.Context(), fmt.Sprint("ordinary:", i), "value", time.Hour)
	}
	_, _ = p.Exec(t.Context()) // other nodes have the rest
	n := rdb.DBSize(t.Context()).Val()
	check.Require(t, n >= most/5, "there are only %d keys", n)
}

func TestAServerThatDiesUnderALookMakesItIncomplete(t *testing.T) {
	testtier.Long(t, "every command loses its server")
	t.Parallel()
	const timeout = 3 * time.Second // long enough for a busy machine
	type rig struct {
		flags  []string
		victim *server.Child
	}
	looking := regexp.MustCompile(`"note":"[1-9].* to go`)
	for name, build := range map[string]func(*testing.T) rig{
		"server": func(t *testing.T) rig {
			s := servertest.RedisForTest(t)
			return rig{[]string{"-u", "redis://" + s.Addr()}, s}
		},
		"cluster": func(t *testing.T) rig {
			c := servertest.ClusterForTest(t, servertest.ClusterOptions{NodeTimeout: time.Minute})
			return rig{[]string{"--cluster", "-u", "redis://" + c.Addrs()[0]}, c.Nodes()[1]}
		},
		"sentinel": func(t *testing.T) rig {
			w := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{})
			return rig{[]string{"--master", servertest.SentinelMaster, "--sentinel", strings.Join(w.Sentinels(), ",")}, w.Master()}
		},
		"redlock": func(t *testing.T) rig {
			n := nodes(t, 3)
			return rig{[]string{"--redlock", "redis://" + strings.Join(addrs(n), ",redis://")}, n.Nodes()[1]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := build(t)
			manyKeys(t, r.victim.Addr())
			l := labtest.Start(t, slices.Concat([]string{"list", "--json", "--progress", "--budget", "1%", "--timeout", timeout.String()}, r.flags)...)
			labtest.Within(t, labtest.LongestWait, func() bool { return looking.MatchString(l.Errors.String()) })
			check.NoError(t, r.victim.Kill())
			began := time.Now()
			code := l.Ended()
			if took := time.Since(began); testtier.Proving() && took > 3*timeout && name != "redlock" && name != "cluster" { // these scan their other nodes first
				t.Errorf("it took %v to say so", took)
			}
			said := l.Errors.String()
			last := said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]
			check.True(t, code != 0 && strings.Contains(last, r.victim.Addr()) && strings.Contains(last, `"error":`),
				"exit code %d: %s", code, last)
			var doc render.Document
			if text := l.Out.String(); text != "" {
				doc = labtest.Decoded[render.Document](t, text)
				check.False(t, doc.Complete, "%v", text)
			}
			up := 0
			for _, n := range doc.Nodes {
				if n.Up {
					up++
				}
			}
			several := name == "cluster" || name == "redlock"
			check.True(t, !several || len(doc.Nodes) == 3 && up == 2, "nodes %+v", doc.Nodes)
		})
	}
}

// loadingServer starts a server that loads its data until done is called.
func loadingServer(t *testing.T) (addr string, done func()) {
	t.Helper()
	srv := servertest.DebugForTest(t)
	rdb := labtest.Client(t, srv.Addr(), server.ClientOptions{NoRetry: true, Timeout: labtest.LongestWait})
	ctx := context.Background()
	for _, argv := range [][]any{
		{"SET", "lock:a", uuid.NewString()},
		{"EVAL", "for i=1,20000 do redis.call('SET','key:'..i,i) end return 1", 0},
		{"CONFIG", "SET", "loading-process-events-interval-bytes", 1024},
		{"CONFIG", "SET", "key-load-delay", 2_000}, // us per key
	} {
		if err := rdb.Do(ctx, argv...).Err(); err != nil {
			if strings.Contains(err.Error(), "Unsupported CONFIG") {
				const why = "this redis-server answers nothing while it loads so few keys: put Redis 6.2 or a later one on PATH to run this test"
				check.Require(t, os.Getenv(servertest.RequireRedis) == "", why)
				t.Skip(why)
			}
			t.Fatal(err)
		}
	}
	loaded := make(chan error, 1)
	go func() { loaded <- rdb.Do(ctx, "DEBUG", "RELOAD").Err() }()
	other := labtest.Client(t, srv.Addr(), server.ClientOptions{Timeout: labtest.LongestWait})
	labtest.Within(t, labtest.LongestWait, func() bool { return redis.HasErrorPrefix(other.Ping(ctx).Err(), "LOADING") })
	return srv.Addr(), func() {
		check.ErrorIs(t, other.ConfigSet(ctx, "key-load-delay", "0").Err(), nil)
		check.ErrorIs(t, <-loaded, nil)
	}
}

// Each command waits for a server that loads its data, says so once, and then does its work. An interrupt ends the wait.
func TestCommandsWaitForAServerThatLoadsItsData(t *testing.T) {
	testtier.Long(t, "a server loads for seconds")
	t.Parallel()
	addr, done := loadingServer(t)
	commands := map[*labtest.Program]int{} // with their exit codes
	for line, code := range map[string]int{
		"list --json": 0, "doctor --for 0s --json": exitFindings, "inspect lock:a": 0, "who lock:a --for 100ms": exitFailure,
		"release lock:a --dry-run": 0, "watch --for 10ms": 0, "record --for 10ms " + filepath.Join(t.TempDir(), "a.lockrec"): 0,
	} {
		commands[labtest.Start(t, append(strings.Fields(line), "-u", "redis://"+addr, "--timeout", "30s")...)] = code
	}
	interrupted := labtest.Start(t, "list", "-u", "redis://"+addr, "--timeout", "30s")
	interrupted.Says("waiting for at most")
	interrupted.Signal(os.Interrupt)
	interrupted.Exits(exitInterrupted)
	for s := range commands {
		s.Says("LOADING")
	}
	done()
	waits := regexp.MustCompile(`^[^\n]*connect redis://` + addr + `: LOADING \w+ is loading the dataset in memory; waiting for at most 5 m, Ctrl-C ends it`)
	for s, code := range commands {
		s.Exits(code)
		errs := s.Errors.String()
		check.True(t, strings.Count(errs, "LOADING") == 1 && waits.MatchString(errs), "%q: %s", s.Args, errs)
	}
}

// cutShort is a connection that delivers replies while bytes are left, and then nothing, until it is closed.
type cutShort struct {
	net.Conn
	left   *atomic.Int64 // of all connections
	closed chan struct{}
	once   sync.Once
}

func (c *cutShort) Read(p []byte) (int, error) {
	left := c.left.Load()
	if left <= 0 {
		<-c.closed
		return 0, net.ErrClosed
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), left)])
	c.left.Add(int64(-n))
	return n, err
}

func (c *cutShort) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// stopInReplies returns the addresses of n ways to a server with 3,000 locks. Each stops
// within a reply after so many bytes, also on a new connection.
func stopInReplies(t *testing.T, n int, bytes int64) (addrs []string) {
	t.Helper()
	s := servertest.RedisForTest(t)
	rdb := labtest.Client(t, s.Addr(), server.ClientOptions{})
	p := rdb.Pipeline()
	for i := range 3000 {
		p.Set(t.Context(), fmt.Sprint("lock:", i), uuid.NewString(), time.Hour)
	}
	check.Must(p.Exec(t.Context()))(t)
	for range n {
		left := new(atomic.Int64)
		left.Store(bytes)
		network := netfault.New(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			return &cutShort{Conn: c, left: left, closed: make(chan struct{})}, nil
		})
		proxy := check.Must(network.Listen("tcp", s.Addr()))(t)
		t.Cleanup(func() { _ = proxy.Close() })
		addrs = append(addrs, proxy.Addr())
	}
	return addrs
}

// What was not read of a server that stops within a reply is an error, and never missing without a word.
func TestAServerThatStopsInAReplyMakesTheOutputIncomplete(t *testing.T) {
	testtier.Long(t, "commands run into a time limit")
	t.Parallel()
	addrs := stopInReplies(t, 4, 150_000)
	for i, c := range []struct {
		args []string
		code int
		says []string // on stderr; ADDR is the server
	}{
		{[]string{"list"}, exitFailure, []string{"incomplete: ADDR is read only in part, it has 3000 keys", "i/o timeout"}},
		{[]string{"list", "--json"}, exitFailure, []string{"incomplete: ADDR"}},
		{[]string{"doctor", "--for", "100ms"}, exitNoConnect, []string{"read redis://ADDR", "i/o timeout"}},
		{[]string{"watch", "--for", "8s", "--timeout", "1m"}, exitFailure, []string{"incomplete: redis://ADDR", "of 3,000 keys had been read by then"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			got := labtest.Locktop(t, append(c.args, "-u", "redis://"+addrs[i])...)
			said := strings.ReplaceAll(got.Errors, addrs[i], "ADDR")
			check.Equal(t, got.Code, c.code, "the exit code, with %q on stderr", said)
			for _, text := range c.says {
				check.Contains(t, said, text)
			}
			check.True(t, c.args[0] != "list" || strings.Contains(got.Out, "lock:1"), "what was read is not shown: %s", got.Out)
		})
	}
}
