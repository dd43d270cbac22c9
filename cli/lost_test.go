package cli

import (
	"bytes"
	"context"
	"errors"
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
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// manyKeys sets so many keys on a server, if they are in its slots. A scan with
// a budget of 1% takes some seconds for them.
func manyKeys(t *testing.T, addr string) {
	t.Helper()
	const most = 60_000
	rdb := clientTo(t, addr)
	p := rdb.Pipeline()
	for i := range most {
		p.Set(t.Context(), fmt.Sprint("ordinary:", i), "value", time.Hour)
	}
	_, _ = p.Exec(t.Context()) // other nodes have the rest
	n := rdb.DBSize(t.Context()).Val()
	check.Require(t, n >= most/5, "there are only %d keys", n)
}

func TestAServerThatDiesUnderALookMakesItIncomplete(t *testing.T) {
	long(t, "every command loses its server")
	type rig struct {
		flags  []string
		victim *server.Child
	}
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
			return rig{sentinelFlags(w), w.Master()}
		},
		"redlock": func(t *testing.T) rig {
			n := servertest.IndependentForTest(t, 3)
			return rig{redlockFlags(n), n.Nodes()[1]}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := build(t)
			manyKeys(t, r.victim.Addr())
			l := spawn(t, slices.Concat([]string{"list", "--json", "--progress", "--budget", "1%", "--timeout", timeoutOfTrouble.String()}, r.flags)...)
			l.errs.sees(t, `"note":"[1-9].* to go`)
			check.NoError(t, r.victim.Kill())
			began := time.Now()
			select {
			case <-l.ended:
			case <-time.After(longestWait):
				t.Fatal("it goes on and on")
			}
			got := l.cmd.ProcessState.ExitCode()
			if took := time.Since(began); testtier.Proving() && took > 3*timeoutOfTrouble && name != "redlock" && name != "cluster" { // these scan their other nodes first
				t.Errorf("it took %v to say so", took)
			}
			said := l.errs.String()
			last := said[strings.LastIndex(strings.TrimSpace(said), "\n")+1:]
			check.True(t, got != exitFine && strings.Contains(last, r.victim.Addr()) && strings.Contains(last, `"error":`),
				"exit code %d: %s", got, last)
			var doc render.Document
			if text := l.out.String(); text != "" {
				doc = decoded[render.Document](t, text)
				check.False(t, doc.Complete, "%v", text)
			}
			several := name == "cluster" || name == "redlock"
			check.True(t, !several || len(doc.Nodes) == 3 && len(strings.Fields(nodesUp(doc))) == 2, "nodes %+v", doc.Nodes)
		})
	}
}

// loadingServer starts a server that loads its data until done is called.
func loadingServer(t *testing.T) (addr string, done func()) {
	t.Helper()
	srv := servertest.DebugForTest(t)
	rdb := clientWith(t, srv.Addr(), server.ClientOptions{NoRetry: true, Timeout: longestWait})
	ctx := context.Background()
	for _, argv := range [][]any{
		{"SET", "lock:a", token},
		{"EVAL", "for i=1,20000 do redis.call('SET','key:'..i,i) end return 1", 0},
		{"CONFIG", "SET", "loading-process-events-interval-bytes", 1024},
		{"CONFIG", "SET", "key-load-delay", 2_000}, // us per key
	} {
		if err := rdb.Do(ctx, argv...).Err(); err != nil {
			if strings.Contains(err.Error(), "Unsupported CONFIG") {
				t.Skip("this redis-server answers nothing while it loads so few keys: Redis 6.2 does")
			}
			t.Fatal(err)
		}
	}
	loaded := make(chan error, 1)
	go func() { loaded <- rdb.Do(ctx, "DEBUG", "RELOAD").Err() }()
	other := clientWith(t, srv.Addr(), server.ClientOptions{Timeout: longestWait})
	within(t, longestWait, func() bool { return redis.HasErrorPrefix(other.Ping(ctx).Err(), "LOADING") })
	return srv.Addr(), func() {
		check.ErrorIs(t, other.ConfigSet(ctx, "key-load-delay", "0").Err(), nil)
		check.ErrorIs(t, <-loaded, nil)
	}
}

