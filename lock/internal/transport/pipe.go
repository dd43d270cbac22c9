package transport

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/auth"
)

// pipe is the transport to one server. It writes the queued commands of many callers
// together, and the server answers in the same order. No caller waits for the replies
// to earlier commands. A caller whose command is the only one in flight writes it and
// reads the reply itself, unless the last write had several commands. This saves two
// switches of goroutines: a lock and its unlock by one goroutine take 27 µs, and 38 µs
// without it (BenchmarkCycle of package lock, with a Mutex, at best of 8 runs).
//
// When a connection breaks, the commands in flight fail. The next command opens
// another.
type pipe struct {
	tracker    *connTracker
	client     *redis.Client                     // for other connections than conn
	options    redis.Options                     // of conn
	provider   auth.StreamingCredentialsProvider // of the credentials of conn; nil: they do not change
	wakeWriter chan struct{}                     // the queue is not empty
	alive      context.Context
	stop       context.CancelFunc
	workers    sync.WaitGroup

	mu          sync.Mutex
	unsubscribe auth.UnsubscribeFunc // from provider; nil before the first login
	out         []byte               // the commands of queue in RESP2
	queue       []*Command           // not written yet
	writing     bool                 // the writer is running or has been woken
	lastSolo    bool                 // the writer's last write was one command
	conn        *conn                // nil before the first command
	closed      bool
}

// NewPipe returns a transport to the server of these options, which come from
// [CloneOptions]. It does not connect; the first command does.
func NewPipe(o redis.Options) Transport {
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	tracker := &connTracker{}
	tracker.wrap(&o.Dialer)
	client := redis.NewClient(&o)
	p := &pipe{tracker: tracker, client: client, options: CloneOptions(client), wakeWriter: make(chan struct{}, 1)}
	p.options.Protocol = 2 // RESP2: the server sends nothing but replies
	p.options.ClientSideCache, p.options.ClientSideCacheConfig = nil, nil
	p.options.Limiter = nil
	if p.provider = p.options.StreamingCredentialsProvider; p.provider != nil {
		p.options.StreamingCredentialsProvider = nil // go-redis would write into the stream
		p.options.CredentialsProviderContext = p.credentials
	}
	p.options.MinIdleConns, p.options.PipelinePoolSize = 0, -1
	p.alive, p.stop = context.WithCancel(context.Background())
	p.workers.Go(p.write)
	return p
}

// maxSoloWrite is the number of bytes that a lone caller may write itself. They fit
// into the empty buffer of the socket, so the write does not block.
const maxSoloWrite = 8 << 10

func (p *pipe) Send(_ context.Context, c *Command) Reply {
	c.done = make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		c.complete(nil, redis.ErrClosed)
		return c
	}
	p.out = appendCommand(p.out, c.Args)
	if conn := p.conn; conn != nil && p.lastSolo && !p.writing && len(p.out) <= maxSoloWrite && conn.idle() {
		c.soloConn, c.callerReads = conn, true
		conn.write(p.out, c)
		p.out = p.out[:0]
		return c
	}
	p.queue = append(p.queue, c)
	if !p.writing {
		p.writing = true
		notify(p.wakeWriter)
	}
	return c
}

// write is the goroutine that writes queued commands.
func (p *pipe) write() {
	defer p.failQueued()
	var out []byte
	var queue []*Command
	for {
		select {
		case <-p.wakeWriter:
		case <-p.alive.Done():
			return
		}
		for more := true; more; more = p.moreQueued() {
			// Replies arrive in batches and wake many callers at the same time. Let them queue
			// their next commands: one write for all is much cheaper for both sides.
			runtime.Gosched()
			out, queue = p.drain(out, queue)
			p.flush(out, queue)
		}
	}
}

// drain returns the queued commands. The next ones reuse the memory of the last write.
func (p *pipe) drain(written []byte, passed []*Command) (out []byte, queue []*Command) {
	clear(passed)
	p.mu.Lock()
	defer p.mu.Unlock()
	out, queue = p.out, p.queue
	p.out, p.queue = written[:0], passed[:0]
	p.lastSolo = len(queue) == 1
	return out, queue
}

// moreQueued reports whether the writer must continue.
func (p *pipe) moreQueued() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.writing = len(p.queue) > 0
	return p.writing
}

