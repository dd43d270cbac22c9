package loadgen

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen/external"
	"locktop/lock"
)

// ServeClient is a client process with locks like l: it speaks the protocol of package
// external on in and out, until bye, the end of in or the end of ctx. Then it releases
// all locks. The TTL of l does not count, that of each request does.
func ServeClient(ctx context.Context, l Lock, in io.Reader, out io.Writer) error {
	if l.Kind == Exec || l.Kind.permits() || l.Kind == All {
		return fmt.Errorf("a client process has locks of one key for one holder, not those of %s", l.Kind)
	}
	if err := l.withDefaults().validate(); err != nil {
		return err
	}
	return serveClient(ctx, l, open, in, out)
}

func serveClient(ctx context.Context, l Lock, open func(sessionConfig) (session, error), in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &processClient{
		settings: l, open: open, ctx: ctx, out: json.NewEncoder(out), network: newNetwork(new(atomic.Int64)),
		sessions: make(map[time.Duration]session), held: make(map[string]*servedLease),
	}
	err := p.serve(in)
	cancel()
	p.tasks.Wait()
	return errors.Join(err, p.close())
}

// processClient is the state of ServeClient.
type processClient struct {
	settings Lock
	open     func(sessionConfig) (session, error)
	ctx      context.Context // ends with bye
	network  *network
	owner    string
	servers  Servers
	tasks    sync.WaitGroup

	writing sync.Mutex
	out     *json.Encoder

	mu       sync.Mutex
	newest   int // number of the newest token
	sessions map[time.Duration]session
	held     map[string]*servedLease // by token
}

// servedLease is a lease that the generator knows by its token.
type servedLease struct {
	lease
	key string
}

// say writes a line.
func (p *processClient) say(line map[string]any) {
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.out.Encode(line) // without a reader, the end of stdin follows
}

// serve handles requests until bye. It returns an error about a line that is not one.
func (p *processClient) serve(in io.Reader) error {
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var r external.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return fmt.Errorf("a line that is not a request: %w", err)
		}
		switch r.Op {
		case "hello":
			if err := p.hello(r); err != nil {
				p.say(map[string]any{"ok": false, "error": err.Error()})
				return err
			}
		case "bye":
			return nil
		default:
			p.tasks.Go(func() {
				reply := p.reply(r)
				reply["id"] = r.ID
				p.say(reply)
			})
		}
	}
	return nil
}

// hello connects to the servers.
func (p *processClient) hello(r external.Request) error {
	if r.V != external.Version {
		return fmt.Errorf("version %d is unknown", r.V)
	}
	p.owner = r.Client
	for _, url := range r.URLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return err
		}
		p.servers.Nodes = append(p.servers.Nodes, redis.NewClient(o))
	}
	if len(p.servers.Nodes) == 0 {
		return errors.New("there is no URL")
	}
	p.servers.Redis = p.servers.Nodes[0]
	kind := p.settings.Kind
	p.say(map[string]any{
		"ok": true, "name": "locktop " + string(kind), "kinds": []Kind{kind},
		"renews": kind.Sound() && !p.settings.Renew.Off, "fences": p.settings.Fence, "tells": kind.Sound(),
	})
	return nil
}

// reply runs a request.
func (p *processClient) reply(r external.Request) map[string]any {
	switch r.Op {
	case "lock":
		return p.lock(r)
	case "unlock":
		return p.unlock(r)
	case "extend":
		return p.extend(r)
	}
	return map[string]any{"ok": false, "error": "no such request: " + r.Op}
}

// session returns the session for leases of a TTL.
func (p *processClient) session(ttl time.Duration) (session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[ttl]; s != nil {
		return s, nil
	}
	scenario := Scenario{Lock: p.settings}
	scenario.Lock.TTL = ttl
	scenario = scenario.WithDefaults()
	root, err := p.open(sessionConfig{p.servers, scenario, p.network, p.observe})
	if err != nil {
		return nil, err
	}
	s := ownConns{root.as(clientIdentity{owner: p.owner}), root}
	p.sessions[ttl] = s
	return s, nil
}

