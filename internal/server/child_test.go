package server_test

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

// client returns a client of a server, which ends with the test.
func client(t *testing.T, addr string) server.Client { return servertest.ClientForTest(t, addr, nil) }

// rawPing is a PING in RESP; the embedded server knows no other form.
const rawPing = "*1\r\n$4\r\nPING\r\n"

// answers reports whether a server replies to a PING on a new connection. It
// uses no client library, because a library would retry and log errors.
func answers(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, rawPing); err != nil {
		return false
	}
	n, _ := conn.Read(make([]byte, 16))
	return n > 0
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// ping sends a PING on a plain connection, which no client library reconnects.
func ping(t *testing.T, conn net.Conn) {
	t.Helper()
	check.Must(io.WriteString(conn, rawPing))(t)
}

func wantPong(t *testing.T, conn net.Conn) {
	t.Helper()
	check.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	got := make([]byte, len("+PONG\r\n"))
	_, err := io.ReadFull(conn, got)
	check.Require(t, err == nil && string(got) == "+PONG\r\n", "the answer to a PING is %q, %v", got, err)
}

func directory(t *testing.T, rdb server.Client) string {
	t.Helper()
	dir := check.Must(rdb.ConfigGet(t.Context(), "dir").Result())(t)
	return dir["dir"]
}

func TestChildListensOnLoopbackOnlyAndKeepsNothing(t *testing.T) {
	rdb := client(t, servertest.RedisForTest(t, "--bind", "0.0.0.0", "--daemonize", "yes").Addr())
	for option, want := range map[string]string{"bind": "127.0.0.1", "save": "", "appendonly": "no"} {
		got := check.Must(rdb.ConfigGet(t.Context(), option).Result())(t)
		check.True(t, got[option] == want, "%s is %q, want %q", option, got[option], want)
	}
}

func TestChildThatCannotStartSaysWhy(t *testing.T) {
	servertest.RedisForTest(t) // skips where there is no redis-server
	_, err := server.StartChild(t.Context(), server.ChildOptions{Args: []string{"--maxclients", "many"}})
	check.True(t, err != nil && strings.Contains(err.Error(), "couldn't be parsed into an integer"), "the error is %v", err)
}

func TestStartGivesUpWithItsContext(t *testing.T) {
	servertest.RedisForTest(t) // skips where there is no redis-server
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := server.StartChild(ctx, server.ChildOptions{})
	check.True(t, errors.Is(err, context.Canceled), "the error is %v", err)
}

func TestStopEndsTheServerAndRemovesItsDirectory(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	dir := directory(t, client(t, c.Addr()))
	check.Require(t, exists(dir), "there is no directory %q to begin with", dir)
	check.NoError(t, c.Stop())
	check.True(t, !exists(dir), "%s is still there", dir)
	check.True(t, !answers(c.Addr()), "it still answers")
	check.Equal(t, c.PID(), 0, "PID is still")
	check.ErrorIs(t, c.Stop(), nil, "a second Stop says")
	check.True(t, c.Restart(t.Context()) != nil, "a stopped child was restarted")
}

func TestFrozenServerAnswersNothingUntilItGoesOn(t *testing.T) {
	t.Parallel()
	c := servertest.RedisForTest(t)
	conn := check.Must(net.Dial("tcp", c.Addr()))(t)
	defer conn.Close()
	ping(t, conn)
	wantPong(t, conn)

	check.NoError(t, c.Freeze())
	ping(t, conn)
	check.NoError(t, conn.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
	var timeout net.Error
	n, err := conn.Read(make([]byte, 16))
	check.Require(t, errors.As(err, &timeout) && timeout.Timeout(), "a frozen server answered with %d bytes, %v", n, err)

	check.NoError(t, c.Continue())
	wantPong(t, conn)
}

func TestRestartedServerIsEmptyAndKeepsItsPort(t *testing.T) {
	c := servertest.RedisForTest(t)
	rdb := client(t, c.Addr())
	addr, pid := c.Addr(), c.PID()
	check.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	check.True(t, c.Restart(t.Context()) != nil, "a running server was restarted")

	check.NoError(t, c.Kill())
	check.Require(t, !answers(addr), "it answers after Kill")
	check.ErrorIs(t, c.Kill(), nil, "a second Kill says")

	check.NoError(t, c.Restart(t.Context()))
	check.True(t, c.Addr() == addr && c.PID() != pid && c.PID() != 0,
		"it was %s as process %d, and is %s as process %d", addr, pid, c.Addr(), c.PID())
	n, err := client(t, addr).DBSize(t.Context()).Result()
	check.True(t, n == 0 && err == nil, "it restarted with %d keys, %v", n, err)
}

func TestServerThatKeepsItsDataComesBackWithItUnlessItIsErased(t *testing.T) {
	c := servertest.RedisForTest(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := client(t, c.Addr())
	check.NoError(t, rdb.Set(t.Context(), "k", "v", 0).Err())
	check.True(t, c.Erase() != nil, "a running server was erased")
	for _, run := range []struct {
		erase bool
		keys  int64
	}{{false, 1}, {true, 0}} {
		check.NoError(t, c.Kill())
		if run.erase {
			check.NoError(t, c.Erase())
		}
		check.NoError(t, c.Restart(t.Context()))
		n, err := client(t, c.Addr()).DBSize(t.Context()).Result()
		check.True(t, n == run.keys && err == nil, "erased %v: it restarted with %d keys, %v; want %d", run.erase, n, err, run.keys)
	}
}

// A server may be a command of the shell that has a place for its port, or another program.
func TestAChildMayBeAnotherServer(t *testing.T) {
	t.Parallel()
	servertest.RedisForTest(t) // skips without redis-server
	for _, command := range []string{"redis-server", "redis-server --save '' --port {port}"} {
		c := check.Must(server.StartChild(t.Context(), servertest.Program(command)))(t)
		rdb := server.NewClient(c.Addr(), server.ClientOptions{})
		check.ErrorIs(t, rdb.Ping(t.Context()).Err(), nil, "%s", command)
		check.ErrorIs(t, errors.Join(rdb.Close(), c.Stop()), nil, "%s", command)
	}
	for _, command := range []string{"no-such-server", "no-such-server --port {port}", "echo {port}; false"} {
		if c, err := server.StartChild(t.Context(), servertest.Program(command)); err == nil {
			t.Errorf("%s runs: %v", command, c.Stop())
		} else if errors.Is(err, server.ErrNotInstalled) {
			t.Errorf("%s: %v", command, err)
		}
	}
}

func TestANodeThatWasOffRemembersUnlessItIsMeantToForget(t *testing.T) {
	t.Parallel()
	set := servertest.IndependentForTest(t, 2)
	node := set.Nodes()[1]
	ctx := t.Context()
	for _, c := range []struct {
		empty bool
		want  int64
	}{{false, 1}, {true, 0}} {
		rdb := client(t, node.Addr())
		check.NoError(t, rdb.Set(ctx, "k", "v", 0).Err())
		check.NoError(t, set.Down(2))
		check.Require(t, rdb.Ping(ctx).Err() != nil, "a node that is down answers")
		check.ErrorIs(t, client(t, set.Nodes()[0].Addr()).Ping(ctx).Err(), nil, "the other node went down with it")
		for range 2 { // the second time the server is running already
			check.NoError(t, set.Up(ctx, 2, c.empty))
		}
		got := client(t, node.Addr()).Exists(ctx, "k").Val()
		check.True(t, got == c.want, "empty %t: %d keys, want %d", c.empty, got, c.want)
	}
}
