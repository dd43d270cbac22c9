package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// conn is a connection of a pipe, from its login to its first error. One goroutine
// at a time reads replies, the one that holds reading: a lone caller for its own
// reply, or else readLoop.
type conn struct {
	pipe    *pipe
	netConn net.Conn
	since   time.Time
	hangUp  func()

	reading chan struct{} // capacity 1; full while a goroutine reads
	unread  chan struct{} // there are replies that no caller reads
	done    chan struct{} // closed by the first error

	// Used by the reading goroutine.
	in       []byte // not parsed yet
	replies  []any
	answered []*Command // commands of replies

	mu           sync.Mutex
	inFlight     []*Command // written and without a reply, in order
	err          error
	interrupting bool // the read deadline lies in the past, to make the reader return
}

func newConn(p *pipe, netConn net.Conn, hangUp func()) *conn {
	return &conn{
		pipe: p, netConn: netConn, since: time.Now(), hangUp: hangUp,
		reading: make(chan struct{}, 1), unread: make(chan struct{}, 1), done: make(chan struct{}),
		in: make([]byte, 0, 16<<10),
	}
}

// idle reports whether the connection works and no command is in flight.
func (pc *conn) idle() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.err == nil && len(pc.inFlight) == 0
}

func (pc *conn) ended() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.err != nil
}

// write sends commands. Calls must not overlap.
func (pc *conn) write(out []byte, commands ...*Command) {
	now := time.Now()
	for _, c := range commands {
		c.Written = now
	}
	pc.mu.Lock()
	err := pc.err
	if err == nil {
		if len(pc.inFlight) == 0 {
			pc.armReadDeadline()
		}
		pc.inFlight = append(pc.inFlight, commands...)
	}
	pc.mu.Unlock()
	if err != nil {
		for _, c := range commands {
			c.complete(nil, err)
		}
		return
	}
	if limit := pc.pipe.options.WriteTimeout; limit > 0 {
		err = pc.netConn.SetWriteDeadline(now.Add(limit))
	}
	if err == nil {
		_, err = pc.netConn.Write(out)
	}
	if err != nil {
		pc.fail(err)
	}
}

// armReadDeadline lets the connection fail if nothing arrives within ReadTimeout. The
// caller holds pc.mu. It ignores errors, because the next read returns them, too.
func (pc *conn) armReadDeadline() {
	if limit := pc.pipe.options.ReadTimeout; limit > 0 {
		_ = pc.netConn.SetReadDeadline(time.Now().Add(limit))
	}
}

// wakeReader makes readLoop read the replies that no caller reads.
func (pc *conn) wakeReader() { notify(pc.unread) }

// idleProbeAfter is how long a connection is idle before readLoop waits for its end. A
// lost server is then noticed before the next command.
const idleProbeAfter = time.Second

// readLoop reads the replies that no caller reads, and probes the idle connection.
func (pc *conn) readLoop() {
	timer := time.NewTimer(idleProbeAfter)
	defer timer.Stop()
	for {
		idle := false
		select {
		case <-pc.unread:
		case <-timer.C:
			idle = true
		case <-pc.done:
			return
		case <-pc.pipe.alive.Done():
			pc.fail(redis.ErrClosed)
			return
		}
		select {
		case pc.reading <- struct{}{}:
		case <-pc.done:
			return
		}
		if idle {
			pc.probeIdle()
		}
		for pc.needsReader() && pc.readOnce() == nil {
		}
		<-pc.reading
		timer.Reset(idleProbeAfter)
	}
}

// probeIdle reads without a deadline until data or the end of the connection arrives.
func (pc *conn) probeIdle() {
	pc.mu.Lock()
	if len(pc.inFlight) == 0 {
		_ = pc.netConn.SetReadDeadline(time.Time{})
	}
	pc.mu.Unlock()
	_ = pc.readOnce()
}

// needsReader reports whether there is a reply that no caller reads.
func (pc *conn) needsReader() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return len(pc.inFlight) > 1 || len(pc.inFlight) == 1 && !pc.inFlight[0].callerReads
}

// readFor reads until c, the only command in flight, has its reply or ctx ends.
// Another goroutine may read the reply instead.
func (pc *conn) readFor(ctx context.Context, c *Command) {
	select {
	case pc.reading <- struct{}{}:
	case <-c.done:
		return
	case <-ctx.Done():
		pc.handOver(c)
		return
	}
	recall := context.AfterFunc(ctx, func() { pc.interrupt(c) })
	for !c.finished() && ctx.Err() == nil && pc.readOnce() == nil {
	}
	recall()
	pc.handOver(c)
	<-pc.reading
}

// interrupt makes the caller that reads for c return.
func (pc *conn) interrupt(c *Command) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if c.callerReads {
		pc.interrupting = true
		_ = pc.netConn.SetReadDeadline(time.Unix(1, 0))
	}
}

// handOver notes that the caller of c does not read any more. readLoop reads the
// remaining replies.
func (pc *conn) handOver(c *Command) {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	c.callerReads = false
	if pc.interrupting {
		pc.interrupting = false
		pc.armReadDeadline()
	}
	if len(pc.inFlight) > 0 {
		pc.wakeReader()
	}
}

