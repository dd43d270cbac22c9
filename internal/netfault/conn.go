package netfault

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// conn is a client's end of a connection over a network.
type conn struct {
	net.Conn
	network  *Network
	deadline atomic.Int64  // of reads, in Unix nanoseconds; 0 = none
	moved    chan struct{} // capacity 1: the deadline has changed, or a packet has arrived
	over     gate          // open: the connection has ended for the client

	// network.mu guards what follows.
	sent     int // number of packets
	received int
	held     []byte    // written, but held back; sent by Heal
	leaving  []packet  // written, but delayed; a goroutine runs send
	inbox    []packet  // from the server, and not yet delivered
	last     time.Time // due time of the newest packet of the inbox
	pumping  bool      // pump reads packets as they arrive
	broken   bool      // by Cut
	doomed   bool      // a write was lost while the clients were suspended
}

// packet is the data of one write or read, with the time of its delivery.
type packet struct {
	due  time.Time // zero = immediately
	data []byte
	err  error // the error after data
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	n := c.network
	n.mu.Lock()
	if !n.running.isOpen() {
		c.doomed = true
		n.mu.Unlock()
		return len(p), nil
	}
	if n.Sent != nil {
		n.Sent(p)
	}
	var due time.Time
	if !n.prompt {
		due = n.due(c.sent)
	}
	c.sent++
	switch {
	case c.broken:
		n.mu.Unlock()
		return 0, io.ErrClosedPipe
	case c.over.isOpen():
	case !due.IsZero() || len(c.leaving) > 0:
		c.leaving = append(c.leaving, packet{due: due, data: bytes.Clone(p)})
		if len(c.leaving) == 1 {
			go c.send()
		}
		n.mu.Unlock()
		return len(p), nil
	case !n.requests.isOpen():
		c.held = append(c.held, p...)
		n.mu.Unlock()
		return len(p), nil
	}
	n.mu.Unlock()
	return c.Conn.Write(p)
}

// send delivers the delayed packets in order, each when it is due.
func (c *conn) send() {
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(c.leaving) > 0 {
		next, hurry := c.leaving[0], n.hurry
		n.mu.Unlock()
		select {
		case <-time.After(time.Until(next.due)):
		case <-hurry:
		}
		n.mu.Lock()
		if len(c.leaving) == 0 {
			return // Cut dropped the packets meanwhile
		}
		if n.requests.isOpen() {
			n.mu.Unlock()
			c.deliver(next.data)
			n.mu.Lock()
		} else {
			c.held = append(c.held, next.data...)
		}
		if len(c.leaving) > 0 {
			c.leaving = c.leaving[1:]
		}
	}
	if c.over.isOpen() && len(c.held) == 0 {
		_ = c.hangUp()
	}
}

// Read implements [net.Conn]. Calls must not overlap. If the deadline passes first,
// delayed data stays for the next call, as in a socket buffer.
func (c *conn) Read(p []byte) (int, error) {
	count, err := c.read(p)
	if err == nil {
		return count, nil
	}
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	switch {
	case c.broken:
		return 0, io.EOF
	case c.over.isOpen():
		return count, net.ErrClosed
	}
	return count, err
}

// read delivers the first packet of the inbox when it is due and the replies flow. It returns
// an error if the deadline, which may change meanwhile, passes first, or if the connection ends.
func (c *conn) read(p []byte) (int, error) {
	n := c.network
	for !c.over.isOpen() {
		n.mu.Lock()
		if len(c.inbox) == 0 && n.delay != nil {
			c.pump()
		}
		if len(c.inbox) == 0 && !c.pumping {
			n.mu.Unlock()
			if count, err, done := c.receive(p); done {
				return count, err
			}
			continue
		}
		replies, hurry, wait := n.replies, n.hurry, forever
		if replies.isOpen() {
			replies = nil
			if len(c.inbox) > 0 {
				wait = time.Until(c.inbox[0].due)
			}
		}
		if wait <= 0 {
			defer n.mu.Unlock()
			return c.take(p)
		}
		n.mu.Unlock()
		if err := c.pause(replies, hurry, wait); err != nil {
			return 0, err
		}
	}
	return 0, net.ErrClosed
}

