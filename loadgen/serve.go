package loadgen

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen/external"
	"locktop/lock"
)

// ServeClient is a client process with locks like l: it speaks the protocol of package
// external on in and out, until bye, the end of in or the end of ctx. Then it releases
// all locks. The TTL, the permits and the number of keys of l do not count, those of each
// request do.
func ServeClient(ctx context.Context, l Lock, in io.Reader, out io.Writer) error {
	if l.Kind == Exec {
		return fmt.Errorf("a client process has locks of its own: kind must be one of %s", list(Kinds()))
	}
	l.Permits, l.KeysPerHold = 0, 0
	if err := l.withDefaults().validate(); err != nil {
		return err
	}
	return serveClient(ctx, l, open, in, out)
}

func serveClient(ctx context.Context, l Lock, open func(sessionConfig) (session, error), in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	p := &processClient{
		settings: l, open: open, ctx: ctx, out: json.NewEncoder(out), network: newNetwork(new(atomic.Int64)),
		sessions: make(map[servedTerms]session), held: make(map[string]*servedLease), waiting: make(map[int64]context.CancelFunc),
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
	ahead    time.Duration // of the clock
	servers  Servers
	tasks    sync.WaitGroup

	writing sync.Mutex
	out     *json.Encoder

	mu       sync.Mutex
	newest   int // number of the newest token
	sessions map[servedTerms]session
	held     map[string]*servedLease      // by token
	waiting  map[int64]context.CancelFunc // by the ID of the request
}

// servedTerms are the settings of a session that requests choose.
type servedTerms struct {
	ttl     time.Duration
	permits int
}

// offers returns the kinds that the hello of a client with locks of kind k says.
func (k Kind) offers() []Kind {
	switch form := formOf(k); {
	case k == RW:
		return []Kind{RW, Reentrant}
	case k.Sound():
		return []Kind{k}
	case form.NewReader != nil:
		return []Kind{RW}
	case form.NewQuorum != nil:
		return []Kind{Semaphore, Redlock}
	case k.reentrant():
		return []Kind{Reentrant}
	}
	return []Kind{Mutex}
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
				p.say(outcomeOf(err))
				return err
			}
		case "cancel":
			p.mu.Lock()
			if cancel := p.waiting[r.ID]; cancel != nil {
				cancel()
			}
			p.mu.Unlock()
		case "bye":
			return nil
		default:
			ctx, cancel := context.WithCancel(p.ctx)
			p.mu.Lock()
			p.waiting[r.ID] = cancel
			p.mu.Unlock()
			p.tasks.Go(func() {
				defer cancel()
				reply := p.reply(ctx, r)
				p.mu.Lock()
				delete(p.waiting, r.ID)
				p.mu.Unlock()
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
	p.owner, p.ahead = r.Client, time.Duration(r.ClockOffset)*time.Millisecond
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
		"ok": true, "name": "locktop " + string(kind), "kinds": kind.offers(),
		"renews": kind.Renews() && !p.settings.Renew.Off, "fences": p.settings.Fence, "tells": kind.Sound(), "clock": kind.clocked(), "cancels": true,
	})
	return nil
}

// reply runs a request.
func (p *processClient) reply(ctx context.Context, r external.Request) map[string]any {
	switch r.Op {
	case "lock":
		return p.lock(ctx, r)
	case "unlock":
		return p.unlock(r)
	case "extend":
		return p.extend(r)
	}
	return outcomeOf(errors.New("no such request: " + r.Op))
}

