package certify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/loadgen/external"
	"locktop/loadgen/oracle"
)

// Times of all tests.
const (
	ttl = 2 * time.Second // of a lease
	// margin is how long after its TTL a lock may take to be free for a waiter: waiters poll
	// at intervals, and the machine may be busy.
	margin = time.Second
	// short is how long a client asks for a lock that it must not get.
	short = 300 * time.Millisecond
	// answerWithin is how long a client may take for an answer, in addition to the time for
	// which it may wait.
	answerWithin = 5 * time.Second
	// tellWithin is how long a client may take to report a loss that it can know.
	tellWithin = time.Second
)

// layout is the servers of a test.
type layout uint8

const (
	oneServer  layout = iota
	fiveNodes         // independent servers
	replicated        // a master with a replica, behind one address
)

// key is the name of the lock in all tests.
const key = "certify:{lock}:1"

// profile is what is known of a client before the tests.
type profile struct {
	Client
}

// has reports whether hello names a kind.
func (p profile) has(kind string) bool { return slices.Contains(p.Hello.Kinds, kind) }

// renewed reports whether leases can be renewed: by the client, or by requests to extend.
func (p profile) renewed() bool { return p.Hello.Renews || p.Extends }

// probe starts a client, and locks, extends and unlocks once.
func probe(ctx context.Context, command string) profile {
	p := profile{Client{Name: command, Command: command}}
	r := &rig{ctx: ctx, profile: p, began: time.Now()}
	defer r.close()
	err := r.open(oneServer)
	if err == nil {
		err = p.ask(r)
	}
	if err != nil {
		p.Error = err.Error()
	}
	return p
}

func (p *profile) ask(r *rig) error {
	a, err := r.startActor(0)
	if err != nil {
		return err
	}
	if p.Hello, err = a.process.Hello(r.ctx); err != nil {
		return err
	}
	p.Name = p.Hello.Name
	h, err := a.lock(short)
	if err != nil {
		return fmt.Errorf("it did not acquire a free lock: %w", err)
	}
	p.Extends = h.extend() == nil
	if err := h.unlock(); err != nil {
		return fmt.Errorf("it did not release its lock: %w", err)
	}
	return nil
}

// serverName names the servers of the tests.
func serverName(ctx context.Context) (string, error) {
	r := &rig{ctx: ctx}
	defer r.close()
	if err := r.open(oneServer); err != nil {
		return "", err
	}
	if !installed() {
		return "embedded server (no redis-server on PATH)", nil
	}
	info, err := r.admin[0].Info(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	version := make(map[string]string)
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		version[name] = value
	}
	if v := version["valkey_version"]; v != "" {
		return "valkey " + v, nil
	}
	return "redis " + version["redis_version"], nil
}

// installed reports whether the servers are processes.
func installed() bool {
	_, err := exec.LookPath("redis-server")
	return err == nil
}

// rig is the servers, the clients and the oracle of one test. Its methods are safe for
// concurrent use, except open and close.
type rig struct {
	ctx     context.Context
	options Options
	profile profile
	began   time.Time
	oracle  *oracle.Oracle
	permits int // that a client asks for; 0 = none

	servers []string // addresses
	admin   []*redis.Client
	nodes   *server.Independent
	group   *server.Replicated
	entry   *entry // of a replicated layout
	remark  string // for the evidence; begins with a space
	closers []func() error

	mu     sync.Mutex
	spans  []Span
	actors []*actor
	holds  []*hold
}

// wipe is the cause of overlaps that no lock can prevent, because the server lost its keys.
const wipe = "lost keys"

// stop ends the steps of a test with a verdict.
type stop struct{ Verdict }

// runTest runs a test on its own servers.
func runTest(ctx context.Context, t Test, p profile, o Options) (v Verdict) {
	r := &rig{ctx: ctx, options: o, profile: p, began: time.Now()}
	r.judgeBy(1)
	defer r.close()
	if err := r.open(t.layout); err != nil {
		return Verdict{Outcome: Inconclusive, Evidence: "the servers of the test did not start: " + err.Error()}
	}
	v = r.steps(t.run)
	return r.judged(v)
}

