package loadgen

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// wire is the network between some clients and their servers, with switches for
// its faults. What is held back while it is cut arrives, in order, when it heals,
// as with TCP. It counts the commands that go over it. Safe for concurrent use.
type wire struct {
	commands  *atomic.Int64
	pool      int  // connections of a client over it; 0 = as the server's options say
	impatient bool // a client over it tries once, and not for longer than its context says

	mu            sync.Mutex
	sending       chan struct{} // closed: requests flow
	hearing       chan struct{} // closed: replies flow
	delay, jitter time.Duration
	dead          bool
	ends          map[*end]struct{}
}

func newWire(commands *atomic.Int64) *wire {
	return &wire{commands: commands, sending: flowing(), hearing: flowing(), ends: make(map[*end]struct{})}
}

func flowing() chan struct{} {
	open := make(chan struct{})
	close(open)
	return open
}

// isFlowing reports whether a gate is open.
func isFlowing(gate chan struct{}) bool {
	select {
	case <-gate:
		return true
	default:
		return false
	}
}

// cut holds back what is sent and what is heard, or only what is heard.
func (w *wire) cut(repliesOnly bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if isFlowing(w.hearing) {
		w.hearing = make(chan struct{})
	}
	if !repliesOnly && isFlowing(w.sending) {
		w.sending = make(chan struct{})
	}
}

// heal lets everything flow, what was held back first.
func (w *wire) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for e := range w.ends {
		e.flush()
	}
	for _, gate := range []chan struct{}{w.sending, w.hearing} {
		if !isFlowing(gate) {
			close(gate)
		}
	}
}

// slow makes every packet take longer; 0 is as before.
func (w *wire) slow(delay, jitter time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay, w.jitter = delay, jitter
}

var errDead = errors.New("the client has crashed")

// kill ends all connections, and lets none be made.
func (w *wire) kill() {
	w.mu.Lock()
	w.dead = true
	ends := make([]*end, 0, len(w.ends))
	for e := range w.ends {
		ends = append(ends, e)
	}
	w.mu.Unlock()
	for _, e := range ends {
		e.drop()
	}
}

// over returns a client of the same server whose connections go over the wire.
// It is the caller's to close.
func (w *wire) over(rdb redis.UniversalClient) (redis.UniversalClient, error) {
	switch c := rdb.(type) {
	case *redis.Client:
		return w.overOne(c), nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.PoolSize = cmp.Or(w.pool, o.PoolSize)
		if w.impatient {
			o.ContextTimeoutEnabled, o.MaxRetries = true, -1
		}
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer = w.through(o.Dialer)
		return redis.NewClusterClient(&o), nil
	}
	return nil, fmt.Errorf("the load needs a redis.Client or a redis.ClusterClient, not a %T", rdb)
}

func (w *wire) overOne(c *redis.Client) *redis.Client {
	o := *c.Options()
	o.PoolSize = cmp.Or(w.pool, o.PoolSize)
	if w.impatient {
		o.ContextTimeoutEnabled, o.MaxRetries = true, -1
	}
	o.Dialer = w.through(o.Dialer)
	// These serve one client only.
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&o)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func (w *wire) through(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.mu.Lock()
		dead := w.dead
		w.mu.Unlock()
		if dead {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errDead}
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		e := &end{Conn: conn, wire: w, moved: make(chan struct{}, 1), closed: make(chan struct{})}
		w.mu.Lock()
		w.ends[e] = struct{}{}
		w.mu.Unlock()
		return e, nil
	}
}

// end is the client's end of a connection.
type end struct {
	net.Conn
	wire     *wire
	deadline atomic.Int64  // of reads, in Unix nanoseconds; 0 = none
	moved    chan struct{} // capacity 1: the deadline is another

	// The reader's.
	arrived []byte // held back
	failed  error  // comes after it
	due     time.Time

	// wire.mu guards what follows.
	held   []byte // written, and held back
	closed chan struct{}
	over   bool
}

// Write implements [net.Conn].
func (e *end) Write(p []byte) (int, error) {
	e.wire.commands.Add(commandsIn(p))
	e.wire.mu.Lock()
	if !isFlowing(e.wire.sending) && !e.over {
		e.held = append(e.held, p...)
		e.wire.mu.Unlock()
		return len(p), nil
	}
	e.wire.mu.Unlock()
	return e.Conn.Write(p)
}

