package lock

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// pipe is the wire to one server. Commands of many callers are written
// together, as many as have gathered, and answered in the same order; nobody
// waits for the answers to earlier ones. A caller who is alone, and not the first
// of a crowd, writes his command and reads its reply by himself, which spares two
// changes of goroutine.
//
// A connection that breaks takes the commands that are on it along. The next
// command opens another.
type pipe struct {
	tracker    *connTracker
	client     *redis.Client // for whatever needs another connection
	options    redis.Options // of ours
	wakeWriter chan struct{} // the writer has something to do
	alive      context.Context
	stop       context.CancelFunc
	workers    sync.WaitGroup

	mu       sync.Mutex
	out      []byte     // the commands of queue as they go over the wire
	queue    []*command // handed in and not written yet
	writing  bool       // the writer is at work, or woken
	lastSolo bool       // the last that it wrote was one command
	conn     *pipeConn  // nil before the first command
	closed   bool
}

// newPipe returns a stream over connections as client would make them: they
// are links. client is the stream's from now on.
func newPipe(client *redis.Client, tracker *connTracker) *pipe {
	p := &pipe{tracker: tracker, client: client, options: cloneOptions(client), wakeWriter: make(chan struct{}, 1)}
	p.options.Protocol = 2 // a reply is all that comes
	p.options.ClientSideCache, p.options.ClientSideCacheConfig = nil, nil
	p.options.Limiter = nil
	p.options.MinIdleConns, p.options.PipelinePoolSize = 0, -1
	p.alive, p.stop = context.WithCancel(context.Background())
	p.workers.Go(p.write)
	return p
}

// maxSoloWrite is how much a caller who is alone writes by himself, into the empty
// buffer of a socket: it fits, so he does not have to wait.
const maxSoloWrite = 8 << 10

func (p *pipe) send(_ context.Context, c *command) reply {
	if c.callback == nil {
		c.done = make(chan struct{})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.complete(nil, redis.ErrClosed)
		return c
	}
	p.out = appendCommand(p.out, c.args)
	if conn := p.conn; conn != nil && p.lastSolo && !p.writing && len(p.out) <= maxSoloWrite && conn.idle() {
		if c.callback == nil {
			c.soloConn, c.callerReads = conn, true
		}
		conn.write(p.out, c)
		p.out = p.out[:0]
		if c.callback != nil {
			conn.wakeReader()
		}
		return c
	}
	p.queue = append(p.queue, c)
	if !p.writing {
		p.writing = true
		notify(p.wakeWriter)
	}
	return c
}

// write is the writer's goroutine.
func (p *pipe) write() {
	defer p.failQueued()
	var out []byte
	var queue []*command
	for {
		select {
		case <-p.wakeWriter:
		case <-p.alive.Done():
			return
		}
		for more := true; more; more = p.moreQueued() {
			// Replies come in bunches, and so do the callers whom they wake. Let all
			// of them hand in what they have: one write for all costs both sides a
			// fraction.
			runtime.Gosched()
			out, queue = p.drain(out, queue)
			p.flush(out, queue)
		}
	}
}

// drain returns what is to be written, and leaves room for what comes next: what
// was written before.
func (p *pipe) drain(written []byte, passed []*command) (out []byte, queue []*command) {
	clear(passed)
	p.mu.Lock()
	defer p.mu.Unlock()
	out, queue = p.out, p.queue
	p.out, p.queue = written[:0], passed[:0]
	p.lastSolo = len(queue) == 1
	return out, queue
}

// moreQueued reports whether something came meanwhile; if not, the writer is through.
func (p *pipe) moreQueued() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = len(p.queue) > 0
	return p.writing
}

// flush writes commands to the connection, a new one if need be.
func (p *pipe) flush(out []byte, queue []*command) {
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn == nil || conn.ended() {
		var err error
		if conn, err = p.dial(); err != nil {
			for _, c := range queue {
				c.complete(nil, err)
			}
			return
		}
		p.mu.Lock()
		p.conn = conn
		p.mu.Unlock()
	}
	conn.write(out, queue...)
	conn.wakeReader()
}