// judgeBy makes an oracle of a lock that limit clients may hold at once.
func (r *rig) judgeBy(limit int) {
	r.oracle = oracle.New(oracle.Config{Keys: []string{key}, Limit: limit, Patience: time.Hour, Numbered: limit == 1 && r.profile.Hello.Fences})
}

// steps runs the steps of a test, until their end or until one of them stops the test.
func (r *rig) steps(run func(*rig) Verdict) (v Verdict) {
	defer func() {
		switch s := recover().(type) {
		case nil:
		case stop:
			v = s.Verdict
		default:
			panic(s)
		}
	}()
	return run(r)
}

// judged adds what the oracle has seen to a verdict, and the timeline.
func (r *rig) judged(v Verdict) Verdict {
	now := time.Now()
	for _, h := range r.all() {
		h.leave(now)
	}
	v.Evidence += r.remark
	found := r.oracle.Violations(now)
	if together := found.Overlap.Count - found.Overlap.Excused; together > 0 {
		text := overlapText(found)
		if v.Outcome == Fail {
			text = v.Evidence + " " + text
		}
		v.Outcome, v.Overlap, v.Evidence = Fail, true, text
		r.violated(found)
	}
	if found.FenceOrder > 0 {
		v.Outcome = Fail
		v.Evidence += fmt.Sprintf(" A fence was not larger than the one before, %s.", humanize.Times(found.FenceOrder))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	v.Timeline = append(v.Timeline, r.spans...)
	if v.Outcome == Fail && !slices.ContainsFunc(v.Timeline, func(s Span) bool { return s.Kind == Violated }) {
		v.Timeline = append(v.Timeline, Span{From: r.since(now), To: r.since(now), Kind: Violated, Label: "failure"})
	}
	slices.SortStableFunc(v.Timeline, func(a, b Span) int { return int(a.From - b.From) })
	return v
}

// firstOverlap returns the first overlap that is not excused.
func firstOverlap(found oracle.Violations) (e oracle.Evidence, ok bool) {
	i := slices.IndexFunc(found.Evidence, func(e oracle.Evidence) bool { return e.Violation == oracle.Overlapped && e.Cause != wipe })
	if i < 0 {
		return oracle.Evidence{}, false
	}
	return found.Evidence[i], true
}

// overlapText describes the first overlap.
func overlapText(found oracle.Violations) string {
	e, ok := firstOverlap(found)
	if !ok {
		return "Two clients were inside at once, within their leases."
	}
	return fmt.Sprintf("%s and %s were inside at once for %s, within their leases.",
		oracle.ClientLabel(e.First.Client), oracle.ClientLabel(e.Second.Client), humanize.Precise(e.Length))
}

// violated adds the span of the first overlap.
func (r *rig) violated(found oracle.Violations) {
	if e, ok := firstOverlap(found); ok {
		label := fmt.Sprintf("%s and %s inside", oracle.ClientLabel(e.First.Client), oracle.ClientLabel(e.Second.Client))
		r.span("", e.At, e.At.Add(e.Length), Violated, label)
	}
}

func (r *rig) all() []*hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.holds)
}

// open starts the servers.
func (r *rig) open(l layout) error {
	switch {
	case l == fiveNodes:
		nodes, err := server.StartIndependent(r.ctx, 5)
		if err != nil {
			return err
		}
		r.nodes = nodes
		r.closers = append(r.closers, nodes.Stop)
		for _, c := range nodes.Nodes() {
			r.connect(c.Addr())
		}
	case l == replicated:
		return r.openReplicated()
	case installed():
		c, err := server.StartChild(r.ctx, server.ChildOptions{})
		if err != nil {
			return err
		}
		r.closers = append(r.closers, func() error { return errors.Join(c.Kill(), c.Stop()) })
		r.connect(c.Addr())
	default:
		e, err := server.StartEmbedded()
		if err != nil {
			return err
		}
		r.closers = append(r.closers, func() error { e.Close(); return nil })
		r.connect(e.Addr())
	}
	return nil
}

