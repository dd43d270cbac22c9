package clienttest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"time"

	"locktop/internal/humanize"
	"locktop/internal/netfault"
	"locktop/loadgen/external"
	"locktop/loadgen/oracle"
)

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
	a, err := r.startActor(ahead, "")
	if err == nil {
		_, err = a.process.Hello(r.ctx)
	}
	must(err, "%v")
	return a
}

// startActor starts a client that has its own label as its name, if name is empty.
func (r *rig) startActor(ahead time.Duration, name string) (*actor, error) {
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
		Command: r.profile.Command, URLs: urls, Client: cmp.Or(name, a.name), ClockOffset: ahead, Leeway: leeway,
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
	must(a.process.Freeze(), "%s could not be frozen: %v", a.name)
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
	actor  *actor
	began  time.Time
	shared bool // with other readers
	visit  *oracle.Hold

	mu   sync.Mutex
	left bool
}

// lock asks for the lock, which the client may wait for. The error is external.ErrHeld if
// it did not get it.
func (a *actor) lock(wait time.Duration) (*hold, error) {
	return a.lockAs(external.Terms{Wait: wait})
}

// lockAs is lock on other terms. The key and the TTL are those of all tests.
func (a *actor) lockAs(t external.Terms) (h *hold, err error) {
	t.Keys, t.TTL, t.Permits = []string{key}, a.rig.ttl, a.rig.permits
	var l *external.Lease
	var visit *oracle.Hold
	asked := time.Now()
	err = a.request(Waiting, "lock", t.Wait, func(ctx context.Context) error {
		if a.rig.oracle != nil {
			visit = a.rig.oracle.Ask(oracle.Hold{Client: a.number, Shared: t.Read, Asked: asked, Ctx: ctx}, 0)
		}
		l, err = a.process.Lock(ctx, t)
		return err
	})
	now := time.Now()
	if err == nil {
		return a.entered(l, t.Read, visit, now), nil
	}
	if visit != nil {
		a.rig.oracle.GiveUp(visit, now)
	}
	return nil, err
}

// request makes a request that may wait, and adds its span.
func (a *actor) request(kind SpanKind, what string, wait time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(a.rig.ctx, wait+answerWithin)
	defer cancel()
	asked := time.Now()
	err := do(ctx)
	result := "ok"
	switch {
	case errors.Is(err, external.ErrHeld):
		result = "refused"
	case errors.Is(err, external.ErrLost):
		result = "lost"
	case errors.Is(err, context.DeadlineExceeded):
		result, err = "no answer", fmt.Errorf("no answer to %s within %s", what, humanize.Setting(wait+answerWithin))
	case err != nil:
		result = err.Error()
	}
	a.rig.span(a.name, asked, time.Now(), kind, what+": "+result)
	return err
}

// entered records a hold.
func (a *actor) entered(l *external.Lease, shared bool, visit *oracle.Hold, now time.Time) *hold {
	h := &hold{Lease: l, actor: a, began: now, shared: shared}
	if visit != nil && !l.Valid() { // the reply came after the end of the lease
		a.rig.oracle.GiveUp(visit, now)
	} else if visit != nil {
		visit.Token, visit.Fence, visit.Lease, h.visit = l.Token(), l.Fence(), l, visit
		a.rig.oracle.Enter(visit, now)
	}
	context.AfterFunc(l.Context(), func() {
		if l.Lost() {
			now := time.Now()
			a.rig.span(a.name, now, now, Told, "lost")
		}
	})
	a.rig.mu.Lock()
	defer a.rig.mu.Unlock()
	a.rig.holds = append(a.rig.holds, h)
	return h
}

// again locks the lock that the client has once more. The oracle knows the first hold.
func (a *actor) again(wait time.Duration) (h *hold, err error) {
	h = &hold{actor: a, left: true}
	err = a.request(Request, "lock again", wait, func(ctx context.Context) error {
		h.Lease, err = a.process.Lock(ctx, external.Terms{Keys: []string{key}, TTL: a.rig.ttl, Wait: wait})
		return err
	})
	h.began = time.Now()
	return h, err
}

// reconnect lets a client that has the lock lock another one, until it gets that one: by
// then it has found out about broken connections.
func (a *actor) reconnect() {
	for end := time.Now().Add(a.rig.ttl / 3); time.Now().Before(end); a.rig.pause(margin / 20) {
		ctx, cancel := context.WithTimeout(a.rig.ctx, short+answerWithin)
		l, err := a.process.Lock(ctx, external.Terms{Keys: []string{key + ":other"}, TTL: a.rig.ttl, Wait: short})
		if err == nil {
			_ = l.Unlock(ctx) // its result is not that of the test
		}
		cancel()
		if err == nil {
			return
		}
	}
}

// lockBy is lock until a time, and again after an error, such as that of a broken
// connection.
func (a *actor) lockBy(end time.Time) (h *hold, err error) {
	for ; ; a.rig.pause(margin / 20) {
		h, err = a.lock(max(time.Until(end), 0))
		if err == nil || !time.Now().Before(end) || a.process.Err() != nil || a.rig.ctx.Err() != nil {
			return h, err
		}
	}
}

// mustLock is lock for a step in which the lock is free. Without it the test is inconclusive.
func (a *actor) mustLock() *hold {
	h, err := a.lockBy(time.Now().Add(a.rig.ttl + margin))
	must(err, "%s did not acquire a free lock: %v.", a.name)
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

// over reports whether the holder has left.
func (h *hold) over() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.left
}

// unlock leaves and releases the lock. It returns external.ErrLost if the client reports
// that it did not have the lock any more.
func (h *hold) unlock() error {
	h.leave(time.Now())
	return h.actor.request(Request, "unlock", 0, h.Unlock)
}

// mustUnlock is unlock for a step in which the client has the lock.
func (h *hold) mustUnlock() {
	if err := h.unlock(); err != nil {
		giveUp("The release of a lock %s.", outcomeText(err))
	}
}

// unlocking is unlock in the background.
func (h *hold) unlocking() *asked {
	return inBackground(func(q *asked) { q.err = h.unlock() })
}

// extend asks for a new deadline.
func (h *hold) extend() error {
	return h.actor.request(Request, "extend", 0, func(ctx context.Context) error { return h.Extend(ctx, h.actor.rig.ttl) })
}

// told is [external.Lease.Told], until the test ends.
func (h *hold) told(within time.Duration) bool { return told(h.actor.rig.ctx, h.Lease, within) }

// told waits until a client has reported the loss of its lock, for a time at most, and reports whether
// it has.
func told(ctx context.Context, l *external.Lease, within time.Duration) bool {
	select {
	case <-l.Context().Done():
	case <-time.After(within):
	case <-ctx.Done():
	}
	return l.Lost()
}
