package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/internal/netfault"
	"locktop/loadgen/external"
	"locktop/lock"
)

// Exec is the kind of a lock whose clients are processes: Lock.Exec is their command. See
// package external for the protocol that they speak.
const Exec Kind = "exec"

// maxProcesses is the largest number of clients of a lock of kind Exec.
const maxProcesses = 1000

// WithClient returns s with client processes of a command instead of its own locks,
// without what is expected of these, and without a caption about a historic form. Their
// locks have the same permits, keys and fences, and keep the order of a fair lock. Without a command
// it returns s.
func (s Scenario) WithClient(command string) Scenario {
	if command == "" {
		return s
	}
	own := s.Lock.withDefaults()
	if !own.Kind.Sound() {
		s.Caption, s.Watch = "", ""
	}
	s.Lock = Lock{Kind: Exec, Exec: command, TTL: s.Lock.TTL, Renew: s.Lock.Renew, Permits: own.Permits, KeysPerHold: own.KeysPerHold, Fence: own.Fence, Order: own.Order || own.Kind == Fair}
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
	// The protocol has no semaphore with readers, and no several keys with permits.
	if settings, _ := s.asked(); s.Lock.Kind == Exec && len(settings) > 1 {
		return fmt.Errorf("%s do not go together: a client process has readers, permits or several keys", strings.Join(settings, " and "))
	}
	return nil
}

// execSettings describes what the lock of a client process is asked for, beyond one holder
// of one key.
func (l Lock) execSettings() string {
	switch {
	case l.Permits > 0:
		return ", " + humanize.Plural(l.Permits, "permit")
	case l.KeysPerHold > 1:
		return ", " + humanize.Plural(l.KeysPerHold, "key")
	}
	return ""
}

// asked returns the settings that ask for more than one holder of one key, with the kind of
// lock that the hello of a client process must offer for each.
func (s Scenario) asked() (settings []string, kinds []Kind) {
	add := func(set bool, setting string, kind Kind) {
		if set {
			settings, kinds = append(settings, setting), append(kinds, kind)
		}
	}
	add(s.Reads > 0, "reads", RW)
	add(s.Lock.Permits > 0, "permits", Semaphore)
	add(s.Lock.span() > 1, "keys-per-hold", All)
	return settings, kinds
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
	}
	return nil
}

// ErrNotOffered is the error of a start if the scenario asks for a lock that its client does not have.
var ErrNotOffered = errors.New("a client for this scenario must offer")

// ErrNoHello is in the error of a client process that did not say hello in time.
var ErrNoHello = external.ErrNoHello

// offeredBy returns an error if s asks for a kind of lock that the hello of its client
// does not offer.
func (s Scenario) offeredBy(h external.Hello) error {
	settings, kinds := s.asked()
	if s.Depth > 1 {
		settings, kinds = append(settings, "depth"), append(kinds, Reentrant)
	}
	if s.Lock.Order {
		settings, kinds = append(settings, "order"), append(kinds, Fair)
	}
	if slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Node > 1 }) {
		settings, kinds = append(settings, "node"), append(kinds, Redlock)
	}
	for i, kind := range kinds {
		if !slices.Contains(h.Kinds, string(kind)) {
			return fmt.Errorf("%s: %w %s, and the hello of %s offers: %s", settings[i], ErrNotOffered, kind, h.Name, cmp.Or(list(h.Kinds), "nothing"))
		}
	}
	if s.Lock.Fence && !h.Fences {
		return fmt.Errorf("fence: %w fences, and the hello of %s does not", ErrNotOffered, h.Name)
	}
	return nil
}

// unsupported returns why the client processes do not support a fault, "" if they do.
func (f *fleet) unsupported(fault Fault) string {
	if f.scenario.Load().Lock.Kind == Exec && fault.Kind == Skew && !f.hello.Clock {
		return fmt.Sprintf("not supported: the hello of %s does not say that it obeys clock_offset_ms", f.hello.Name)
	}
	return ""
}

// execSession is a session of one client process.
type execSession struct {
	config  sessionConfig
	id      clientIdentity
	urls    []string
	proxies []*netfault.Proxy

	process *external.Process // newest; nil: not started
	offset  time.Duration     // of its clock

	reported *external.Error // newest end of a process that an attempt has returned
}

