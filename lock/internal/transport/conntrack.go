package transport

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// connTracker tracks the open connections of a transport, to close those to a server
// that is no longer the master. go-redis keeps a connection as long as it works,
// although its name or its Sentinels may lead to another server by now.
type connTracker struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// staleAge is the age from which a connection may be stale. A younger one leads to the
// server that is the master according to its name or its Sentinels.
const staleAge = time.Second

// trackedConn is a connection that is tracked until it is closed.
type trackedConn struct {
	net.Conn
	tracker *connTracker
	since   time.Time
}

// wrap replaces *dialer by a dialer that tracks its connections.
func (t *connTracker) wrap(dialer *func(ctx context.Context, network, addr string) (net.Conn, error)) {
	t.dial, t.open = *dialer, make(map[*trackedConn]struct{})
	*dialer = t.connect
}

func (t *connTracker) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	dialed, err := t.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	conn := &trackedConn{Conn: dialed, tracker: t, since: time.Now()}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		_ = dialed.Close()
		return nil, redis.ErrClosed
	}
	t.open[conn] = struct{}{}
	return conn, nil
}

// close closes all connections and prevents new ones. No command then waits for a
// server that does not answer.
func (t *connTracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.open {
		_ = c.Conn.Close()
	}
}

// redial closes the stale connections. Their commands in flight fail, and later
// commands use new connections.
func (t *connTracker) redial() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if time.Since(c.since) >= staleAge {
			_ = c.Conn.Close() // its reader gets an error and closes c
		}
	}
}

// Close closes the connection. It is no error if the tracker has closed it before.
func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.open, c)
	c.tracker.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// NetConn returns the dialed connection, for go-redis.
func (c *trackedConn) NetConn() net.Conn { return c.Conn }
