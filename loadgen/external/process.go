package external

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Options describes a client to start.
type Options struct {
	Command string   // for the shell
	URLs    []string // of the servers, for hello
	Client  string   // its label, for hello
	// ClockOffset is how far the clock of the client is ahead, for hello. A client obeys it
	// only if its hello says Clock.
	ClockOffset time.Duration

	HelloWithin time.Duration // default 30 s
	// ReplyWithin is how long a reply may take, in addition to the time that the request
	// may wait for a lock. Default 10 s.
	ReplyWithin time.Duration
	// Leeway is how long a reply may be under way, for which the end of a lease is not
	// judged. It counts only as far as the request took that long. Default 100 ms, and at
	// most a quarter of the lease.
	Leeway time.Duration
	// Excused reports whether a fault may explain that a client has not answered since
	// this time. Then it is not late. Nil: never.
	Excused func(since time.Time) bool
}

// Bounds.
const (
	maxLine   = 16 << 10    // bytes of a line
	maxEvents = 1000        // events without a reply between them
	byeWithin = time.Second // between bye and SIGKILL
	drain     = time.Second // how long output is read after the exit
)

// Process is a running client. All methods are safe for concurrent use.
type Process struct {
	options Options
	cmd     *exec.Cmd
	group   *group
	stdin   *os.File
	stderr  tail
	greeted chan struct{} // closed after hello, or when the process has failed
	greet   func()        // closes greeted
	done    chan struct{} // closed when the process and its output have ended

	writing sync.Mutex // a line at a time

	mu      sync.Mutex
	hello   Hello
	err     error // why the client ended, or is about to
	newest  int64 // ID of a request
	pending map[int64]*call
	leases  map[string][]*Lease // by token: a library may use one for several locks
	shows   bool                // it has reported a renewal
	events  int                 // since the newest reply
}

// Start starts a client and sends its hello. It does not wait for the reply: see
// [Process.Hello]. The client and the processes that it forks belong to a process group
// that ends with [Process.Close], and also when this process is killed.
func Start(o Options) (*Process, error) {
	o.HelloWithin = cmp.Or(o.HelloWithin, 30*time.Second)
	o.ReplyWithin = cmp.Or(o.ReplyWithin, 10*time.Second)
	p := &Process{
		options: o, greeted: make(chan struct{}), done: make(chan struct{}),
		pending: make(map[int64]*call), leases: make(map[string][]*Lease),
	}
	p.greet = sync.OnceFunc(func() { close(p.greeted) })
	stdout, stderr, err := p.spawn()
	if err != nil {
		return nil, fmt.Errorf("start the client %s: %w", quoted([]byte(o.Command)), err)
	}
	go p.run(stdout, stderr)
	if err := p.write(Request{Op: opHello, V: Version, URLs: o.URLs, Client: o.Client, ClockOffset: o.ClockOffset.Milliseconds()}, o.HelloWithin); err != nil {
		p.failedWrite(err)
	}
	return p, nil
}

// spawn starts the process.
func (p *Process) spawn() (stdout, stderr *os.File, err error) {
	var files []*os.File
	pipe := func() (r, w *os.File) {
		if err == nil {
			r, w, err = os.Pipe()
			files = append(files, r, w)
		}
		return r, w
	}
	theirIn, ourIn := pipe()
	ourOut, theirOut := pipe()
	ourErr, theirErr := pipe()
	if err == nil {
		p.cmd, p.group, err = startGroup(p.options.Command, func(cmd *exec.Cmd) {
			cmd.Stdin, cmd.Stdout, cmd.Stderr = theirIn, theirOut, theirErr
		})
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close()
		}
		return nil, nil, err
	}
	for _, f := range []*os.File{theirIn, theirOut, theirErr} {
		_ = f.Close()
	}
	p.stdin = ourIn
	return ourOut, ourErr, nil
}

// run reads the output of the process until it ends.
func (p *Process) run(stdout, stderr *os.File) {
	hello := time.AfterFunc(p.options.HelloWithin, func() {
		select {
		case <-p.greeted:
		default:
			p.fail(ErrNoHello, p.options.HelloWithin.String())
		}
	})
	defer hello.Stop()
	var readers sync.WaitGroup
	readers.Go(func() {
		defer stdout.Close()
		p.read(stdout)
	})
	readers.Go(func() {
		defer stderr.Close()
		_, _ = io.Copy(&p.stderr, stderr)
	})
	failed := p.cmd.Wait()
	p.group.kill() // processes that it forked, which may hold its stdout open
	_ = stdout.SetReadDeadline(time.Now().Add(drain))
	_ = stderr.SetReadDeadline(time.Now().Add(drain))
	readers.Wait()
	p.group.forget()
	detail := "with status 0"
	if failed != nil {
		detail = failed.Error()
	}
	p.fail(ErrExited, detail)
	_ = p.stdin.Close()
	p.finish()
	close(p.done)
}

// read handles the lines of the process until its end, or until it breaks the protocol.
func (p *Process) read(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, maxLine)
	for greeted := false; ; greeted = true {
		line, err := lines.ReadSlice('\n')
		now := time.Now()
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			p.fail(ErrFlood, fmt.Sprintf("a line of more than %d bytes begins with %s", maxLine, quoted(line)))
			return
		case err != nil && len(line) == 0:
			return
		}
		r, detail, err := parseReply(line)
		switch {
		case err != nil:
		case !greeted:
			if detail, err = r.checkHello(); err == nil {
				p.hear(r.Hello)
			}
		case r.Event != "":
			detail, err = p.event(r, now)
		default:
			detail, err = p.answer(r, now)
		}
		if err != nil {
			p.fail(err, detail)
			return
		}
	}
}

