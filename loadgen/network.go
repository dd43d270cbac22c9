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
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// network is the network between some clients and their servers. It can be cut, frozen,
// slowed and killed. As with TCP, the data that it holds back during a cut arrives in
// order after heal. It counts the commands. Safe for concurrent use.
type network struct {
	commands  *atomic.Int64
	pool      int  // pool size of a Redis client over the network; 0 = as in the server's options
	impatient bool // a Redis client over the network does not retry, and obeys the deadline of its context

	mu            sync.Mutex
	lanes         []*lane // by node; the first leads to a server that is not a node
	delay, jitter time.Duration
	dead          chan struct{} // closed: the clients have crashed
	frozen        chan struct{} // closed: the clients run
	ends          map[*networkConn]struct{}
}

// lane is the part of a network that leads to one server.
type lane struct {
	sending chan struct{} // closed: requests flow
	hearing chan struct{} // closed: replies flow
}

func newNetwork(commands *atomic.Int64) *network {
	return &network{commands: commands, frozen: flowing(), dead: make(chan struct{}), ends: make(map[*networkConn]struct{})}
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

// laneTo returns the lane to a node, counted from 1; 0 = the only server. w.mu must be
// held.
func (w *network) laneTo(node int) *lane {
	for node >= len(w.lanes) {
		w.lanes = append(w.lanes, &lane{flowing(), flowing()})
	}
	return w.lanes[node]
}

// to returns the lane to a node, or all lanes if node is 0. w.mu must be held.
func (w *network) to(node int) []*lane {
	w.laneTo(node)
	if node > 0 {
		return w.lanes[node : node+1]
	}
	return w.lanes
}

// cut holds back requests and replies between the clients and a node, or only the
// replies; node 0 = all.
func (w *network) cut(node int, repliesOnly bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.to(node) {
		if isFlowing(l.hearing) {
			l.hearing = make(chan struct{})
		}
		if !repliesOnly && isFlowing(l.sending) {
			l.sending = make(chan struct{})
		}
	}
}

// heal delivers what was held back, and lets data flow again to a node; 0 = all.
func (w *network) heal(node int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	lanes := w.to(node)
	for e := range w.ends {
		if slices.Contains(lanes, e.lane) {
			e.flush()
		}
	}
	for _, l := range lanes {
		for _, gate := range []chan struct{}{l.sending, l.hearing} {
			if !isFlowing(gate) {
				close(gate)
			}
		}
	}
}

// freeze simulates clients that do not run. Whatever they write is never sent. Replies
// wait until thaw.
func (w *network) freeze() {
	w.cut(0, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if isFlowing(w.frozen) {
		w.frozen = make(chan struct{})
	}
}

func (w *network) thaw() {
	w.heal(0)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !isFlowing(w.frozen) {
		close(w.frozen)
	}
	for e := range w.ends {
		if e.doomed {
			_ = e.Conn.Close()
		}
	}
}

// slow delays every packet in both directions by delay ± jitter; 0 = no delay.
func (w *network) slow(delay, jitter time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.delay, w.jitter = delay, jitter
}

// lag returns the delay of the next packet. w.mu must be held.
func (w *network) lag() time.Duration { return w.delay - w.jitter + rand.N(2*w.jitter+1) }

var errDead = errors.New("the client has crashed")

// kill closes all connections and prevents new ones.
func (w *network) kill() {
	w.mu.Lock()
	if !isFlowing(w.dead) {
		close(w.dead)
	}
	ends := make([]*networkConn, 0, len(w.ends))
	for e := range w.ends {
		ends = append(ends, e)
	}
	w.mu.Unlock()
	for _, e := range ends {
		e.kill()
	}
}

// over returns a Redis client of the same server whose connections use the network. The
// caller closes it.
func (w *network) over(rdb redis.UniversalClient) (redis.UniversalClient, error) {
	switch c := rdb.(type) {
	case *redis.Client:
		return w.overOne(c), nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.Addrs = slices.Clone(o.Addrs) // go-redis appends to the slice that it is given
		o.PoolSize = cmp.Or(w.pool, o.PoolSize)
		if w.impatient {
			o.ContextTimeoutEnabled, o.MaxRetries = true, -1
		}
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer = w.through(o.Dialer, 0)
		return redis.NewClusterClient(&o), nil
	}
	return nil, fmt.Errorf("the load needs a redis.Client or a redis.ClusterClient, not a %T", rdb)
}

func (w *network) overOne(c *redis.Client) *redis.Client { return w.overNode(c, 0) }

// overNode is overOne for a node, counted from 1.
func (w *network) overNode(c *redis.Client, node int) *redis.Client {
	o := *c.Options()
	o.PoolSize = cmp.Or(w.pool, o.PoolSize)
	if w.impatient {
		o.ContextTimeoutEnabled, o.MaxRetries = true, -1
	}
	o.Dialer = w.through(o.Dialer, node)
	// go-redis must not share these between two clients.
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&o)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// through returns a dialer over the network to a node, counted from 1; 0 = the only
// server.
func (w *network) through(dial dialer, node int) dialer {
	w.mu.Lock()
	l := w.laneTo(node)
	w.mu.Unlock()
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if err := w.reach(ctx, l); err != nil {
			return nil, &net.OpError{Op: "dial", Net: network, Err: err}
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		e := &networkConn{Conn: conn, wire: w, lane: l, moved: make(chan struct{}, 1), closed: make(chan struct{})}
		w.mu.Lock()
		w.ends[e] = struct{}{}
		w.mu.Unlock()
		return e, nil
	}
}

// reach waits until the lane is not cut and the clients are not frozen, so that they
// can connect.
func (w *network) reach(ctx context.Context, l *lane) error {
	for {
		w.mu.Lock()
		gates := []chan struct{}{l.sending, l.hearing, w.frozen}
		w.mu.Unlock()
		if isFlowing(w.dead) {
			return errDead
		}
		shut := slices.IndexFunc(gates, func(gate chan struct{}) bool { return !isFlowing(gate) })
		if shut < 0 {
			return nil
		}
		select {
		case <-gates[shut]:
		case <-w.dead:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(dialWithin): // if ctx has no deadline
			return os.ErrDeadlineExceeded
		}
	}
}

// dialWithin bounds an attempt to connect.
const dialWithin = 5 * time.Second

// networkConn is a client's end of a connection.
type networkConn struct {
	net.Conn
	wire     *network
	lane     *lane
	deadline atomic.Int64  // of reads, in Unix nanoseconds; 0 = none
	moved    chan struct{} // capacity 1: the deadline has changed, or a packet has arrived

	// Only Read uses these.
	arrived []byte // held back
	failed  error  // the error after arrived
	due     time.Time

	// wire.mu guards what follows.
	held    []byte   // written, but held back by a cut; sent at heal
	leaving []packet // written, but delayed; a goroutine runs send
	inbox   []packet // read by the pump
	pumping bool     // pump runs, to delay each packet by itself
	closed  chan struct{}
	over    bool
	doomed  bool // Write dropped data during a freeze
}

// packet is the data of one write or read, with the time of its delivery.
type packet struct {
	due  time.Time
	data []byte
	err  error // the error after data
}

// Write implements [net.Conn].
func (e *networkConn) Write(p []byte) (int, error) {
	w := e.wire
	w.mu.Lock()
	if !isFlowing(w.frozen) {
		// A frozen client would not have written this. The connection is closed at
		// thaw, because otherwise the client would take another reply for the missing
		// one.
		e.doomed = true
		w.mu.Unlock()
		return len(p), nil
	}
	w.commands.Add(commandsIn(p))
	switch {
	case e.over:
	case w.delay > 0 || len(e.leaving) > 0:
		e.leaving = append(e.leaving, packet{due: time.Now().Add(w.lag()), data: bytes.Clone(p)})
		if len(e.leaving) == 1 {
			go e.send()
		}
		w.mu.Unlock()
		return len(p), nil
	case !isFlowing(e.lane.sending):
		e.held = append(e.held, p...)
		w.mu.Unlock()
		return len(p), nil
	}
	w.mu.Unlock()
	return e.Conn.Write(p)
}

// send delivers the delayed packets in order, each when it is due.
func (e *networkConn) send() {
	w := e.wire
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(e.leaving) > 0 {
		next := e.leaving[0]
		w.mu.Unlock()
		time.Sleep(time.Until(next.due))
		w.mu.Lock()
		if len(e.leaving) == 0 {
			return // kill dropped the packets meanwhile
		}
		if isFlowing(e.lane.sending) {
			w.mu.Unlock()
			_, _ = e.Conn.Write(next.data) // the reader finds out about a broken connection
			w.mu.Lock()
		} else {
			e.held = append(e.held, next.data...)
		}
		if len(e.leaving) > 0 {
			e.leaving = e.leaving[1:]
		}
	}
	if e.over && len(e.held) == 0 {
		e.hangUp()
	}
}

// commandsIn counts the commands that begin in a part of a request stream. Each command
// is an array. The locks store no values that look like the head of an array.
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

// Read implements [net.Conn]. Calls must not overlap. If the deadline passes first,
// delayed data stays for the next call, as in a socket buffer.
func (e *networkConn) Read(p []byte) (int, error) {
	if len(e.arrived) == 0 && e.failed == nil {
		if n, err, done := e.receive(p); done {
			return n, err
		}
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

// receive takes the next packet; done means that it was read into p without delay.
func (e *networkConn) receive(p []byte) (n int, err error, done bool) {
	w := e.wire
	w.mu.Lock()
	if w.delay > 0 && !e.pumping {
		e.pumping = true
		_ = e.Conn.SetReadDeadline(time.Time{})
		go e.pump()
	}
	pumping := e.pumping
	w.mu.Unlock()
	if pumping {
		err := e.takeIn()
		return 0, err, err != nil
	}
	n, err = e.Conn.Read(p)
	w.mu.Lock()
	delay, lag := w.delay, w.lag()
	flows := isFlowing(e.lane.hearing)
	w.mu.Unlock()
	if delay == 0 && flows || n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err, true
	}
	e.arrived, e.failed, e.due = bytes.Clone(p[:n]), err, time.Now().Add(lag)
	return 0, nil, false
}

// pump reads packets as they arrive, so that each has its own delay.
func (e *networkConn) pump() {
	buf := make([]byte, 16<<10)
	var last time.Time
	for {
		n, err := e.Conn.Read(buf)
		e.wire.mu.Lock()
		due := time.Now().Add(e.wire.lag())
		if due.Before(last) {
			due = last // in order, as with TCP
		}
		last = due
		e.inbox = append(e.inbox, packet{due, bytes.Clone(buf[:n]), err})
		e.wire.mu.Unlock()
		select {
		case e.moved <- struct{}{}:
		default:
		}
		if err != nil {
			return
		}
	}
}

// takeIn waits for the next packet from pump.
func (e *networkConn) takeIn() error {
	for {
		e.wire.mu.Lock()
		if len(e.inbox) > 0 {
			next := e.inbox[0]
			e.inbox = e.inbox[1:]
			e.wire.mu.Unlock()
			e.arrived, e.failed, e.due = next.data, next.err, next.due
			return nil
		}
		e.wire.mu.Unlock()
		if err := e.pause(nil, maxTime); err != nil {
			return err
		}
	}
}

// await waits until the arrived data is due and the lane is not cut. It returns an
// error if the deadline, which may change meanwhile, passes first, or if the connection
// is closed.
func (e *networkConn) await() error {
	for {
		e.wire.mu.Lock()
		gate := e.lane.hearing
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

// pause waits until the gate opens, lag is over, or the deadline changes.
func (e *networkConn) pause(gate chan struct{}, lag time.Duration) error {
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
func (e *networkConn) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.Conn.SetWriteDeadline(t))
}

// SetReadDeadline implements [net.Conn].
func (e *networkConn) SetReadDeadline(t time.Time) error {
	e.setDeadline(t)
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if e.pumping {
		return nil // pump reads without a deadline
	}
	return e.Conn.SetReadDeadline(t)
}

func (e *networkConn) setDeadline(t time.Time) {
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

// Close implements [net.Conn]. Data that is held back still arrives after heal.
func (e *networkConn) Close() error {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if !e.over {
		e.over = true
		close(e.closed)
	}
	if len(e.held)+len(e.leaving) > 0 {
		return nil
	}
	return e.hangUp()
}

// hangUp closes the underlying connection. wire.mu must be held.
func (e *networkConn) hangUp() error {
	delete(e.wire.ends, e)
	return e.Conn.Close()
}

// flush delivers the data that is held back. wire.mu must be held.
func (e *networkConn) flush() {
	if len(e.held) == 0 {
		return
	}
	// The reader finds out about a broken connection.
	_, _ = e.Conn.Write(e.held)
	e.held = nil
	if e.over && len(e.leaving) == 0 {
		_ = e.hangUp()
	}
}

// kill closes the connection; data that is held back never arrives.
func (e *networkConn) kill() {
	e.wire.mu.Lock()
	e.held, e.leaving = nil, nil
	e.wire.mu.Unlock()
	_ = e.Close()
}

// NetConn returns the underlying connection, which go-redis inspects. It returns nil
// while pump reads, because the inspection would wait for that.
func (e *networkConn) NetConn() net.Conn {
	e.wire.mu.Lock()
	defer e.wire.mu.Unlock()
	if e.pumping {
		return nil
	}
	return e.Conn
}
