package loadgen

import (
	"context"
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
	p := &processClient{
		settings: l, open: open, network: newNetwork(new(atomic.Int64)), sessions: make(map[servedTerms]session), held: make(map[*lease]string),
	}
	_, err := external.Serve(ctx, external.Library{Hello: p.hello, Lock: p.lock, Least: minTTL}, in, out)
	return errors.Join(err, p.close()) // the sessions release what is left
}

// processClient is the library of ServeClient.
type processClient struct {
	settings Lock
	open     func(sessionConfig) (session, error)
	ctx      context.Context // ends with bye
	network  *network
	owner    string
	ahead    time.Duration // of the clock
	servers  Servers

	mu       sync.Mutex
	sessions map[servedTerms]session
	held     map[*lease]string // with the first key
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

// hello connects to the servers.
func (p *processClient) hello(ctx context.Context, r external.Request) (h external.Hello, err error) {
	p.ctx, p.owner, p.ahead = ctx, r.Client, time.Duration(r.ClockOffset)*time.Millisecond
	for _, url := range r.URLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return h, err
		}
		p.servers.Nodes = append(p.servers.Nodes, redis.NewClient(o))
	}
	if len(p.servers.Nodes) == 0 {
		return h, errors.New("there is no URL")
	}
	p.servers.Redis = p.servers.Nodes[0]
	kind := p.settings.Kind
	for _, k := range kind.offers() {
		h.Kinds = append(h.Kinds, string(k))
	}
	h.Name, h.Renews, h.Fences = "locktop "+string(kind), kind.Renews() && !p.settings.Renew.Off, p.settings.Fence
	h.Tells, h.Clock, h.Cancels = kind.Sound(), kind.clocked(), true
	return h, nil
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

// lock acquires the lock of a request.
func (p *processClient) lock(ctx context.Context, r external.Request) (external.Hold, error) {
	for kind, asked := range map[Kind]bool{RW: r.Mode == external.ModeRead, Semaphore: r.Permits > 0, All: len(r.Keys) > 1} {
		if asked && !slices.Contains(p.settings.Kind.offers(), kind) {
			return external.Hold{}, fmt.Errorf("%s is not a %s", p.settings.Kind, kind)
		}
	}
	s, err := p.session(r)
	if err != nil {
		return external.Hold{}, err
	}
	keys := r.Keys
	if len(keys) == 0 {
		keys = []string{r.Key}
	}
	l, err := p.enterAgain(ctx, r.Key)
	if l == nil && err == nil {
		l, err = s.lock(ctx, keys, r.Mode == external.ModeRead)
	}
	if err != nil {
		return external.Hold{}, served(err)
	}
	return p.hold(l, r.Key), nil
}

// served makes the errors of package lock those of the protocol.
func served(err error) error {
	switch {
	case errors.Is(err, lock.ErrHeld):
		return external.ErrHeld
	case errors.Is(err, lock.ErrLost):
		return external.ErrLost
	}
	return err
}

// enterAgain enters a reentrant lock that this client holds. It returns nil if there is
// none.
func (p *processClient) enterAgain(ctx context.Context, key string) (*lease, error) {
	var outer *lease
	p.mu.Lock()
	for l, of := range p.held {
		if of == key {
			outer = l
		}
	}
	p.mu.Unlock()
	if outer == nil || !p.settings.Kind.reentrant() {
		return nil, nil
	}
	return outer.again(ctx)
}

// hold records a lease.
func (p *processClient) hold(l *lease, key string) external.Hold {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[l] = key
	h := external.Hold{Deadline: l.Deadline(), Fence: l.fence, Unlock: func(ctx context.Context) error {
		p.mu.Lock()
		delete(p.held, l)
		p.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, releaseWithin)
		defer cancel()
		return served(l.unlock(ctx))
	}}
	if p.settings.Kind.Renews() {
		h.Lost, h.Renewed = l.Context().Done(), p.renewals(l)
	}
	if l.extend != nil {
		h.Extend = func(ctx context.Context, ttl time.Duration) (time.Time, error) {
			ctx, cancel := context.WithTimeout(ctx, releaseWithin)
			defer cancel()
			err := l.extend(ctx, ttl)
			return l.Deadline(), served(err)
		}
	}
	return h
}

// renewals returns a channel with the deadline of each renewal of a lease. It is closed when the
// lease is over.
func (p *processClient) renewals(l *lease) <-chan time.Time {
	renewed := make(chan time.Time)
	go func() {
		defer close(renewed)
		tick := time.NewTicker(minTTL)
		defer tick.Stop()
		known, next := l.Deadline(), (chan<- time.Time)(nil) // nil: there is nothing to tell
		for {
			select {
			case <-l.Context().Done():
				return
			case <-p.ctx.Done():
				return
			case next <- known:
				next = nil
			case <-tick.C:
				if !l.Valid() && !p.settings.Kind.Sound() {
					return
				}
				if now := l.Deadline(); now.After(known) {
					known, next = now, renewed
				}
			}
		}
	}()
	return renewed
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
