package lock

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipeConn is a connection from its login to its first error. Its replies are
// read by one at a time, who holds reading: the caller that is alone, for his own
// reply, or else the session's goroutine.
type pipeConn struct {
	pipe   *pipe
	conn   net.Conn
	since  time.Time
	hangUp func()

	reading chan struct{} // capacity 1: taken by the reader
	unread  chan struct{} // there are replies that nobody reads
	done    chan struct{} // closed with the first error

	// The reader's.
	in       []byte // read and not understood yet
	replies  []any
	answered []*command // that have them

	mu           sync.Mutex
	inFlight     []*command // under way, in order
	err          error
	interrupting bool // the reader's deadline was moved into the past, to make him leave
}

func newPipeConn(s *pipe, conn net.Conn, hangUp func()) *pipeConn {
	return &pipeConn{
		pipe: s, conn: conn, since: time.Now(), hangUp: hangUp,
		reading: make(chan struct{}, 1), unread: make(chan struct{}, 1), done: make(chan struct{}),
		in: make([]byte, 0, 16<<10),
	}
}

// idle reports whether nothing is under way, on a connection that works.
func (x *pipeConn) idle() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err == nil && len(x.inFlight) == 0
}

func (x *pipeConn) ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil
}

// write sends commands. Calls must not overlap.
func (x *pipeConn) write(out []byte, commands ...*command) {
	now := time.Now()
	for _, c := range commands {
		c.written = now
	}
	x.mu.Lock()
	err := x.err
	if err == nil {
		if len(x.inFlight) == 0 {
			x.armReadDeadline()
		}
		x.inFlight = append(x.inFlight, commands...)
	}
	x.mu.Unlock()
	if err != nil {
		for _, c := range commands {
			c.complete(nil, err)
		}
		return
	}
	if limit := x.pipe.options.WriteTimeout; limit > 0 {
		err = x.conn.SetWriteDeadline(time.Now().Add(limit))
	}
	if err == nil {
		_, err = x.conn.Write(out)
	}
	if err != nil {
		x.fail(err)
	}
}

// armReadDeadline has the connection fail unless something comes in time. Called with
// x.mu held. That it fails shows when reading.
func (x *pipeConn) armReadDeadline() {
	if limit := x.pipe.options.ReadTimeout; limit > 0 {
		_ = x.conn.SetReadDeadline(time.Now().Add(limit))
	}
}

// wakeReader has the session's goroutine read the replies that nobody reads.
func (x *pipeConn) wakeReader() { notify(x.unread) }

// idleProbeAfter is how long a session is unused before it listens for the end of the
// connection, so that a server that went away is noticed before the next command.
const idleProbeAfter = time.Second

// readLoop is the session's goroutine.
func (x *pipeConn) readLoop() {
	timer := time.NewTimer(idleProbeAfter)
	defer timer.Stop()
	for {
		resting := false
		select {
		case <-x.unread:
		case <-timer.C:
			resting = true
		case <-x.done:
			return
		case <-x.pipe.alive.Done():
			x.fail(redis.ErrClosed)
			return
		}
		select {
		case x.reading <- struct{}{}:
		case <-x.done:
			return
		}
		if resting {
			x.probeIdle()
		}
		for x.needsReader() && x.readOnce() == nil {
		}
		<-x.reading
		timer.Reset(idleProbeAfter)
	}
}

// probeIdle reads whatever comes, be it the end.
func (x *pipeConn) probeIdle() {
	x.mu.Lock()
	if len(x.inFlight) == 0 {
		_ = x.conn.SetReadDeadline(time.Time{})
	}
	x.mu.Unlock()
	_ = x.readOnce()
}

// needsReader reports whether there is a reply that nobody reads by himself.
func (x *pipeConn) needsReader() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.inFlight) > 1 || len(x.inFlight) == 1 && !x.inFlight[0].callerReads
}

// readFor reads until c, which is alone, has its reply or ctx ends; it may be that
// somebody else reads it.
func (x *pipeConn) readFor(ctx context.Context, c *command) {
	select {
	case x.reading <- struct{}{}:
	case <-c.done:
		return
	case <-ctx.Done():
		x.handOver(c)
		return
	}
	recall := context.AfterFunc(ctx, func() { x.interrupt(c) })
	for !c.finished() && ctx.Err() == nil && x.readOnce() == nil {
	}
	recall()
	x.handOver(c)
	<-x.reading
}

// interrupt makes the one who reads for c leave.
func (x *pipeConn) interrupt(c *command) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.callerReads {
		x.interrupting = true
		_ = x.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// handOver notes that nobody reads for c any more. What is still under way is for
// the session's goroutine.
func (x *pipeConn) handOver(c *command) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.callerReads = false
	if x.interrupting {
		x.interrupting = false
		x.armReadDeadline()
	}
	if len(x.inFlight) > 0 {
		x.wakeReader()
	}
}

// readOnce waits for something to come, and hands out the replies that are
// complete. The caller is the reader.
func (x *pipeConn) readOnce() error {
	if len(x.in) == cap(x.in) {
		x.in = append(x.in, 0)[:len(x.in)]
	}
	n, err := x.conn.Read(x.in[len(x.in):cap(x.in)])
	x.in = x.in[:len(x.in)+n]
	if n > 0 {
		err = x.deliver()
	} else if errors.Is(err, os.ErrDeadlineExceeded) && x.interrupted() {
		return nil
	}
	if err != nil {
		x.fail(err)
	}
	return err
}

func (x *pipeConn) interrupted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.interrupting
}

// deliver hands out the replies that are complete.
func (x *pipeConn) deliver() error {
	replies, rest := x.replies[:0], x.in
	for {
		reply, size, err := parseReply(rest)
		if err != nil {
			return err
		}
		if size == 0 {
			break
		}
		replies, rest = append(replies, reply), rest[size:]
	}
	x.in = x.in[:copy(x.in, rest)]
	answered := x.popAnswered(len(replies))
	if len(answered) < len(replies) {
		return errUnexpectedReply
	}
	for i, c := range answered {
		c.complete(replies[i], nil)
	}
	clear(replies)
	clear(answered)
	x.replies, x.answered = replies, answered
	return nil
}

// popAnswered takes off the first n commands that are under way. The others have
// all their time again.
func (x *pipeConn) popAnswered(n int) []*command {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n > len(x.inFlight) {
		return nil
	}
	first := append(x.answered[:0], x.inFlight[:n]...)
	x.inFlight = slices.Delete(x.inFlight, 0, n)
	if n > 0 && len(x.inFlight) > 0 && !x.interrupting {
		x.armReadDeadline()
	}
	return first
}

// fail ends the session: what is under way will not be answered any more.
func (x *pipeConn) fail(err error) {
	err = x.pipe.closeCause(err)
	x.mu.Lock()
	if x.err != nil {
		x.mu.Unlock()
		return
	}
	x.err = err
	lost := x.inFlight
	x.inFlight = nil
	x.mu.Unlock()
	close(x.done)
	x.hangUp()
	for _, c := range lost {
		c.complete(nil, err)
	}
}