// flush writes commands to the connection. If there is none, it dials one.
func (p *pipe) flush(out []byte, queue []*Command) {
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

// dial connects and logs in with go-redis, and takes over the connection.
func (p *pipe) dial() (*conn, error) {
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
	// NOPERM: a user without permission to PING has logged in, too.
	if err := login.Ping(p.alive).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		hangUp()
		return nil, p.closeCause(err)
	}
	conn := first.Conn()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		hangUp()
		return nil, p.closeCause(err)
	}
	pc := newConn(p, conn, hangUp)
	p.workers.Go(pc.readLoop)
	return pc, nil
}

// credentials subscribes to the provider and returns the credentials for a login.
func (p *pipe) credentials(context.Context) (user, pass string, err error) {
	p.mu.Lock()
	before := p.unsubscribe
	p.unsubscribe = nil
	p.mu.Unlock()
	if before != nil { // of the connection that is lost
		_ = before()
	}
	now, unsubscribe, err := p.provider.Subscribe(reauth{p})
	if err != nil {
		return "", "", err
	}
	p.mu.Lock()
	p.unsubscribe = unsubscribe
	closed := p.closed
	p.mu.Unlock()
	if closed {
		_ = unsubscribe()
	}
	user, pass = now.BasicAuth()
	return user, pass, nil
}

// reauth authenticates a pipe again when its credentials change. It implements
// [auth.CredentialsListener].
type reauth struct{ pipe *pipe }

// OnNext implements [auth.CredentialsListener]. It sends AUTH in the order of the other
// commands, which need not wait for the reply. After an error the server still accepts the
// previous credentials.
func (r reauth) OnNext(now auth.Credentials) {
	args := []string{"auth"}
	user, pass := now.BasicAuth()
	if user != "" {
		args = append(args, user)
	}
	reply := r.pipe.Send(r.pipe.alive, &Command{Args: append(args, pass)})
	go func() { _ = reply.Wait(r.pipe.alive) }()
}

// OnError implements [auth.CredentialsListener]. The connection works as long as the server
// accepts its credentials.
func (r reauth) OnError(error) {}

// singleDialer dials exactly one connection. go-redis dials in a goroutine that may
// outlive the call, so all methods may be called concurrently.
type singleDialer struct {
	alive context.Context
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)

	mu           sync.Mutex
	conn         net.Conn
	stopWatching func() bool // stops watching alive
	closed       bool
}

// Dial connects. The connection is closed when alive ends, or earlier. After Dial has
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

// Conn returns the connection; nil if there is none.
func (d *singleDialer) Conn() net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.conn
}

// Close closes the connection, also one that a running Dial is about to return.
func (d *singleDialer) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.conn != nil {
		d.stopWatching()
		d.conn.Close()
	}
}

// closeCause returns [redis.ErrClosed] if the pipe is closed, else err.
func (p *pipe) closeCause(err error) error {
	if p.alive.Err() != nil {
		return redis.ErrClosed
	}
	return err
}

// failQueued fails the commands that were not written.
func (p *pipe) failQueued() {
	p.mu.Lock()
	queue := p.queue
	p.queue, p.out = nil, nil
	p.mu.Unlock()
	for _, c := range queue {
		c.complete(nil, redis.ErrClosed)
	}
}

func (p *pipe) ExecWithWait(ctx context.Context, _ string, cmd *Command, replicas int, timeout time.Duration) (acks int64, err error) {
	return execWithWait(ctx, p.client, false, cmd, replicas, timeout)
}

func (p *pipe) DropStale() {
	p.tracker.redial()
	p.mu.Lock()
	conn := p.conn
	p.mu.Unlock()
	if conn != nil && time.Since(conn.since) >= staleAge {
		conn.fail(errStaleMaster)
	}
}

func (p *pipe) Clustered() bool { return false }

func (p *pipe) Subscribe(ctx context.Context) Subscriber { return subscriber{p.client.Subscribe(ctx)} }

// closeTimeout limits how long Close waits for a dialer that ignores its context.
const closeTimeout = time.Second

func (p *pipe) Close() error {
	p.mu.Lock()
	p.closed = true
	unsubscribe := p.unsubscribe
	p.mu.Unlock()
	if unsubscribe != nil {
		_ = unsubscribe()
	}
	p.stop()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.workers.Wait()
	}()
	select {
	case <-stopped:
	case <-time.After(closeTimeout):
	}
	return p.client.Close()
}

// Reasons to close a connection other than its own errors.
var (
	errUnexpectedReply = errors.New("the server sent a reply without a command")
	errStaleMaster     = errors.New("the server may no longer be the master, or does not answer")
)

// notify makes a channel of capacity 1 ready.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