// connect adds a server.
func (r *rig) connect(addr string) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	r.closers = append(r.closers, rdb.Close)
	r.servers = append(r.servers, addr)
	r.admin = append(r.admin, rdb)
}

// close ends all clients, connections and servers.
func (r *rig) close() {
	for _, a := range r.actors {
		a.close()
	}
	for _, c := range slices.Backward(r.closers) {
		_ = c() // the verdict stands, and the servers end with this process
	}
}

// since returns the time since the begin of the test.
func (r *rig) since(t time.Time) time.Duration { return max(t.Sub(r.began), 0) }

// span adds a span.
func (r *rig) span(row string, from, to time.Time, kind SpanKind, label string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spans = append(r.spans, Span{row, r.since(from), max(r.since(to), r.since(from)), kind, label})
}

// fault adds the span of a fault that begins now. The result ends it.
func (r *rig) fault(row, label string) (end func()) {
	from := time.Now()
	return sync.OnceFunc(func() { r.span(row, from, time.Now(), Faulty, label) })
}

// note adds a moment.
func (r *rig) note(row, label string) {
	now := time.Now()
	r.span(row, now, now, Note, label)
}

// actor is a client process of a test, with its own proxies.
type actor struct {
	rig     *rig
	number  int // from 0
	name    string
	net     []*netfault.Network // one per server
	proxies []*netfault.Proxy
	process *external.Process
	tap     tap
	thawed  func() // ends the span of a freeze
}

// actor starts a client. Without a hello the test is inconclusive.
func (r *rig) actor() *actor { return r.actorAhead(0) }

// actorAhead starts a client whose clock is ahead.
func (r *rig) actorAhead(ahead time.Duration) *actor {
	a, err := r.startActor(ahead)
	if err == nil {
		_, err = a.process.Hello(r.ctx)
	}
	if err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: err.Error()}})
	}
	return a
}

func (r *rig) startActor(ahead time.Duration) (*actor, error) {
	r.mu.Lock()
	a := &actor{rig: r, number: len(r.actors), name: oracle.ClientLabel(len(r.actors) + 1)}
	r.actors = append(r.actors, a)
	r.mu.Unlock()
	var urls []string
	for _, addr := range r.servers {
		n := netfault.New(new(net.Dialer).DialContext)
		n.Before = a.tap.before
		p, err := n.Listen("tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("open a proxy: %w", err)
		}
		a.net, a.proxies = append(a.net, n), append(a.proxies, p)
		urls = append(urls, (&url.URL{Scheme: "redis", Host: p.Addr()}).String())
	}
	var err error
	a.process, err = external.Start(external.Options{
		Command: r.profile.Command, URLs: urls, Client: a.name, ClockOffset: ahead,
		Excused: func(time.Time) bool { return true }, // each step has a limit of its own
	})
	return a, err
}

func (a *actor) close() {
	if a.process != nil {
		a.process.Kill()
	}
	a.tap.pass(errDropped) // Close of a proxy waits for it
	for i, p := range a.proxies {
		_ = p.Close()
		a.net[i].Thaw()
	}
}

// kill ends the client like a crash.
func (a *actor) kill() {
	for _, h := range a.rig.all() {
		if h.actor == a {
			h.leave(time.Now())
		}
	}
	a.rig.note(a.name, "SIGKILL")
	a.process.Kill()
}

// freeze stops the client until thaw.
func (a *actor) freeze() {
	a.thawed = a.rig.fault(a.name, "frozen")
	if err := a.process.Freeze(); err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("%s could not be frozen: %v", a.name, err)}})
	}
}

func (a *actor) thaw() {
	a.thawed()
	_ = a.process.Continue() // fails if the client is dead
}

