package lock

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// links are the open connections of a wire. They are known here so that those to
// a server which is not the master any more can be closed: go-redis keeps them
// in use for as long as they work, but the name, or the Sentinels, by which it
// was found may lead somewhere else by now.
type links struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)

	mu     sync.Mutex
	open   map[*conn]struct{}
	closed bool
}

// linkAge is how old a connection has to be to be given up: a younger one leads
// to where the master is said to be.
const linkAge = time.Second

// conn is a connection that is known until it is closed.
type conn struct {
	net.Conn
	links *links
	since time.Time
}

// over makes the links take the place of a dialer.
func (l *links) over(dialer *func(ctx context.Context, network, addr string) (net.Conn, error)) {
	l.dial, l.open = *dialer, make(map[*conn]struct{})
	*dialer = l.connect
}

func (l *links) connect(ctx context.Context, network, addr string) (net.Conn, error) {
	to, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: to, links: l, since: time.Now()}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = to.Close()
		return nil, redis.ErrClosed
	}
	l.open[c] = struct{}{}
	return c, nil
}

// close ends all connections, and lets no new one be: whoever closes the wire has
// waited long enough for a server that does not answer.
func (l *links) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for c := range l.open {
		_ = c.Conn.Close()
	}
}

// redial closes the connections that are not new. Commands on their way over
// them fail, and what comes next is sent over new ones.
func (l *links) redial() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if time.Since(c.since) >= linkAge {
			_ = c.Conn.Close() // its reader finds out, and closes c
		}
	}
}

// Close closes the connection. It may have been given up already, which is no error.
func (c *conn) Close() error {
	c.links.mu.Lock()
	delete(c.links.open, c)
	c.links.mu.Unlock()
	if err := c.Conn.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// NetConn returns the connection as it was dialed, for go-redis to look at.
func (c *conn) NetConn() net.Conn { return c.Conn }
