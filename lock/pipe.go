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
func newPipe(client *redis.Client, links *connTracker) *pipe {
	s := &pipe{tracker: links, client: client, options: cloneOptions(client), wakeWriter: make(chan struct{}, 1)}
	s.options.Protocol = 2 // a reply is all that comes
	s.options.ClientSideCache, s.options.ClientSideCacheConfig = nil, nil
	s.options.Limiter = nil
	s.options.MinIdleConns, s.options.PipelinePoolSize = 0, -1
	s.alive, s.stop = context.WithCancel(context.Background())
	s.workers.Go(s.write)
	return s
}

// maxSoloWrite is how much a caller who is alone writes by himself, into the empty
// buffer of a socket: it fits, so he does not have to wait.
const maxSoloWrite = 8 << 10

func (s *pipe) send(_ context.Context, c *command) reply {
	if c.callback == nil {
		c.done = make(chan struct{})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.complete(nil, redis.ErrClosed)
		return c
	}
	s.out = appendCommand(s.out, c.args)
	if x := s.conn; x != nil && s.lastSolo && !s.writing && len(s.out) <= maxSoloWrite && x.idle() {
		if c.callback == nil {
			c.soloConn, c.callerReads = x, true
		}
		x.write(s.out, c)
		s.out = s.out[:0]
		if c.callback != nil {
			x.wakeReader()
		}
		return c
	}
	s.queue = append(s.queue, c)
	if !s.writing {
		s.writing = true
		notify(s.wakeWriter)
	}
	return c
}

// write is the writer's goroutine.
func (s *pipe) write() {
	defer s.failQueued()
	var out []byte
	var queue []*command
	for {
		select {
		case <-s.wakeWriter:
		case <-s.alive.Done():
			return
		}
		for more := true; more; more = s.moreQueued() {
			// Replies come in bunches, and so do the callers whom they wake. Let all
			// of them hand in what they have: one write for all costs both sides a
			// fraction.
			runtime.Gosched()
			out, queue = s.drain(out, queue)
			s.flush(out, queue)
		}
	}
}

// drain returns what is to be written, and leaves room for what comes next: what
// was written before.
func (s *pipe) drain(written []byte, passed []*command) (out []byte, queue []*command) {
	clear(passed)
	s.mu.Lock()
	defer s.mu.Unlock()
	out, queue = s.out, s.queue
	s.out, s.queue = written[:0], passed[:0]
	s.lastSolo = len(queue) == 1
	return out, queue
}

// moreQueued reports whether something came meanwhile; if not, the writer is through.
func (s *pipe) moreQueued() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writing = len(s.queue) > 0
	return s.writing
}

// flush writes commands to the connection, a new one if need be.
func (s *pipe) flush(out []byte, queue []*command) {
	s.mu.Lock()
	x := s.conn
	s.mu.Unlock()
	if x == nil || x.ended() {
		var err error
		if x, err = s.dial(); err != nil {
			for _, c := range queue {
				c.complete(nil, err)
			}
			return
		}
		s.mu.Lock()
		s.conn = x
		s.mu.Unlock()
	}
	x.write(out, queue...)
	x.wakeReader()
}

// dial has go-redis connect and log in, with all the ways it knows, and takes
// the connection over.
func (s *pipe) dial() (*pipeConn, error) {
	first := &singleDialer{alive: s.alive, dial: s.options.Dialer}
	o := s.options
	o.Dialer = first.Dial
	client := redis.NewClient(&o)
	login := client.Conn()
	hangUp := func() {
		first.Close()
		login.Close()
		client.Close()
	}
	// A user who may not PING has logged in all the same.
	if err := login.Ping(s.alive).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		hangUp()
		return nil, s.closeCause(err)
	}
	conn := first.Conn()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		hangUp()
		return nil, s.closeCause(err)
	}
	x := newPipeConn(s, conn, hangUp)
	s.workers.Go(x.readLoop)
	return x, nil
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
func (f *singleDialer) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := f.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.conn != nil {
		c.Close()
		return nil, net.ErrClosed
	}
	f.conn, f.stopWatching = c, context.AfterFunc(f.alive, func() { c.Close() })
	return c, nil
}

// Conn returns the connection, nil if there is none.
func (f *singleDialer) Conn() net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conn
}

// Close ends the connection, also one that a running Dial is about to make.
func (f *singleDialer) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.conn != nil {
		f.stopWatching()
		f.conn.Close()
	}
}

// closeCause returns why a connection ended with err: by its fault or by ours.
func (s *pipe) closeCause(err error) error {
	if s.alive.Err() != nil {
		return redis.ErrClosed
	}
	return err
}

// failQueued ends what will not be written any more.
func (s *pipe) failQueued() {
	s.mu.Lock()
	queue := s.queue
	s.queue, s.out = nil, nil
	s.mu.Unlock()
	for _, c := range queue {
		c.complete(nil, redis.ErrClosed)
	}
}

func (s *pipe) pipelineOn(ctx context.Context, key string, patience time.Duration, cmds ...redis.Cmder) error {
	return execOnMaster(ctx, s.client, key, patience, cmds)
}

func (s *pipe) dropStale() {
	s.tracker.redial()
	s.mu.Lock()
	x := s.conn
	s.mu.Unlock()
	if x != nil && time.Since(x.since) >= staleAge {
		x.fail(errStaleMaster)
	}
}

func (s *pipe) clustered() bool { return false }

func (s *pipe) subscribe(ctx context.Context) *redis.PubSub { return s.client.Subscribe(ctx) }

func (s *pipe) close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.stop()
	over := make(chan struct{})
	go func() {
		defer close(over)
		s.workers.Wait()
	}()
	select {
	case <-over:
	case <-time.After(closeTimeout): // a dialer of the caller's that does not heed its context
	}
	return s.client.Close()
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
	if x := c.soloConn; x != nil && !c.finished() {
		c.soloConn = nil // who waits again leaves the reading to the session
		x.readFor(ctx, c)
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