// take moves bytes of the first packet to p. network.mu must be held.
func (c *conn) take(p []byte) (count int, err error) {
	first := &c.inbox[0]
	count = copy(p, first.data)
	if first.data = first.data[count:]; len(first.data) == 0 {
		err = first.err
		c.inbox = c.inbox[1:]
	}
	return count, err
}

// receive reads a packet into p; done is false if it is held back, in the inbox.
func (c *conn) receive(p []byte) (count int, err error, done bool) {
	count, err = c.Conn.Read(p)
	n := c.network
	n.mu.Lock()
	defer n.mu.Unlock()
	due := n.due(c.received)
	c.received++
	if due.IsZero() && n.replies.isOpen() || count == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return count, err, true
	}
	c.store(packet{due, bytes.Clone(p[:count]), err})
	if err == nil {
		c.pump() // the server can send more, as into a socket buffer
	}
	return 0, nil, false
}

// pump starts a goroutine that reads packets as they arrive, so that each has its own
// delay, and so that the server need not wait for the client. network.mu must be held.
func (c *conn) pump() {
	if c.pumping {
		return
	}
	c.pumping = true
	_ = c.Conn.SetReadDeadline(time.Time{})
	go func() {
		buf := make([]byte, 16<<10)
		for {
			count, err := c.Conn.Read(buf)
			c.network.mu.Lock()
			c.store(packet{c.network.due(c.received), bytes.Clone(buf[:count]), err})
			c.received++
			c.network.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
}

// store adds a packet to the inbox. network.mu must be held.
func (c *conn) store(p packet) {
	if p.due.Before(c.last) {
		p.due = c.last // in order, as with TCP
	}
	c.last = p.due
	c.inbox = append(c.inbox, p)
	c.wake()
}

// wake makes pause look again.
func (c *conn) wake() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// forever is longer than any wait for a packet.
const forever = 24 * time.Hour

// pause waits until the gate opens, hurry is closed, wait is over, or the deadline
// changes.
func (c *conn) pause(g gate, hurry chan struct{}, wait time.Duration) error {
	left := forever
	if at := c.deadline.Load(); at != 0 {
		left = time.Until(time.Unix(0, at))
	}
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	select {
	case <-g:
	case <-hurry:
	case <-time.After(min(wait, left)):
	case <-c.moved:
	case <-c.over:
		return net.ErrClosed
	}
	return nil
}

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.Conn.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	at := int64(0)
	if !t.IsZero() {
		at = t.UnixNano()
	}
	c.deadline.Store(at)
	c.wake()
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.pumping {
		return nil // pump reads without a deadline
	}
	return c.Conn.SetReadDeadline(t)
}

// Close implements [net.Conn]. Data that is held back still arrives after Heal.
func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	c.over.open() // wakes Read for good
	if len(c.held)+len(c.leaving) == 0 {
		return c.hangUp()
	}
	if !c.pumping {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes Read
	}
	return nil
}

// hangUp closes the underlying connection. network.mu must be held.
func (c *conn) hangUp() error {
	if _, open := c.network.conns[c]; !open {
		return nil
	}
	delete(c.network.conns, c)
	return c.Conn.Close()
}

// flush delivers the data that is held back. network.mu must be held.
func (c *conn) flush() {
	if len(c.held) == 0 {
		return
	}
	c.deliver(c.held)
	c.held = nil
	if c.over.isOpen() && len(c.leaving) == 0 {
		_ = c.hangUp()
	}
}

// deliver writes data of which Write has returned already: the deadline of that write is
// no concern of this one. The reader finds out about a broken connection.
func (c *conn) deliver(data []byte) {
	_ = c.Conn.SetWriteDeadline(time.Time{})
	_, _ = c.Conn.Write(data)
}

// hurry makes all delayed packets due. network.mu must be held.
func (c *conn) hurry() {
	c.last = time.Time{}
	for _, packets := range [][]packet{c.leaving, c.inbox} {
		for i := range packets {
			packets[i].due = time.Time{}
		}
	}
}

// cut breaks the connection; data that is held back never arrives. network.mu must be
// held.
func (c *conn) cut() {
	c.held, c.leaving, c.broken = nil, nil, true
	c.over.open()
	_ = c.hangUp()
}

// NetConn returns the underlying connection, which go-redis inspects. It returns nil
// while pump reads, because the inspection would wait for that.
func (c *conn) NetConn() net.Conn {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	if c.pumping {
		return nil
	}
	return c.Conn
}
