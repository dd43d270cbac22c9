package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/netfault"
	"locktop/loadgen/external"
	"locktop/lock"
)

// Exec is the kind of a lock whose clients are processes: Lock.Exec is their command. See
// package external for the protocol that they speak.
const Exec Kind = "exec"

// maxProcesses is the largest number of clients of a lock of kind Exec.
const maxProcesses = 1000

// WithClient returns s with client processes of a command instead of its own locks, and
// without what is expected of these.
func (s Scenario) WithClient(command string) Scenario {
	s.Lock = Lock{Exec: command, TTL: s.Lock.TTL, Renew: s.Lock.Renew}
	s.Versus, s.Expect = nil, nil
	return s
}

// nodes reports whether the lock is, or may be, on several independent servers.
func (k Kind) nodes() bool { return k.Quorum() || k == Exec }

// validateExec returns an error if the settings do not go with a client process, or if
// only a client process has them.
func (s Scenario) validateExec() error {
	most := s.Clients
	for _, stage := range s.Stages {
		most = max(most, stage.Clients)
	}
	if s.Lock.Kind == Exec && most > maxProcesses {
		return fmt.Errorf("clients must be 1 to %d, not %d: with exec each is a process", maxProcesses, most)
	}
	return nil
}

// validateExec returns an error if the lock is not that of client processes, but has
// their settings, or the other way round.
func (l Lock) validateExec() error {
	switch {
	case l.Exec != "" && l.Kind != Exec:
		return fmt.Errorf("exec: a client process has its own kind of lock; omit kind: %s", l.Kind)
	case l.Kind == Exec && l.Exec == "":
		return errors.New("exec: the kind exec needs the command of a client, like {exec: python3 client.py}")
	case l.Kind == Exec && l.Wait != (Wait{}):
		return errors.New("wait: a client process decides by itself how it waits")
	case l.Kind == Exec && l.Fence:
		return errors.New("fence: a client process decides by itself whether its locks have numbers")
	}
	return nil
}

// execSession is a session of one client process.
type execSession struct {
	config  sessionConfig
	id      clientIdentity
	urls    []string
	proxies []*netfault.Proxy

	process *external.Process // newest; nil: not started
}

// openExec returns a base session, for one client. Its process starts with as.
func openExec(o sessionConfig) (session, error) {
	s := &execSession{config: o}
	for i, server := range o.servers.all(Exec) {
		rdb, ok := server.(*redis.Client)
		if !ok {
			return nil, errors.Join(errClusterExec, s.close())
		}
		proxy, err := o.network.proxy(rdb, i+1)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a proxy: %w", err), s.close())
		}
		s.proxies = append(s.proxies, proxy)
		s.urls = append(s.urls, proxiedURL(rdb.Options(), proxy.Addr()))
	}
	return s, nil
}

var errClusterExec = errors.New("exec: client processes need a single server or independent servers, not a cluster")

// proxiedURL returns the URL of a server behind a proxy, which has no TLS.
func proxiedURL(o *redis.Options, addr string) string {
	u := url.URL{Scheme: "redis", Host: addr}
	if o.DB != 0 {
		u.Path = "/" + strconv.Itoa(o.DB)
	}
	if o.Username != "" || o.Password != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	return u.String()
}

func (s *execSession) as(id clientIdentity) session {
	c := &execSession{config: s.config, id: id, urls: s.urls}
	_ = c.start() // lock tries again, and returns the error
	return c
}

// start starts a process. It does not wait for its hello.
func (s *execSession) start() error {
	p, err := external.Start(external.Options{
		Command: s.config.scenario.Lock.Exec, URLs: s.urls, Client: s.id.owner, Excused: s.id.excused,
	})
	if err != nil {
		return err
	}
	s.process = p
	s.config.network.setProcess(p)
	return nil
}

// hello waits for the hello of the process.
func (s *execSession) hello(ctx context.Context) (external.Hello, error) {
	if s.process == nil {
		if err := s.start(); err != nil {
			return external.Hello{}, err
		}
	}
	return s.process.Hello(ctx)
}

// close ends the process and the proxies. What the client still held is not released,
// unless the client does that after bye.
func (s *execSession) close() error {
	if s.process != nil {
		_ = s.process.Close() // its attempts have reported the error
	}
	var errs []error
	for _, p := range s.proxies {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// longestExecWait bounds one request to a client process. Its client continues with
// another one.
const longestExecWait = 10 * time.Second

// lock asks the process until it gets the lock. A process that has ended, because it
// broke the protocol or exited, is replaced by the next attempt.
func (s *execSession) lock(ctx context.Context, keys []string, _ bool) (lease, error) {
	if s.process != nil && s.process.Err() != nil {
		s.process = nil
	}
	h, err := s.hello(ctx)
	if err != nil {
		return nil, err
	}
	for {
		wait := longestExecWait
		if deadline, ok := ctx.Deadline(); ok {
			wait = max(min(wait, time.Until(deadline)), 0)
		}
		l, err := s.process.Lock(ctx, keys[0], s.config.scenario.Lock.TTL, wait)
		if err == nil {
			return s.lease(l, h), nil
		}
		if !errors.Is(err, external.ErrHeld) {
			return nil, err
		}
		pause(ctx, classicPoll/2+rand.N(classicPoll))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// lease returns a lease, which the generator extends if the client does not renew it.
func (s *execSession) lease(l *external.Lease, h external.Hello) *execLease {
	ctx, cancel := context.WithCancel(l.Context())
	e := &execLease{Lease: l, renews: h.Renews, cancel: cancel}
	if own := s.config.scenario.Lock; !h.Renews && !own.Renew.Off {
		e.extending.Go(func() { e.extend(ctx, own, s.config.observe) })
	}
	return e
}

// execLease is a lease of a client process.
type execLease struct {
	*external.Lease
	renews    bool
	cancel    context.CancelFunc // ends the extensions
	extending sync.WaitGroup
}

// extend extends the lease at its interval until ctx ends, or until the client refuses.
func (e *execLease) extend(ctx context.Context, l Lock, observe func(lock.Event)) {
	for n := 0; l.Renew.Max == 0 || n < l.Renew.Max; n++ {
		due := time.Now().Add(l.Renew.Every)
		pause(ctx, l.Renew.Every)
		if ctx.Err() != nil {
			return
		}
		late := time.Since(due)
		if e.Extend(ctx, l.TTL) != nil {
			return
		}
		observe(lock.Event{Kind: lock.Renewed, Late: late})
	}
}

// kept reports whether the client still held the lock, as far as it knows. A client that
// renews need not report each renewal, but it must report a loss.
func (e *execLease) kept() bool {
	return !errors.Is(context.Cause(e.Context()), external.ErrLost) && (e.renews || time.Now().Before(e.Deadline()))
}

func (e *execLease) Unlock(ctx context.Context) error {
	e.cancel()
	e.extending.Wait()
	err := e.Lease.Unlock(ctx)
	if errors.Is(err, external.ErrLost) {
		return fmt.Errorf("%w: %w", lock.ErrLost, err)
	}
	return err
}
