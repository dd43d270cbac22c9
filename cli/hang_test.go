package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/keyspace"
)

// cutShort is a connection that delivers replies while bytes are left, and then nothing, until
// it is closed.
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
	s := server.ForTest(t)
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

// What was not read of a server that stops within a reply is an error, and never missing
// without a word.
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
		{[]string{"doctor", "--for", "100ms"}, exitNoConnect, []string{"look at redis://ADDR", "i/o timeout"}},
		{[]string{"watch", "--for", "8s", "--timeout", "1m"}, exitFailure, []string{"incomplete: redis://ADDR", "of 3,000 keys had been read by then"}},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			t.Parallel()
			got := locktop(t, append(c.args, "-u", "redis://"+addrs[i])...)
			got.errors = strings.ReplaceAll(got.errors, addrs[i], "ADDR")
			got.says(t, c.code, c.says...)
		})
	}
}

// scripted is a source with one snapshot and then an error.
type scripted struct {
	snap keyspace.Snapshot
	err  error
	n    int
}

func (s *scripted) Snapshot(context.Context) (keyspace.Snapshot, error) {
	if s.n++; s.n == 2 {
		return keyspace.Snapshot{}, s.err
	}
	return s.snap, nil
}

// An outage begins with the last answer, not when it is noticed.
func TestAnOutageCountsFromTheLastAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		snap := keyspace.Snapshot{At: time.Now(), Complete: true, Nodes: []keyspace.Node{
			{Server: keyspace.Server{Addr: "a:1"}, Up: true, AnsweredAt: time.Now().Add(-time.Minute)},
			{Server: keyspace.Server{Addr: "b:1"}, Up: true, AnsweredAt: time.Now().Add(-8 * time.Second)},
		}}
		source := &multiEventSource{fleet: &scripted{snap: snap, err: errors.New("i/o timeout")}, down: make(map[string]bool)}
		said := new(bytes.Buffer)
		w := &watcher{source: source, selection: &selection{}, notes: messages{to: said}, title: "x"}
		for range 3 {
			_, notices, _ := source.Next(t.Context())
			for _, n := range notices {
				w.note(n)
			}
		}
		check.True(t, strings.Contains(said.String(), "back on x after 8.1 s"), "it said\n%s", said)
	})
}
