// Package server runs the Redis servers that locktop starts by itself, for its
// demo and its tests: an embedded one that lives in this process, and children
// that are real redis-servers. All of them listen on the loopback interface
// only, none of them keeps data, and none of them outlives its owner.
//
// The embedded server needs nothing installed and runs inside a
// testing/synctest bubble, but it is slow, knows no roles, no INFO and no
// keyspace notifications: what is claimed of Redis is tested on a child.
package server

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
)

// Embedded is a Redis server inside this process. Its keys expire as time
// passes, also as the time of a synctest bubble does. Safe for concurrent use.
type Embedded struct {
	redis *miniredis.Miniredis
	addr  string
	pipes sync.WaitGroup // goroutines that move the bytes of connections made by Dial

	mu     sync.Mutex
	closed bool
}

// pipedAddr is what a server without a listener calls itself. A client must be
// given an IP literal, or it starts to resolve the name; nothing is ever sent
// there.
const pipedAddr = "127.0.0.1:1"

// StartEmbedded starts a server on a free loopback port.
func StartEmbedded() (*Embedded, error) {
	m := newMiniredis()
	if err := m.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded redis: %w", err)
	}
	return &Embedded{redis: m, addr: m.Addr()}, nil
}

// NewPiped makes a server without a port: only Dial reaches it. It fits a
// synctest bubble, where sockets would keep the clock from moving; make it, and
// close it, inside the bubble.
func NewPiped() *Embedded {
	return &Embedded{redis: newMiniredis(), addr: pipedAddr}
}

func newMiniredis() *miniredis.Miniredis {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	return m
}

// Addr is where the server listens, as host:port. A piped server answers with
// an address that nobody listens on, to put beside Dial in a client's options.
func (e *Embedded) Addr() string { return e.addr }

// Dial connects to the server within the process, whatever network and addr
// say: it is a dialer for a client's options. Once the server is closed it
// returns net.ErrClosed.
func (e *Embedded) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("dial the embedded redis: %w", net.ErrClosed)
	}
	conn, err := e.redis.Dial()
	if err != nil {
		return nil, fmt.Errorf("dial the embedded redis: %w", err)
	}
	return e.bufferedPipe(conn), nil
}

// Close hangs up on all clients, forgets all keys and returns when nothing of
// the server runs any more. Further calls do nothing.
func (e *Embedded) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	e.redis.Close()
	e.pipes.Wait()
}