func (p *Process) hear(h Hello) {
	h.Name = printable(h.Name[:min(len(h.Name), longestQuote)])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hello = h
	p.greet()
}

// event handles an event. Unknown events, and those of unknown tokens, are ignored.
func (p *Process) event(r Reply, now time.Time) (detail string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.events++; p.events > maxEvents {
		return fmt.Sprintf("%d events without a reply", p.events), ErrFlood
	}
	if detail, err = r.checkValid(); err != nil {
		return detail, err
	}
	if r.Event == "renewed" && r.Valid == nil {
		return "a renewal without valid_ms", ErrField
	}
	p.shows = p.shows || r.Event == "renewed"
	for _, l := range p.leases[r.Token] {
		switch r.Event {
		case "lost":
			l.end(ErrLost)
		case "renewed":
			valid := milliseconds(*r.Valid)
			l.prolong(now.Add(valid-p.options.leeway(valid)), now.Add(valid))
		}
	}
	return "", nil
}

// answer hands a reply to the caller that waits for it.
func (p *Process) answer(r Reply, now time.Time) (detail string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.ID == nil {
		return "neither an id nor an event", ErrField
	}
	c, known := p.pending[*r.ID]
	switch {
	case *r.ID < 1 || *r.ID > p.newest:
		return fmt.Sprintf("id %d", *r.ID), ErrUnknownID
	case !known:
		return fmt.Sprintf("id %d", *r.ID), ErrAnsweredTwice
	}
	if detail, err = r.check(c.Op); err != nil {
		return detail, err
	}
	p.events = 0
	delete(p.pending, *r.ID)
	a := answer{Reply: r, at: now}
	if c.Op == opLock && r.OK {
		a.lease = newLease(p, c, a)
		if c.reply == nil { // the caller has given up
			go p.undo(a.lease)
			return "", nil
		}
		p.leases[r.Token] = append(p.leases[r.Token], a.lease)
	}
	if c.reply != nil {
		c.reply <- a
	}
	return "", nil
}

// undo releases a lock that was granted after its caller had given up.
func (p *Process) undo(l *Lease) {
	_, _ = p.do(context.Background(), Request{Op: opUnlock, Token: l.token, Lock: l.lock}, 0)
}

// Shows reports whether the client has reported a renewal: then it reports all.
func (p *Process) Shows() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shows
}

// forget removes a lease. p.mu must be held.
func (p *Process) forget(l *Lease) {
	p.leases[l.token] = slices.DeleteFunc(p.leases[l.token], func(other *Lease) bool { return other == l })
	if len(p.leases[l.token]) == 0 {
		delete(p.leases, l.token)
	}
}

// fail ends the client with an error, unless it has one.
func (p *Process) fail(reason error, detail string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	e := &Error{Client: cmp.Or(p.hello.Name, quoted([]byte(p.options.Command))), Err: reason, Detail: printable(detail)}
	p.stop(e)
}

// stop kills the process for a reason. p.mu must be held.
func (p *Process) stop(reason error) {
	if p.err == nil {
		p.err = reason
	}
	p.group.kill()
}

// finish hands the reason of the end to all that wait.
func (p *Process) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	var e *Error
	if errors.As(p.err, &e) {
		e.Stderr = p.stderr.lines()
	}
	for _, all := range p.leases {
		for _, l := range all {
			l.end(p.err)
		}
	}
	p.greet()
}

// Err returns why the client ended: an [*Error], [ErrKilled] or [ErrClosed]. It returns
// nil while the client runs.
func (p *Process) Err() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Hello waits for the hello of the client.
func (p *Process) Hello(ctx context.Context) (Hello, error) {
	select {
	case <-p.greeted:
	case <-ctx.Done():
		return Hello{}, ctx.Err()
	}
	p.mu.Lock()
	h, failed := p.hello, p.err != nil
	p.mu.Unlock()
	if failed {
		<-p.done
		return Hello{}, p.Err()
	}
	return h, nil
}

// Kill ends the client like a crash. It returns when the process has ended.
func (p *Process) Kill() { p.killFor(ErrKilled) }

func (p *Process) killFor(reason error) {
	p.mu.Lock()
	p.stop(reason)
	p.mu.Unlock()
	<-p.done
}

// Freeze stops the client and its timers, as with SIGSTOP, until [Process.Continue].
func (p *Process) Freeze() error { return p.group.freeze() }

// Continue ends Freeze.
func (p *Process) Continue() error { return p.group.resume() }

// Close says bye to the client, kills it if it does not end within a second, and returns
// when no process of it is left. It returns the error of a client that broke the protocol
// before.
func (p *Process) Close() error {
	p.mu.Lock()
	running := p.err == nil
	if running {
		p.err = ErrClosed
	}
	p.mu.Unlock()
	if running {
		_ = p.write(Request{Op: opBye}, byeWithin)
		_ = p.stdin.Close()
		select {
		case <-p.done:
		case <-time.After(byeWithin):
		}
	}
	p.killFor(ErrClosed)
	var broken *Error
	if err := p.Err(); errors.As(err, &broken) {
		return err
	}
	return nil
}
