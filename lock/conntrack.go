package lock

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// connTracker are the open connections of a wire. They are known here so that those to
// a server which is not the master any more can be closed: go-redis keeps them
// in use for as long as they work, but the name, or the Sentinels, by which it
// was found may lead somewhere else by now.
type connTracker struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	open   map[*trackedConn]struct{}
	closed bool
}

// staleAge is how old a connection has to be to be given up: a younger one leads
// to where the master is said to be.
const staleAge = time.Second

// trackedConn is a connection that is known until it is closed.
type trackedConn struct {
	net.Conn
	tracker *connTracker
	since   time.Time
}

// wrap makes the links take the place of a dialer.
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

// close ends all connections, and lets no new one be: whoever closes the wire has
// waited long enough for a server that does not answer.
func (t *connTracker) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	for c := range t.open {
		_ = c.Conn.Close()
	}
}

// redial closes the connections that are not new. Commands on their way over
// them fail, and what comes next is sent over new ones.
func (t *connTracker) redial() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for c := range t.open {
		if time.Since(c.since) >= staleAge {
			_ = c.Conn.Close() // its reader finds out, and closes c
		}
	}
}

// Close closes the connection. It may have been given up already, which is no error.
func (c *trackedConn) Close() error {
	c.tracker.mu.Lock()
	delete(c.tracker.open, c)
	c.tracker.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// NetConn returns the connection as it was dialed, for go-redis to look at.
func (c *trackedConn) NetConn() net.Conn { return c.Conn }