// readOnce reads once from the connection and delivers the complete replies. The
// caller holds pc.reading.
func (pc *conn) readOnce() error {
	if len(pc.in) == cap(pc.in) {
		pc.in = append(pc.in, 0)[:len(pc.in)]
	}
	n, err := pc.netConn.Read(pc.in[len(pc.in):cap(pc.in)])
	pc.in = pc.in[:len(pc.in)+n]
	if n > 0 {
		err = pc.deliver()
	} else if errors.Is(err, os.ErrDeadlineExceeded) && pc.interrupted() {
		return nil
	}
	if err != nil {
		pc.fail(err)
	}
	return err
}

func (pc *conn) interrupted() bool {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	return pc.interrupting
}

// deliver parses the complete replies and completes their commands.
func (pc *conn) deliver() error {
	replies, rest := pc.replies[:0], pc.in
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
	pc.in = pc.in[:copy(pc.in, rest)]
	answered := pc.popAnswered(len(replies))
	if len(answered) < len(replies) {
		return errUnexpectedReply
	}
	for i, c := range answered {
		c.complete(replies[i], nil)
	}
	clear(replies)
	clear(answered)
	pc.replies, pc.answered = replies, answered
	return nil
}

// popAnswered removes and returns the first n commands in flight. The read deadline of
// the others starts again.
func (pc *conn) popAnswered(n int) []*Command {
	pc.mu.Lock()
	defer pc.mu.Unlock()
	if n > len(pc.inFlight) {
		return nil
	}
	first := append(pc.answered[:0], pc.inFlight[:n]...)
	pc.inFlight = slices.Delete(pc.inFlight, 0, n)
	if n > 0 && len(pc.inFlight) > 0 && !pc.interrupting {
		pc.armReadDeadline()
	}
	return first
}

// fail closes the connection and fails the commands in flight. Only the first call
// counts.
func (pc *conn) fail(err error) {
	err = pc.pipe.closeCause(err)
	pc.mu.Lock()
	if pc.err != nil {
		pc.mu.Unlock()
		return
	}
	pc.err = err
	lost := pc.inFlight
	pc.inFlight = nil
	pc.mu.Unlock()
	close(pc.done)
	pc.hangUp()
	for _, c := range lost {
		c.complete(nil, err)
	}
}

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

// Commands and replies in RESP2, the version of the protocol that every server
// supports.

// serverError is an error reply. It is a [redis.Error].
type serverError string

func (e serverError) Error() string { return string(e) }

// RedisError implements [redis.Error].
func (serverError) RedisError() {}

// errProtocol means that the server has sent something that is not RESP2.
var errProtocol = errors.New("unexpected reply from the server")

// Limits of replies. The replies to the commands of this package are far smaller.
const (
	maxLine     = 64 << 10 // bytes
	maxReply    = 4 << 20  // bytes, also of a string in a reply
	maxElements = 4 << 10  // of an array
	maxDepth    = 8        // of nested arrays
)

// appendCommand appends a command to b.
func appendCommand(b []byte, args []string) []byte {
	b = appendLength(b, '*', len(args))
	for _, arg := range args {
		b = appendLength(b, '$', len(arg))
		b = append(b, arg...)
		b = append(b, "\r\n"...)
	}
	return b
}

func appendLength(b []byte, kind byte, n int) []byte {
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, "\r\n"...)
}

// parseReply returns the first reply in b and its size; size 0 means that it is not
// complete. A reply is a string, an int64, nil, a serverError, or a []any of these.
func parseReply(b []byte) (reply any, size int, err error) {
	reply, size, err = parseWithin(b, maxDepth)
	if err == nil && size == 0 && len(b) > maxReply {
		return nil, 0, errProtocol
	}
	return reply, size, err
}

// parseWithin is parseReply with a limit of nested arrays.
func parseWithin(b []byte, depth int) (reply any, size int, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxLine)], '\n')
	if end < 0 && len(b) >= maxLine {
		return nil, 0, errProtocol
	}
	if end < 0 {
		return nil, 0, nil
	}
	if end < 2 {
		return nil, 0, errProtocol
	}
	kind, line, size := b[0], b[1:end-1], end+1
	switch kind {
	case '+':
		if string(line) == "OK" {
			return "OK", size, nil // spares an allocation
		}
		return string(line), size, nil
	case '-':
		return serverError(line), size, nil
	}
	n, err := strconv.ParseInt(string(line), 10, 64)
	switch {
	case err != nil:
		return nil, 0, errProtocol
	case kind == ':':
		return n, size, nil
	case kind != '$' && kind != '*':
		return nil, 0, errProtocol
	case n < 0:
		return nil, size, nil
	case n > maxReply || kind == '*' && (n > maxElements || depth == 0):
		return nil, 0, errProtocol
	case kind == '*':
		return parseArray(b, size, int(n), depth-1)
	case len(b) < size+int(n)+2:
		return nil, 0, nil
	}
	return string(b[size : size+int(n)]), size + int(n) + 2, nil
}

// parseArray returns the n replies that follow in b after size bytes.
func parseArray(b []byte, size, n, depth int) (reply any, _ int, err error) {
	var all []any
	for range n {
		one, more, err := parseWithin(b[size:], depth)
		if err != nil || more == 0 {
			return nil, 0, err
		}
		all, size = append(all, one), size+more
	}
	return all, size, nil
}