// cut holds back all packets, or only the replies, until the result is called.
func (a *actor) cut(repliesOnly bool) (heal func()) {
	label := "cut off"
	if repliesOnly {
		label = "replies are held back"
	}
	end := a.rig.fault(a.name, label)
	for _, n := range a.net {
		if repliesOnly {
			n.FreezeReplies() // new connections are made: some clients send each request on its own
		} else {
			n.Partition()
		}
	}
	return func() {
		end()
		for _, n := range a.net {
			n.Heal()
		}
	}
}

// lose breaks the connections of the client: what is held back on them never arrives. New
// connections work.
func (a *actor) lose(heal func()) {
	for _, n := range a.net {
		n.Cut()
	}
	a.rig.note(a.name, "its connections break")
	heal()
}

// hold is a lock that a client has got.
type hold struct {
	*external.Lease
	actor *actor
	began time.Time
	visit *oracle.Occupancy

	mu   sync.Mutex
	left bool
}

// lock asks for the lock, which the client may wait for. The error is external.ErrHeld if
// it did not get it.
func (a *actor) lock(wait time.Duration) (*hold, error) {
	return a.lockAs(external.Terms{Wait: wait})
}

// lockAs is lock on other terms. The key and the TTL are those of all tests.
func (a *actor) lockAs(t external.Terms) (*hold, error) {
	t.Keys, t.TTL, t.Permits = []string{key}, ttl, a.rig.permits
	wait := t.Wait
	ctx, cancel := context.WithTimeout(a.rig.ctx, wait+answerWithin)
	defer cancel()
	asked := time.Now()
	if a.rig.oracle != nil {
		a.rig.oracle.WaiterAdded(0, &oracle.Attempt{Client: a.number, Asked: asked, Ctx: ctx})
	}
	l, err := a.process.Lock(ctx, t)
	now := time.Now()
	label := "lock"
	switch {
	case errors.Is(err, external.ErrHeld):
		label = "lock: refused"
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("no answer to lock within %s", humanize.Setting(wait+answerWithin))
		label = "lock: no answer"
	case err != nil:
		label = "lock: " + err.Error()
	}
	a.rig.span(a.name, asked, now, Waiting, label)
	if err != nil {
		if a.rig.oracle != nil {
			a.rig.oracle.WaiterGone(0, a.number, now)
		}
		return nil, err
	}
	return a.entered(l, t.Read, asked, now), nil
}

// entered records a hold.
func (a *actor) entered(l *external.Lease, shared bool, asked, now time.Time) *hold {
	h := &hold{Lease: l, actor: a, began: now}
	if a.rig.oracle != nil && !l.Valid() { // the reply came after the end of the lease
		a.rig.oracle.WaiterGone(0, a.number, now)
	} else if a.rig.oracle != nil {
		h.visit = a.rig.oracle.Enter(0, oracle.Participant{Client: a.number, Token: l.Token(), Fence: l.Fence(), Shared: shared, Asked: asked}, l, now)
	}
	context.AfterFunc(l.Context(), func() {
		if errors.Is(context.Cause(l.Context()), external.ErrLost) {
			now := time.Now()
			a.rig.span(a.name, now, now, Told, "lost")
		}
	})
	a.rig.mu.Lock()
	defer a.rig.mu.Unlock()
	a.rig.holds = append(a.rig.holds, h)
	return h
}

// lockBy is lock until a time, and again after an error, such as that of a broken
// connection.
func (a *actor) lockBy(end time.Time) (h *hold, err error) {
	for ; ; a.rig.pause(margin / 20) {
		h, err = a.lock(max(time.Until(end), 0))
		if err == nil || !time.Now().Before(end) || a.process.Err() != nil {
			return h, err
		}
	}
}

// mustLock is lock for a step in which the lock is free. Without it the test is inconclusive.
func (a *actor) mustLock() *hold {
	h, err := a.lockBy(time.Now().Add(ttl + margin))
	if err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("%s did not acquire a free lock: %v.", a.name, err)}})
	}
	return h
}