// dial has go-redis connect and log in, with all the ways it knows, and takes
// the connection over.
func (p *pipe) dial() (*pipeConn, error) {
	first := &singleDialer{alive: p.alive, dial: p.options.Dialer}
	o := p.options
	o.Dialer = first.Dial
	client := redis.NewClient(&o)
	login := client.Conn()
	hangUp := func() {
		first.Close()
		login.Close()
		client.Close()
	}
	// A user who may not PING has logged in all the same.
	if err := login.Ping(p.alive).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		hangUp()
		return nil, p.closeCause(err)
	}
	conn := first.Conn()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		hangUp()
		return nil, p.closeCause(err)
	}
	pc := newPipeConn(p, conn, hangUp)
	p.workers.Go(pc.readLoop)
	return pc, nil
}

// singleDialer is a dialer for exactly one connection. go-redis dials in a goroutine
// that may outlive the call that asked for it, so its methods may be called
// concurrently.
type singleDialer struct {
	alive context.Context
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)

	mu           sync.Mutex
	conn         net.Conn
	stopWatching func() bool // stops watching alive
	closed       bool
}

// Dial connects. The connection ends with alive at the latest. Once Dial has
// returned a connection, it returns errors.
func (d *singleDialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := d.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || d.conn != nil {
		c.Close()
		return nil, net.ErrClosed
	}
	d.conn, d.stopWatching = c, context.AfterFunc(d.alive, func() { c.Close() })
	return c, nil
}

// Conn returns the connection, nil if there is none.
func (d *singleDialer) Conn() net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn
}

// Close ends the connection, also one that a running Dial is about to make.
func (d *singleDialer) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.conn != nil {
		d.stopWatching()
		d.conn.Close()
	}
}

// closeCause returns why a connection ended with err: by its fault or by ours.
func (p *pipe) closeCause(err error) error {
	if p.alive.Err() != nil {
		return redis.ErrClosed
	}
	return err
}

// failQueued ends what will not be written any more.
func (p *pipe) failQueued() {
	p.mu.Lock()
	queue := p.queue
	p.queue, p.out = nil, nil
	p.mu.Unlock()
	for _, c := range queue {
		c.complete(nil, redis.ErrClosed)
	}
}

func (p *pipe) pipelineOn(ctx context.Context, key string, timeout time.Duration, cmds ...redis.Cmder) error {
	return execOnMaster(ctx, p.client, key, timeout, cmds)
}

func (p *pipe) dropStale() {
	p.tracker.redial()
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn != nil && time.Since(conn.since) >= staleAge {
		conn.fail(errStaleMaster)
	}
}

func (p *pipe) clustered() bool { return false }

func (p *pipe) subscribe(ctx context.Context) *redis.PubSub { return p.client.Subscribe(ctx) }

func (p *pipe) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.workers.Wait()
	}()
	select {
	case <-stopped:
	case <-time.After(closeTimeout): // a dialer of the caller's that does not heed its context
	}
	return p.client.Close()
}

// complete hands the waiter, or the listener, its reply.
func (c *command) complete(value any, err error) {
	switch failure, failed := value.(serverError); {
	case err != nil:
		c.err = err
	case failed:
		c.err = failure
	case value == nil:
		c.err = redis.Nil
	default:
		c.value = value
	}
	if c.callback != nil {
		c.callback.done()
		return
	}
	close(c.done)
}

// wait implements [reply]. What a listener was told is there at once.
func (c *command) wait(ctx context.Context) error {
	if c.callback != nil {
		return c.err
	}
	if conn := c.soloConn; conn != nil && !c.finished() {
		c.soloConn = nil // who waits again leaves the reading to the session
		conn.readFor(ctx, c)
	}
	if c.finished() {
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *command) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Why a connection is given up, other than by its own errors.
var (
	errUnexpectedReply = errors.New("the server answered more than it was asked")
	errStaleMaster     = errors.New("the server is not the master any more, or does not answer")
)