// session returns the session for the terms of a request.
func (p *processClient) session(r external.Request) (session, error) {
	t := servedTerms{time.Duration(r.TTL) * time.Millisecond, max(r.Permits, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[t]; s != nil {
		return s, nil
	}
	scenario := Scenario{Lock: p.settings}
	scenario.Lock.TTL, scenario.Lock.Permits = t.ttl, t.permits
	scenario = scenario.WithDefaults()
	root, err := p.open(sessionConfig{p.servers, scenario, p.network, func(lock.Event) {}})
	if err != nil {
		return nil, err
	}
	s := ownConns{root.as(clientIdentity{owner: p.owner, ahead: func() time.Duration { return p.ahead }}), root}
	p.sessions[t] = s
	return s, nil
}

func (p *processClient) lock(ctx context.Context, r external.Request) map[string]any {
	if err := p.refusal(r); err != nil {
		return outcomeOf(err)
	}
	s, err := p.session(r)
	if err != nil {
		return outcomeOf(err)
	}
	wait := time.Duration(0)
	if r.Wait != nil {
		wait = time.Duration(*r.Wait) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, max(wait, minTTL))
	defer cancel()
	keys := r.Keys
	if len(keys) == 0 {
		keys = []string{r.Key}
	}
	l, err := p.enterAgain(ctx, r.Key)
	if l == nil && err == nil {
		l, err = s.lock(ctx, keys, r.Mode == external.ModeRead)
	}
	switch {
	case errors.Is(err, lock.ErrHeld) || err != nil && ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
		return map[string]any{"ok": false, "held": true}
	case err != nil:
		return outcomeOf(err)
	}
	token := p.hold(r.Key, l)
	return map[string]any{"ok": true, "token": token, "valid_ms": time.Until(l.Deadline()).Milliseconds(), "fence": l.Fence()}
}

// refusal returns an error if a request asks for a lock that the hello does not offer.
func (p *processClient) refusal(r external.Request) error {
	for kind, asked := range map[Kind]bool{RW: r.Mode == external.ModeRead, Semaphore: r.Permits > 0, All: len(r.Keys) > 1} {
		if asked && !slices.Contains(p.settings.Kind.offers(), kind) {
			return fmt.Errorf("%s is not a %s", p.settings.Kind, kind)
		}
	}
	return nil
}

// enterAgain enters a reentrant lock that this client holds. It returns nil if there is
// none.
func (p *processClient) enterAgain(ctx context.Context, key string) (lease, error) {
	outer := p.heldLease(key)
	if outer == nil || !p.settings.Kind.reentrant() {
		return nil, nil
	}
	return outer.(interface {
		enterAgain(context.Context) (lease, error)
	}).enterAgain(ctx)
}

// heldLease returns a lease of a key, nil if there is none.
func (p *processClient) heldLease(key string) lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.held {
		if l.key == key {
			return l.lease
		}
	}
	return nil
}

// hold records a lease and returns its token.
func (p *processClient) hold(key string, l lease) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.newest++
	token := fmt.Sprintf("%s-%d", p.owner, p.newest)
	p.held[token] = &servedLease{l, key}
	if p.settings.Kind.Renews() {
		p.tasks.Go(func() { p.watch(token, l) })
	}
	return token
}

// watch reports the renewals of a lease, and its loss if the lock tells of it, until the lease
// is released or over.
func (p *processClient) watch(token string, l lease) {
	tick := time.NewTicker(minTTL)
	defer tick.Stop()
	for known := l.Deadline(); ; {
		select {
		case <-l.Context().Done():
		case <-p.ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		_, held := p.held[token]
		p.mu.Unlock()
		switch now := l.Deadline(); {
		case !held:
			return
		case l.Context().Err() != nil:
			p.say(map[string]any{"event": "lost", "token": token})
			return
		case !l.Valid() && !p.settings.Kind.Sound():
			return
		case now.After(known):
			known = now
			p.say(map[string]any{"event": "renewed", "token": token, "valid_ms": time.Until(now).Milliseconds()})
		}
	}
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

func (p *processClient) unlock(r external.Request) map[string]any {
	l := p.take(r.Token)
	if l == nil {
		return outcomeOf(lock.ErrLost)
	}
	ctx, cancel := context.WithTimeout(p.ctx, releaseWithin)
	defer cancel()
	return outcomeOf(l.Unlock(ctx))
}

// outcomeOf returns the reply to a request without a lease.
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
		return outcomeOf(lock.ErrLost)
	}
	l, can := held.lease.(interface {
		Extend(context.Context, time.Duration) error
	})
	if !can {
		return outcomeOf(errors.New("this kind cannot extend a lease"))
	}
	ctx, cancel := context.WithTimeout(p.ctx, releaseWithin)
	defer cancel()
	reply := outcomeOf(l.Extend(ctx, time.Duration(r.TTL)*time.Millisecond))
	if reply["ok"] == true {
		reply["valid_ms"] = time.Until(held.Deadline()).Milliseconds()
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