func (p *processClient) lock(r external.Request) map[string]any {
	s, err := p.session(time.Duration(r.TTL) * time.Millisecond)
	if err != nil {
		return map[string]any{"ok": false, "error": err.Error()}
	}
	wait := time.Duration(0)
	if r.Wait != nil {
		wait = time.Duration(*r.Wait) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(p.ctx, max(wait, minTTL))
	defer cancel()
	l, err := s.lock(ctx, []string{r.Key}, false)
	switch {
	case errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil:
		return map[string]any{"ok": false, "held": true}
	case err != nil:
		return map[string]any{"ok": false, "error": err.Error()}
	}
	token := p.hold(r.Key, l)
	return map[string]any{"ok": true, "token": token, "valid_ms": max(time.Until(l.Deadline()).Milliseconds(), 1), "fence": l.Fence()}
}

// hold records a lease and returns its token.
func (p *processClient) hold(key string, l lease) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest++
	token := fmt.Sprintf("%s-%d", p.owner, p.newest)
	p.held[token] = &servedLease{l, key}
	if p.settings.Kind.Sound() {
		p.tasks.Go(func() { p.watch(token, l) })
	}
	return token
}

// take returns the lease of a token and forgets it; nil = there is none.
func (p *processClient) take(token string) lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.held[token]
	if l == nil {
		return nil
	}
	delete(p.held, token)
	return l.lease
}

// watch reports the loss of a lease.
func (p *processClient) watch(token string, l lease) {
	select {
	case <-l.Context().Done():
	case <-p.ctx.Done():
		return
	}
	p.mu.Lock()
	_, held := p.held[token]
	p.mu.Unlock()
	if held {
		p.say(map[string]any{"event": "lost", "token": token})
	}
}

// observe reports renewals. Package lock must not wait for the report.
func (p *processClient) observe(e lock.Event) {
	if e.Kind == lock.Renewed {
		go p.renewed(e.Key)
	}
}

func (p *processClient) renewed(key string) {
	p.mu.Lock()
	var renewed []map[string]any
	for token, l := range p.held {
		if left := time.Until(l.Deadline()); l.key == key && left > time.Millisecond {
			renewed = append(renewed, map[string]any{"event": "renewed", "token": token, "valid_ms": left.Milliseconds()})
		}
	}
	p.mu.Unlock()
	for _, line := range renewed {
		p.say(line)
	}
}

func (p *processClient) unlock(r external.Request) map[string]any {
	l := p.take(r.Token)
	if l == nil {
		return map[string]any{"ok": false, "lost": true}
	}
	ctx, cancel := context.WithTimeout(p.ctx, releaseWithin)
	defer cancel()
	return outcomeOf(l.Unlock(ctx))
}

// outcomeOf returns the reply to an unlock or extend.
func outcomeOf(err error) map[string]any {
	switch {
	case errors.Is(err, lock.ErrLost):
		return map[string]any{"ok": false, "lost": true}
	case err != nil:
		return map[string]any{"ok": false, "error": err.Error()}
	}
	return map[string]any{"ok": true}
}

func (p *processClient) extend(r external.Request) map[string]any {
	p.mu.Lock()
	held := p.held[r.Token]
	p.mu.Unlock()
	if held == nil {
		return map[string]any{"ok": false, "lost": true}
	}
	l, can := held.lease.(interface {
		Extend(context.Context, time.Duration) error
	})
	if !can {
		return map[string]any{"ok": false, "error": "this kind cannot extend a lease"}
	}
	ctx, cancel := context.WithTimeout(p.ctx, releaseWithin)
	defer cancel()
	reply := outcomeOf(l.Extend(ctx, time.Duration(r.TTL)*time.Millisecond))
	if reply["ok"] == true {
		reply["valid_ms"] = max(time.Until(held.Deadline()).Milliseconds(), 1)
	}
	return reply
}

// close releases all locks and closes the connections.
func (p *processClient) close() error {
	var errs []error
	for _, s := range p.sessions {
		errs = append(errs, s.close())
	}
	for _, n := range p.servers.Nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
