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

	// Only Read uses these.
	arrived []byte // not yet delivered
	failed  error  // the error after arrived

	// network.mu guards what follows.
	due      time.Time // of arrived
	sent     int       // number of packets
	received int
	held     []byte    // written, but held back; sent by Heal
	leaving  []packet  // written, but delayed; a goroutine runs send
	inbox    []packet  // read by the pump
	last     time.Time // due time of the newest packet of the pump
	pumping  bool      // pump reads packets as they arrive
	closed   chan struct{}
	over     bool // closed is closed
	broken   bool // by Cut
	gone     bool // the underlying connection is closed
	doomed   bool // a write was lost while the clients were suspended
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
	case c.over:
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
	if c.over && len(c.held) == 0 {
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
	case c.over:
		return count, net.ErrClosed
	}
	return count, err
}

func (c *conn) read(p []byte) (int, error) {
	if len(c.arrived) == 0 && c.failed == nil {
		if count, err, done := c.receive(p); done {
			return count, err
		}
	}
	if err := c.await(); err != nil {
		return 0, err
	}
	count := copy(p, c.arrived)
	c.arrived = c.arrived[count:]
	if len(c.arrived) > 0 {
		return count, nil
	}
	err := c.failed
	c.failed = nil
	return count, err
}

// receive takes the next packet; done means that it was read into p without delay.
func (c *conn) receive(p []byte) (count int, err error, done bool) {
	n := c.network
	n.mu.Lock()
	if n.delay != nil {
		c.pump()
	}
	pumping := c.pumping
	n.mu.Unlock()
	if pumping {
		err := c.takeIn()
		return 0, err, err != nil
	}
	count, err = c.Conn.Read(p)
	n.mu.Lock()
	defer n.mu.Unlock()
	due := n.due(c.received)
	if due.IsZero() && n.replies.isOpen() || count == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.received++
		return count, err, true
	}
	c.received++
	c.arrived, c.failed, c.due = bytes.Clone(p[:count]), err, due
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
			c.store(packet{data: bytes.Clone(buf[:count]), err: err})
			if err != nil {
				return
			}
		}
	}()
}

// store adds a packet to the inbox.
func (c *conn) store(p packet) {
	n := c.network
	n.mu.Lock()
	p.due = n.due(c.received)
	c.received++
	if p.due.Before(c.last) {
		p.due = c.last // in order, as with TCP
	}
	c.last = p.due
	c.inbox = append(c.inbox, p)
	n.mu.Unlock()
	c.wake()
}

// wake makes pause look again.
func (c *conn) wake() {
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// takeIn waits for the next packet from pump.
func (c *conn) takeIn() error {
	for {
		c.network.mu.Lock()
		if len(c.inbox) > 0 {
			next := c.inbox[0]
			c.inbox = c.inbox[1:]
			c.due = next.due
			c.network.mu.Unlock()
			c.arrived, c.failed = next.data, next.err
			return nil
		}
		c.network.mu.Unlock()
		if err := c.pause(nil, nil, forever); err != nil {
			return err
		}
	}
}

// forever is longer than any wait for a packet.
const forever = 24 * time.Hour

// await waits until the arrived data is due and the replies flow. It returns an error if
// the deadline, which may change meanwhile, passes first, or if the connection is
// closed.
func (c *conn) await() error {
	for {
		n := c.network
		n.mu.Lock()
		over, replies, hurry, wait := c.over, n.replies, n.hurry, time.Until(c.due)
		n.mu.Unlock()
		switch {
		case over:
			return net.ErrClosed
		case !replies.isOpen():
			wait = forever
		case wait <= 0:
			return nil
		default:
			replies = nil
		}
		if err := c.pause(replies, hurry, wait); err != nil {
			return err
		}
	}
}

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
	case <-c.closed:
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
	c.end()
	if len(c.held)+len(c.leaving) == 0 {
		return c.hangUp()
	}
	if !c.pumping {
		_ = c.Conn.SetReadDeadline(time.Unix(1, 0)) // wakes Read
	}
	return nil
}

// end wakes Read for good. network.mu must be held.
func (c *conn) end() {
	if !c.over {
		c.over = true
		close(c.closed)
	}
}

// hangUp closes the underlying connection. network.mu must be held.
func (c *conn) hangUp() error {
	if c.gone {
		return nil
	}
	c.gone = true
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
	if c.over && len(c.leaving) == 0 {
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
	c.due, c.last = time.Time{}, time.Time{}
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
	c.end()
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