// commandsIn counts the commands that begin in a piece of a stream of requests:
// each is an array, and the locks store nothing that looks like the head of one.
func commandsIn(p []byte) int64 {
	var n int64
	for at := 0; ; at++ {
		next := bytes.IndexByte(p[at:], '*')
		if next < 0 {
			return n
		}
		at += next
		if bytes.HasSuffix(p[:at], []byte("\r\n")) || at == 0 {
			if at+1 < len(p) && '0' <= p[at+1] && p[at+1] <= '9' {
				n++
			}
		}
	}
}

// Read implements [net.Conn]. Calls must not overlap. What has arrived and is held
// back stays, if the deadline passes first, for the next call: as in the buffer of
// a socket.
func (e *end) Read(p []byte) (int, error) {
	if len(e.arrived) == 0 && e.failed == nil {
		n, err := e.Conn.Read(p)
		e.wire.mu.Lock()
		gate, delay, jitter := e.wire.hearing, e.wire.delay, e.wire.jitter
		e.wire.mu.Unlock()
		if delay == 0 && isFlowing(gate) || n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		e.arrived, e.failed = bytes.Clone(p[:n]), err
		e.due = time.Now().Add(delay - jitter + rand.N(2*jitter+1))
	}
	if err := e.await(); err != nil {
		return 0, err
	}
	n := copy(p, e.arrived)
	e.arrived = e.arrived[n:]
	if len(e.arrived) > 0 {
		return n, nil
	}
	err := e.failed
	e.failed = nil
	return n, err
}

// await waits until what has arrived is due and flows. It returns an error if the
// deadline, which may move meanwhile, passes first, or the connection is closed.
func (e *end) await() error {
	for {
		e.wire.mu.Lock()
		gate := e.wire.hearing
		e.wire.mu.Unlock()
		lag := time.Until(e.due)
		switch {
		case !isFlowing(gate):
			lag = maxTime
		case lag <= 0:
			return nil
		default:
			gate = nil
		}
		if err := e.pause(gate, lag); err != nil {
			return err
		}
	}
}

// pause waits for a gate, for a time, or for a change of the deadline.
func (e *end) pause(gate chan struct{}, lag time.Duration) error {
	left := time.Duration(maxTime)
	if at := e.deadline.Load(); at != 0 {
		left = time.Until(time.Unix(0, at))
	}
	if left <= 0 {
		return os.ErrDeadlineExceeded
	}
	timer := time.NewTimer(min(lag, left))
	defer timer.Stop()
	select {
	case <-gate:
	case <-timer.C:
	case <-e.moved:
	case <-e.closed:
		return net.ErrClosed
	}
	return nil
}

// SetDeadline implements [net.Conn].
func (e *end) SetDeadline(t time.Time) error {
	e.remember(t)
	return e.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (e *end) SetReadDeadline(t time.Time) error {
	e.remember(t)
	return e.Conn.SetReadDeadline(t)
}

func (e *end) remember(t time.Time) {
	at := int64(0)
	if !t.IsZero() {
		at = t.UnixNano()
	}
	e.deadline.Store(at)
	select {
	case e.moved <- struct{}{}:
	default:
	}
}

// Close implements [net.Conn]. What is held back still arrives when the wire
// heals.
func (e *end) Close() error {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if !e.over {
		e.over = true
		close(e.closed)
	}
	if len(e.held) > 0 {
		return nil
	}
	delete(e.wire.ends, e)
	return e.Conn.Close()
}

// flush delivers what was held back. The wire's mutex must be held.
func (e *end) flush() {
	if len(e.held) == 0 {
		return
	}
	// A connection that broke meanwhile is found out by its reader.
	_, _ = e.Conn.Write(e.held)
	e.held = nil
	if e.over {
		delete(e.wire.ends, e)
		_ = e.Conn.Close()
	}
}

// drop ends the connection; what was held back never arrives.
func (e *end) drop() {
	e.wire.mu.Lock()
	e.held = nil
	e.wire.mu.Unlock()
	_ = e.Close()
}

// NetConn returns the connection as it was dialed, for go-redis to look at.
func (e *end) NetConn() net.Conn { return e.Conn }
