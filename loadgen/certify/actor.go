package certify

import (
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
	a, err := r.startActor(ahead)
	if err == nil {
		_, err = a.process.Hello(r.ctx)
	}
	must(err, "%v")
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
		Command: r.profile.Command, URLs: urls, Client: a.name, ClockOffset: ahead, Leeway: leeway,
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
	visit  *oracle.Occupancy

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
	t.Keys, t.TTL, t.Permits = []string{key}, a.rig.ttl, a.rig.permits
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
	h := &hold{Lease: l, actor: a, began: now, shared: shared}
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

// again locks the lock that the client has once more. The oracle knows the first hold.
func (a *actor) again(wait time.Duration) (*hold, error) {
	ctx, cancel := context.WithTimeout(a.rig.ctx, wait+answerWithin)
	defer cancel()
	asked := time.Now()
	l, err := a.process.Lock(ctx, external.Terms{Keys: []string{key}, TTL: a.rig.ttl, Wait: wait})
	label := "lock again: ok"
	if err != nil {
		label = "lock again: " + err.Error()
	}
	a.rig.span(a.name, asked, time.Now(), Request, label)
	return &hold{Lease: l, actor: a, began: time.Now(), left: true}, err
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
		if err == nil || !time.Now().Before(end) || a.process.Err() != nil {
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
	ctx, cancel := context.WithTimeout(h.actor.rig.ctx, answerWithin)
	defer cancel()
	return h.unlockWithin(ctx)
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

// extend asks for a new deadline.
func (h *hold) extend() error {
	ctx, cancel := context.WithTimeout(h.actor.rig.ctx, answerWithin)
	defer cancel()
	asked := time.Now()
	err := h.Extend(ctx, h.actor.rig.ttl)
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
