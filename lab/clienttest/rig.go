package clienttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"sync"
	"time"

	"locktop/internal/humanize"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen/oracle"
)

// Times of all tests.
const (
	standardTTL = 2 * time.Second // of a lease, if the test has no other
	// margin is how long after its TTL a lock may take to be free for a waiter: waiters poll
	// at intervals, and the machine may be busy.
	margin = time.Second
	// short is how long a client asks for a lock that it must not get.
	short = 300 * time.Millisecond
	// answerWithin is how long a client may take for an answer, in addition to the time for
	// which it may wait.
	answerWithin = 5 * time.Second
	// leeway is how long a reply of a client may be under way.
	leeway = 250 * time.Millisecond
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

// profile is a client, as far as it is known before the tests.
type profile = Client

// has reports whether hello names a kind.
func (p profile) has(kind string) bool { return slices.Contains(p.Hello.Kinds, kind) }

// renewed reports whether leases can be renewed: by the client, or by requests to extend.
func (p profile) renewed() bool { return p.Hello.Renews || p.Extends }

// probe starts a client, and locks, extends and unlocks once.
func probe(ctx context.Context, command, on string) profile {
	p := profile{Name: command, Command: command}
	r := &rig{ctx: ctx, options: Options{Server: on}, profile: p, ttl: standardTTL, began: time.Now()}
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
	a, err := r.startActor(0, "")
	if err != nil {
		return err
	}
	if p.Hello, err = a.process.Hello(r.ctx); err != nil {
		return err
	}
	p.Name = p.Hello.Name
	h, err := a.lockBy(time.Now().Add(margin))
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
func serverName(ctx context.Context, on string) (string, error) {
	r := &rig{ctx: ctx, options: Options{Server: on}}
	defer r.close()
	if err := r.open(oneServer); err != nil {
		return "", err
	}
	if on == "" && !installed() {
		return "embedded server (no redis-server on PATH)", nil
	}
	info, err := r.admin[0].InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	version := info["Server"]
	for _, other := range []string{"valkey", "dragonfly", "garnet"} {
		if v := version[other+"_version"]; v != "" {
			return other + " " + v, nil
		}
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
	ttl     time.Duration // of a lease
	began   time.Time
	oracle  *oracle.Oracle
	permits int // that a client asks for; 0 = none

	servers []string // addresses
	admin   []server.Client
	nodes   *server.Independent
	group   *servertest.Replicated
	entry   *entry // of a replicated layout
	wiped   bool   // the servers have lost keys
	remark  string // for the evidence; begins with a space
	closers []func() error

	mu     sync.Mutex
	spans  []Span
	actors []*actor
	holds  []*hold
}

// stop ends the steps of a test with a verdict.
type stop struct{ Verdict }

// runTest runs a test on its own servers.
func runTest(ctx context.Context, t Test, p profile, o Options) (v Verdict) {
	r := &rig{ctx: ctx, options: o, profile: p, ttl: cmp.Or(t.ttl, standardTTL), began: time.Now()}
	r.judgeBy(1)
	defer r.close()
	if err := r.open(t.layout); err != nil {
		return inconclusive("the servers of the test did not start: %v", err)
	}
	v = r.steps(t.run)
	return r.judged(v)
}

// judgeBy makes an oracle of a lock that limit clients may hold at once.
func (r *rig) judgeBy(limit int) {
	r.oracle = oracle.New(oracle.Config{Keys: []string{key}, Limit: limit, Patience: time.Hour})
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
		v.Outcome, v.Overlap, v.long, v.Evidence = Fail, true, found.Overlap.Longest >= leeway, v.Evidence+" "+overlapText(found)
		r.violated(found)
	}
	if text := r.fenceOrder(); text != "" {
		v.Outcome = Fail
		v.Evidence += text
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

// fenceOrder returns a sentence about the first hold whose fence is not larger than that of
// the hold before; "" if there is none, or if the fences may have been lost. Readers share a
// lock, and so may their fences.
func (r *rig) fenceOrder() string {
	var before *hold
	for _, h := range r.all() {
		if h.shared || h.visit == nil || r.wiped || r.permits > 0 || !r.profile.Hello.Fences {
			continue
		}
		if before != nil && h.Fence() <= before.Fence() {
			return fmt.Sprintf(" The fence of %s was %d, and that of the hold before, of %s, was %d: a fence was not larger than the one before.",
				h.actor.name, h.Fence(), before.actor.name, before.Fence())
		}
		before = h
	}
	return ""
}

// wipe records that the servers lose keys, after which no lock can keep its promise to those
// that are inside.
func (r *rig) wipe() {
	now := time.Now()
	r.oracle.Troubled(oracle.Trouble{Cause: oracle.LostKeys, Client: oracle.Everybody, Key: oracle.Everybody, From: now, To: now})
	r.wiped = true
}

// firstOverlap returns the first overlap that is not excused.
func firstOverlap(found oracle.Violations) (e oracle.Evidence, ok bool) {
	i := slices.IndexFunc(found.Evidence, func(e oracle.Evidence) bool {
		return e.Violation == oracle.Overlap && e.Cause != string(oracle.LostKeys)
	})
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
		nodes, err := server.StartIndependent(r.ctx, 5, servertest.Program(r.options.Server))
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
	case r.options.Server != "" || installed():
		c, err := server.StartChild(r.ctx, servertest.Program(r.options.Server))
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
	rdb := server.NewClient(addr, server.ClientOptions{})
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
func (r *rig) since(t time.Time) Milliseconds { return Milliseconds(max(t.Sub(r.began), 0)) }

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

// pause waits for the time d, at most until ctx ends.
func (r *rig) pause(d time.Duration) {
	select {
	case <-time.After(d):
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
	g, err := servertest.StartReplicated(r.ctx, servertest.ReplicatedOptions{Server: r.options.Server})
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