// openExec returns a base session, for one client. Its process starts with as.
func openExec(o sessionConfig) (session, error) {
	s := &execSession{config: o}
	for i, server := range o.servers.all(Exec) {
		rdb, ok := server.(*redis.Client)
		if !ok {
			return nil, errors.Join(errors.New("exec: client processes need a single server or independent servers, not a cluster"), s.close())
		}
		theirs := rdb.Options()
		if theirs.StreamingCredentialsProvider != nil {
			err := errors.New("exec: client processes get the password once, so it must not come from a command or a file")
			return nil, errors.Join(err, s.close())
		}
		proxy, err := o.network.lane(theirs.Dialer, i+1).Listen(theirs.Network, theirs.Addr)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("open a proxy: %w", err), s.close())
		}
		s.proxies = append(s.proxies, proxy)
		s.urls = append(s.urls, proxiedURL(theirs, proxy.Addr()))
	}
	return s, nil
}

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
	offset := s.id.clockAhead()
	p, err := external.Start(external.Options{
		Command: s.config.scenario.Lock.Exec, URLs: s.urls, Client: s.id.owner, ClockOffset: offset, Excused: s.id.excused,
	})
	if err != nil {
		return err
	}
	s.process, s.offset = p, offset
	s.config.network.process.Store(p)
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

// probeWithin bounds the start of one client process, as that of each later one.
const probeWithin = 30 * time.Second

