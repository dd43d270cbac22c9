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

// session is a connection from its login to its first error. Its replies are
// read by one at a time, who holds reading: the caller that is alone, for his own
// reply, or else the session's goroutine.
type session struct {
	stream *stream
	conn   net.Conn
	since  time.Time
	hangUp func()

	reading chan struct{} // capacity 1: taken by the reader
	asked   chan struct{} // there are replies that nobody reads
	over    chan struct{} // closed with the first error

	// The reader's.
	in      []byte // read and not understood yet
	replies []any
	got     []*command // that have them

	mu   sync.Mutex
	sent []*command // under way, in order
	err  error
	cut  bool // the reader's deadline was moved into the past, to make him leave
}

func newSession(s *stream, conn net.Conn, hangUp func()) *session {
	return &session{
		stream: s, conn: conn, since: time.Now(), hangUp: hangUp,
		reading: make(chan struct{}, 1), asked: make(chan struct{}, 1), over: make(chan struct{}),
		in: make([]byte, 0, 16<<10),
	}
}

// quiet reports whether nothing is under way, on a connection that works.
func (x *session) quiet() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err == nil && len(x.sent) == 0
}

func (x *session) ended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.err != nil
}

// write sends commands. Calls must not overlap.
func (x *session) write(out []byte, commands ...*command) {
	now := time.Now()
	for _, c := range commands {
		c.written = now
	}
	x.mu.Lock()
	err := x.err
	if err == nil {
		if len(x.sent) == 0 {
			x.beStrict()
		}
		x.sent = append(x.sent, commands...)
	}
	x.mu.Unlock()
	if err != nil {
		for _, c := range commands {
			c.finish(nil, err)
		}
		return
	}
	if limit := x.stream.options.WriteTimeout; limit > 0 {
		err = x.conn.SetWriteDeadline(time.Now().Add(limit))
	}
	if err == nil {
		_, err = x.conn.Write(out)
	}
	if err != nil {
		x.fail(err)
	}
}

// beStrict has the connection fail unless something comes in time. Called with
// x.mu held. That it fails shows when reading.
func (x *session) beStrict() {
	if limit := x.stream.options.ReadTimeout; limit > 0 {
		_ = x.conn.SetReadDeadline(time.Now().Add(limit))
	}
}

// attend has the session's goroutine read the replies that nobody reads.
func (x *session) attend() { wake(x.asked) }

// restAfter is how long a session is unused before it listens for the end of the
// connection, so that a server that went away is noticed before the next command.
const restAfter = time.Second

// serve is the session's goroutine.
func (x *session) serve() {
	timer := time.NewTimer(restAfter)
	defer timer.Stop()
	for {
		resting := false
		select {
		case <-x.asked:
		case <-timer.C:
			resting = true
		case <-x.over:
			return
		case <-x.stream.alive.Done():
			x.fail(redis.ErrClosed)
			return
		}
		select {
		case x.reading <- struct{}{}:
		case <-x.over:
			return
		}
		if resting {
			x.rest()
		}
		for x.unattended() && x.step() == nil {
		}
		<-x.reading
		timer.Reset(restAfter)
	}
}

// rest reads whatever comes, be it the end.
func (x *session) rest() {
	x.mu.Lock()
	if len(x.sent) == 0 {
		_ = x.conn.SetReadDeadline(time.Time{})
	}
	x.mu.Unlock()
	_ = x.step()
}

// unattended reports whether there is a reply that nobody reads by himself.
func (x *session) unattended() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.sent) > 1 || len(x.sent) == 1 && !x.sent[0].attended
}

// read reads until c, which is alone, has its reply or ctx ends; it may be that
// somebody else reads it.
func (x *session) read(ctx context.Context, c *command) {
	select {
	case x.reading <- struct{}{}:
	case <-c.done:
		return
	case <-ctx.Done():
		x.leave(c)
		return
	}
	recall := context.AfterFunc(ctx, func() { x.interrupt(c) })
	for !c.finished() && ctx.Err() == nil && x.step() == nil {
	}
	recall()
	x.leave(c)
	<-x.reading
}

// interrupt makes the one who reads for c leave.
func (x *session) interrupt(c *command) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c.attended {
		x.cut = true
		_ = x.conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// leave notes that nobody reads for c any more. What is still under way is for
// the session's goroutine.
func (x *session) leave(c *command) {
	x.mu.Lock()
	defer x.mu.Unlock()
	c.attended = false
	if x.cut {
		x.cut = false
		x.beStrict()
	}
	if len(x.sent) > 0 {
		x.attend()
	}
}

// step waits for something to come, and hands out the replies that are
// complete. The caller is the reader.
func (x *session) step() error {
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

func (x *session) interrupted() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.cut
}

// deliver hands out the replies that are complete.
func (x *session) deliver() error {
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
	answered := x.answered(len(replies))
	if len(answered) < len(replies) {
		return errSurplus
	}
	for i, c := range answered {
		c.finish(replies[i], nil)
	}
	clear(replies)
	clear(answered)
	x.replies, x.got = replies, answered
	return nil
}

// answered takes off the first n commands that are under way. The others have
// all their time again.
func (x *session) answered(n int) []*command {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n > len(x.sent) {
		return nil
	}
	first := append(x.got[:0], x.sent[:n]...)
	x.sent = slices.Delete(x.sent, 0, n)
	if n > 0 && len(x.sent) > 0 && !x.cut {
		x.beStrict()
	}
	return first
}

// fail ends the session: what is under way will not be answered any more.
func (x *session) fail(err error) {
	err = x.stream.cause(err)
	x.mu.Lock()
	if x.err != nil {
		x.mu.Unlock()
		return
	}
	x.err = err
	lost := x.sent
	x.sent = nil
	x.mu.Unlock()
	close(x.over)
	x.hangUp()
	for _, c := range lost {
		c.finish(nil, err)
	}
}