// Each command waits for a server that loads its data, says so once, and then does its work. An interrupt ends the wait.
func TestCommandsWaitForAServerThatLoadsItsData(t *testing.T) {
	long(t, "a server loads for seconds")
	addr, done := loadingServer(t)
	commands := map[*spawned]int{} // with their exit codes
	for line, code := range map[string]int{
		"list --json": exitFine, "doctor --for 0s --json": exitFindings, "inspect lock:a": exitFine, "who lock:a --for 100ms": exitFailure,
		"release lock:a --dry-run": exitFine, "watch --for 10ms": exitFine, "record --for 10ms " + filepath.Join(t.TempDir(), "a.lockrec"): exitFine,
	} {
		commands[spawn(t, append(strings.Fields(line), "-u", "redis://"+addr, "--timeout", "30s")...)] = code
	}
	interrupted := spawn(t, "list", "-u", "redis://"+addr, "--timeout", "30s")
	interrupted.says("waiting for at most")
	interrupted.signal(os.Interrupt)
	interrupted.exits(exitInterrupted)
	for s := range commands {
		s.says("LOADING")
	}
	done()
	waits := regexp.MustCompile(`^[^\n]*connect redis://` + addr + `: LOADING \w+ is loading the dataset in memory; waiting for at most 5 m, Ctrl-C ends it`)
	for s, code := range commands {
		s.exits(code)
		errs := s.errs.String()
		check.True(t, strings.Count(errs, "LOADING") == 1 && waits.MatchString(errs), "%q: %s", s.cmd.Args, errs)
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
	rdb := clientTo(t, s.Addr())
	p := rdb.Pipeline()
	for i := range 3000 {
		p.Set(t.Context(), fmt.Sprint("lock:", i), token, time.Hour)
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
	long(t, "commands run into a time limit")
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
			got := locktop(t, append(c.args, "-u", "redis://"+addrs[i])...)
			got.errors = strings.ReplaceAll(got.errors, addrs[i], "ADDR")
			got.says(t, c.code, c.says...)
			check.True(t, c.args[0] != "list" || strings.Contains(got.out, "lock:1"), "what was read is not shown: %s", got.out)
		})
	}
}

// An outage begins with the last answer, not when it is noticed.
func TestAnOutageCountsFromTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snap := keyspace.Snapshot{At: time.Now(), Complete: true, Nodes: []keyspace.Node{
			{Server: keyspace.Server{Addr: "a:1"}, Up: true, AnsweredAt: time.Now().Add(-time.Minute)},
			{Server: keyspace.Server{Addr: "b:1"}, Up: true, AnsweredAt: time.Now().Add(-8 * time.Second)},
		}}
		n := 0
		source := &multiEventSource{down: make(map[string]bool), fleet: sourceFunc(func(context.Context) (keyspace.Snapshot, error) {
			if n++; n == 2 {
				return keyspace.Snapshot{}, errors.New("i/o timeout")
			}
			return snap, nil
		})}
		said := new(bytes.Buffer)
		w := &watcher{source: source, selection: &selection{}, output: output{notes: messages{to: said}}, title: "x"}
		for range 3 {
			_, notices, _ := source.Next(t.Context())
			for _, n := range notices {
				w.note(n)
			}
		}
		check.True(t, strings.Contains(said.String(), "back on x after 8.1 s"), "it said\n%s", said)
	})
}

// A server of several that was away is named, once when it is lost and once when it is back. What its watcher has
// noted meanwhile comes with the first snapshot after that.
func TestAWatchNamesTheServerOfSeveralThatWasAway(t *testing.T) {
	now := time.Now()
	a, b := keyspace.Node{Server: keyspace.Server{Addr: "a:1"}, Up: true}, keyspace.Node{Server: keyspace.Server{Addr: "b:1"}, Up: true}
	down := b
	down.Up, down.Error = false, "i/o timeout"
	late := []keyspace.Notice{{Kind: keyspace.ServerLost, Node: "b:1", Text: "i/o timeout"},
		{Kind: keyspace.ServerBack, Node: "b:1", At: now, Since: now.Add(-12 * time.Second), Text: "it was restarted"}, {Kind: keyspace.WatchModeChanged, Node: "b:1", Text: "changes are now detected by polling"}}
	said := new(bytes.Buffer)
	source := &multiEventSource{down: make(map[string]bool)}
	w := &watcher{output: output{notes: messages{to: said}}, title: "redlock of a:1, b:1", several: true}
	for _, snap := range []keyspace.Snapshot{{Nodes: []keyspace.Node{a, b}}, {Nodes: []keyspace.Node{a, down}}, {Nodes: []keyspace.Node{a, b}, Notices: late}} {
		for _, n := range source.nodeChanges(snap) {
			w.note(n)
		}
	}
	want := "b:1 cannot be read: i/o timeout\nb:1 answers again after 12 s: it was restarted\nb:1: changes are now detected by polling\n"
	check.Equal(t, strings.ReplaceAll(said.String(), "locktop: redlock of a:1, b:1: ", ""), want, "it said")
}