// probe starts a client process of the scenario to learn what it promises, and ends it.
// It does nothing for the other kinds.
func (r *Run) probe(s Scenario) (external.Hello, error) {
	if s.Lock.Kind != Exec {
		return external.Hello{}, nil
	}
	ctx, cancel := context.WithTimeoutCause(r.closing, probeWithin, external.ErrNoHello)
	defer cancel()
	root, err := r.openBase(sessionConfig{r.servers, s, newNetwork(new(atomic.Int64)), func(lock.Event) {}})
	if err != nil {
		return external.Hello{}, fmt.Errorf("start the load: %w", err)
	}
	c := root.as(clientIdentity{owner: "probe"}).(*execSession)
	h, err := c.hello(ctx)
	if ctx.Err() != nil {
		err = fmt.Errorf("client %q: %w: %s", s.Lock.Exec, context.Cause(ctx), probeWithin)
	}
	if err = errors.Join(err, c.close(), root.close()); err == nil {
		err = s.offeredBy(h)
	}
	if err != nil {
		return h, fmt.Errorf("start the load: %w", err)
	}
	return h, nil
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

// lock asks the process until it gets the lock. A
// process that has ended, because it broke the protocol or exited, is replaced by the next
// attempt. So is one whose clock has another offset.
func (s *execSession) lock(ctx context.Context, keys []string, shared bool) (*lease, error) {
	if s.process != nil && s.offset != s.id.clockAhead() {
		_ = s.process.Close() // its attempts have reported the error
	}
	if err := s.ended(); err != nil {
		return nil, err
	}
	h, err := s.hello(ctx)
	if err != nil {
		return nil, s.failed(err)
	}
	own := s.config.scenario.Lock
	terms := external.Terms{Keys: keys, TTL: own.TTL, Read: shared, Permits: own.Permits}
	outer, err := s.ask(ctx, terms)
	if err != nil {
		return nil, s.failed(err)
	}
	l := s.lease(outer, h)
	l.again = func(ctx context.Context) (*lease, error) { return s.askAgain(ctx, terms) }
	s.config.network.holding.Store(true)
	return l, nil
}

// askAgain asks the process for a lock that it has. Neither this nor the release is a renewal.
func (s *execSession) askAgain(ctx context.Context, terms external.Terms) (*lease, error) {
	holding := &s.config.network.holding
	holding.Store(false)
	defer holding.Store(true)
	inner, err := s.ask(ctx, terms)
	if err != nil {
		return nil, err
	}
	return &lease{lives: inner, unlock: func(ctx context.Context) error { return s.unlock(ctx, inner) }}, nil
}

// unlock asks the process to unlock.
func (s *execSession) unlock(ctx context.Context, l *external.Lease) error {
	s.config.network.holding.Store(false)
	err := l.Unlock(ctx)
	if errors.Is(err, external.ErrLost) {
		return fmt.Errorf("%w: %w", lock.ErrLost, err)
	}
	return s.failed(err)
}

// ended forgets a process that has ended. It returns the reason if no attempt has
// returned it: the process broke the protocol, or was killed, between two attempts.
func (s *execSession) ended() error {
	if s.process == nil || s.process.Err() == nil {
		return nil
	}
	err := s.process.Err()
	s.process = nil
	if broken := (*external.Error)(nil); errors.As(err, &broken) && broken == s.reported || errors.Is(err, external.ErrClosed) {
		return nil
	}
	return s.failed(err)
}

// failed returns the error of an attempt. It adds errDead to that of a process that a
// fault has killed.
func (s *execSession) failed(err error) error {
	errors.As(err, &s.reported)
	if errors.Is(err, external.ErrKilled) {
		return fmt.Errorf("%w: %w", errDead, err)
	}
	return err
}

// ask asks the process until it gets the lock.
func (s *execSession) ask(ctx context.Context, terms external.Terms) (*external.Lease, error) {
	for {
		terms.Wait = 10 * time.Second // then the client continues with another request
		if deadline, ok := ctx.Deadline(); ok {
			terms.Wait = max(min(terms.Wait, time.Until(deadline)), 0)
		}
		s.config.observe(lock.Event{Kind: lock.Contended, At: time.Now(), Key: terms.Keys[0], Owner: s.id.owner}) // it asks, and begins to queue
		l, err := s.process.Lock(ctx, terms)
		if !errors.Is(err, external.ErrHeld) {
			return l, err
		}
		pause(ctx, classicPoll/2+rand.N(classicPoll))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
}

// lease returns the lease of a client process. The generator extends it if the client does not
// renew it. A client that renews need not report each renewal, but it must report a loss.
func (s *execSession) lease(l *external.Lease, h external.Hello) *lease {
	ctx, cancel := context.WithCancel(l.Context())
	var extending sync.WaitGroup
	process := s.process
	if own := s.config.scenario.Lock; !h.Renews && !own.Renew.Off {
		extending.Go(func() { extend(ctx, l, own, s.config.observe) })
	}
	return &lease{
		lives: l, token: l.Token(), fence: l.Fence(), latest: l.Latest, extend: l.Extend,
		kept: func() bool {
			silent := h.Renews && !process.Shows() // about its renewals
			return !l.Lost() && (silent || time.Now().Before(l.Latest()))
		},
		// What the process had read before it was frozen may have changed.
		decided: func() time.Time { return time.Unix(0, s.config.network.resumed.Load()) },
		unlock: func(ctx context.Context) error {
			cancel()
			extending.Wait()
			return s.unlock(ctx, l)
		},
	}
}

// extend extends a lease at its interval until ctx ends, or until the client refuses.
func extend(ctx context.Context, held *external.Lease, l Lock, observe func(lock.Event)) {
	every := l.Renew.every(l.TTL)
	for n := 0; l.Renew.Max == 0 || n < l.Renew.Max; n++ {
		due := time.Now().Add(every)
		pause(ctx, every)
		if ctx.Err() != nil {
			return
		}
		late := time.Since(due)
		if held.Extend(ctx, l.TTL) != nil {
			return
		}
		observe(lock.Event{Kind: lock.Renewed, Elapsed: late})
	}
}

// strikesBefore reports whether the fault affects a client process before a command;
// holding means that the process has a lock.
func (f Fault) strikesBefore(command string, holding bool) bool {
	expire := slices.Contains([]string{"EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT"}, command)
	script := slices.Contains([]string{"EVAL", "EVALSHA", "FCALL"}, command)
	switch before := strings.ToUpper(f.Before); before {
	case "":
		return false
	case "RENEW":
		return holding && (expire || script || command == "SET") // SET with IFEQ or XX; a script may also serve something else
	case "EXPIRE":
		return expire
	case "EVAL":
		return script
	default:
		return command == before
	}
}

// commandName matches the name of a command.
var commandName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._-]{0,63}$`)