// leave ends the work of the holder.
func (h *hold) leave(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left {
		return
	}
	h.left = true
	end := now
	// A client that renews need not report each renewal, so its deadline may be older.
	unreported := h.actor.rig.profile.Hello.Renews && h.Context().Err() == nil
	if d := h.Deadline(); d.Before(end) && !unreported {
		end = d
		h.actor.rig.span(h.actor.name, d, now, Late, "")
	}
	label := ""
	if h.Fence() > 0 {
		label = fmt.Sprintf("fence %d", h.Fence())
	}
	h.actor.rig.span(h.actor.name, h.began, end, Holding, label)
	if h.visit != nil {
		h.actor.rig.oracle.Leave(h.visit, now)
	}
}

// unlock leaves and releases the lock. It returns external.ErrLost if the client reports
// that it did not have the lock any more.
func (h *hold) unlock() error {
	ctx, cancel := context.WithTimeout(h.actor.rig.ctx, answerWithin)
	defer cancel()
	return h.unlockWithin(ctx)
}

func (h *hold) unlockWithin(ctx context.Context) error {
	asked := time.Now()
	h.leave(asked)
	err := h.Unlock(ctx)
	label := "unlock: ok"
	switch {
	case errors.Is(err, external.ErrLost):
		label = "unlock: lost"
	case errors.Is(err, context.DeadlineExceeded):
		err, label = errors.New("no answer to unlock"), "unlock: no answer"
	case err != nil:
		label = err.Error()
	}
	h.actor.rig.span(h.actor.name, asked, time.Now(), Request, label)
	return err
}

// keptUntilUnlock releases the lock. It returns external.ErrLost if the client reports a
// loss, although the lease was valid.
func (h *hold) keptUntilUnlock() error {
	if valid, err := h.Valid(), h.unlock(); valid && errors.Is(err, external.ErrLost) {
		return err
	}
	return nil
}

// extend asks for a new deadline.
func (h *hold) extend() error {
	ctx, cancel := context.WithTimeout(h.actor.rig.ctx, answerWithin)
	defer cancel()
	asked := time.Now()
	err := h.Extend(ctx, ttl)
	label := "extend: ok"
	if err != nil {
		label = "extend: " + err.Error()
	}
	h.actor.rig.span(h.actor.name, asked, time.Now(), Request, label)
	return err
}

// told waits until the client has reported the loss of the lock, and reports whether it
// has.
func (h *hold) told(within time.Duration) bool {
	soon := time.NewTimer(within)
	defer soon.Stop()
	select {
	case <-h.Context().Done():
	case <-soon.C:
	case <-h.actor.rig.ctx.Done():
	}
	return errors.Is(context.Cause(h.Context()), external.ErrLost)
}

// pause waits for the time d, at most until ctx ends.
func (r *rig) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.ctx.Done():
		panic(stop{interrupted()})
	}
}

// entry is one address in front of a master, as a service has: a failover changes the
// server behind it.
type entry struct {
	network *netfault.Network
	proxy   *netfault.Proxy

	mu sync.Mutex
	to string
}

func (e *entry) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	e.mu.Lock()
	to := e.to
	e.mu.Unlock()
	return new(net.Dialer).DialContext(ctx, network, to)
}

// lead leads new connections to a server, and breaks the old ones.
func (e *entry) lead(to string) {
	e.mu.Lock()
	e.to = to
	e.mu.Unlock()
	e.network.Cut()
}

// openReplicated starts a master with a replica behind one address.
func (r *rig) openReplicated() error {
	g, err := server.StartReplicated(r.ctx, server.ReplicatedOptions{})
	if err != nil {
		return err
	}
	r.group = g
	r.closers = append(r.closers, g.Stop)
	r.entry = &entry{to: g.Master().Addr()}
	r.entry.network = netfault.New(r.entry.dial)
	if r.entry.proxy, err = r.entry.network.Listen("tcp", ""); err != nil {
		return err
	}
	r.closers = append(r.closers, r.entry.proxy.Close)
	r.connect(r.entry.proxy.Addr())
	return nil
}
