package lock

import (
	"cmp"
	"context"
	"strconv"
	"time"
)

// A release of a lock wakes one waiting process. The processes register in a zset on
// the server; waiters_common.lua describes it. All waiters of a process for one lock
// share one registration, in the [waitQueue] of the lock. As in Go's sync.Mutex, a
// woken process competes with clients that come by, and gets the lock handed over when
// it has lost too often, or if it waits for an election. A writer of an [Client.RW] does not
// compete: with the message it gets the claim to be next.

// newQuickRelease returns a release script that is quick if no process waits. ends is the
// Lua code that defines ends and i of waiters_quick.lua.
func newQuickRelease(ends, file string) *script {
	return hashed(ends + lua("waiters_quick", "waiters_common", "tell", "waiters_release", file))
}

// maxPassedOver is the number of times that a woken process may find the lock taken and
// register again. The next time it registers a token, to which a release hands the lock.
const maxPassedOver = 8

// Messages to a process. freeMessage wakes its first waiter: the lock is free, and the
// process is no longer registered. moreMessage does the same, and the waiter wakes the
// next one if more permits of a semaphore are free. ownMessage is for observers: the
// process has released the lock itself, and learns the same from the reply.
const (
	freeMessage = "free"
	moreMessage = "more"
	ownMessage  = "own"
)

// registration is what a process knows about its registration for one lock.
type registration struct {
	protocol   *scriptProtocol // of the lock; nil = the process was never registered
	registered bool            // the process may be registered
	ticket     int64           // µs of the server's clock; 0 = none yet
	woken      bool            // a release has removed and woken the process
	more       bool            // by moreMessage
	passedOver int             // times that the process was woken and found the lock taken
	ahead      int64           // number of processes before it; −1 = not known
	turn       time.Duration   // until a permit of a semaphore is free for the process if no holder releases one; 0 = not known
}

// starving reports whether the process was woken too often and found the lock taken.
func (reg registration) starving() bool { return reg.passedOver >= maxPassedOver }

// isNext reports whether the process may be woken by one of the next releases, or is
// not registered.
func (reg registration) isNext() bool { return !reg.registered || reg.ahead <= 1 }

// untilTurn returns ttl or, if that is known, the time until the process gets a permit of a
// semaphore without a release.
func (reg registration) untilTurn(ttl time.Duration) time.Duration { return cmp.Or(reg.turn, ttl) }

// claimPoll returns the pause after which a waiting writer polls by itself; 0 = it waits
// for its message.
func (reg registration) claimPoll() time.Duration {
	ahead := time.Duration(max(reg.ahead, 0))
	switch {
	case !reg.registered:
		return claimTTL / 3
	case ahead < claimPolls:
		return (ahead + 1) * claimTTL / 3
	}
	return 0
}

// A new waiter first asks with SET NX, before it registers, if that paid last time. Where few
// processes compete and hold the lock shortly, it is often free by then, or one round trip
// later. Elsewhere the command is wasted. So, like a spinning mutex, a queue counts successes
// less failures, up to maxSetCredit. Without credit, one waiter of setProbe asks.
const (
	maxSetCredit = 8
	setProbe     = 16
)

// registering is an attempt of a waiter, which registers if the lock is held.
type registering struct {
	*call
	protocol *scriptProtocol
	queue    *waitQueue
	begun    bool // false = the attempt does not register, so far
	woken    bool // by a message
	stays    bool // the process has other waiters
}

// acquireOrRegister acquires the lock or registers the process. token is that of the
// attempt; if it was made by newProcessToken, it is registered itself.
func (p *scriptProtocol) acquireOrRegister(ctx context.Context, token string, ttl time.Duration, q *waitQueue, starving bool) future {
	return p.register(token, q, starving, func(waiter ...any) *call {
		args := []any{token, ttl.Milliseconds()}
		switch {
		case p.acquireArgs != nil:
			args = append(args, p.acquireArgs...)
		case p.scripts.counted:
			args = append(args, 1)
		default:
			args = append(args, "")
		}
		return p.scripts.acquire.send(ctx, p.transport, p.keys, append(args, waiter...)...)
	})
}

// register sends an attempt that registers the process if the lock is held. send gets
// the arguments of waiters_acquire.lua.
func (p *scriptProtocol) register(token string, q *waitQueue, starving bool, send func(waiter ...any) *call) *registering {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &registering{protocol: p, queue: q}
	r.call = send(r.begin(token, starving, false)...)
	return r
}

// begin returns the arguments of waiters_acquire.lua, and notes that the process is about
// to register. free means that the lock may be free, as after a message. The caller holds r.queue.mu.
func (r *registering) begin(token string, starving, free bool) []any {
	p, q := r.protocol, r.queue
	r.begun, r.stays = true, len(q.queue) > 1
	reg := &q.registration
	member, ticket, flags := p.core.process, "", ""
	if starving {
		member = token
	}
	if reg.ticket > 0 {
		ticket = strconv.FormatInt(reg.ticket, 10)
	}
	if reg.registered {
		flags += "r"
	}
	r.woken, reg.woken = reg.woken, false
	switch {
	case r.woken && reg.more:
		flags += "wm"
	case r.woken, free:
		flags += "w"
	case reg.ticket > 0 && reg.ahead > 0: // the first process wakes the others
		flags += "l"
	case reg.ticket > 0:
		flags += "lm"
	}
	if !p.transport.Clustered() {
		flags += "c"
	}
	reg.protocol, reg.registered = p, true
	args := []any{p.freeChannel, member, ticket, flags}
	if r.stays {
		args = append(args, p.core.process)
	}
	return args
}

// wait implements [future].
func (r *registering) wait(ctx context.Context) (any, error) {
	reply, err := r.call.wait(ctx)
	if err != nil || !r.begun {
		return reply, err
	}
	fields, refused := reply.([]any)
	if !refused {
		r.onGrant(0)
		return reply, nil
	}
	if len(fields) == 3 {
		if fence, granted := fields[0].(int64); granted { // a permit of a semaphore
			r.onGrant(fields[2])
			r.protocol.deliver(fields[1], grant{})
			return fence, nil
		}
	}
	r.onRefusal(fields)
	return reply, nil
}

// setFirst acquires a mutex without a fence by SET NX. If the lock is free, this costs the
// server half as much as acquire. If not, the refusal does not name the holder, and a second
// round trip runs the acquire script, which does, and which registers the process in q; nil =
// it does not wait. SET NX does not recognise its own token; this is safe because it is never
// sent twice.
func (p *scriptProtocol) setFirst(ctx context.Context, token string, ttl time.Duration, q *waitQueue) future {
	r := &registering{call: sendPlain(ctx, p.transport, "set", p.keys[0], token, "nx", "px", millis(ttl)), protocol: p, queue: q}
	r.fallback = fallback{afterNil, func() (*script, []string) {
		args := []any{token, ttl.Milliseconds(), ""}
		if q != nil && q.subscribedBoth() {
			q.mu.Lock()
			defer q.mu.Unlock()
			args = append(args, r.begin(token, false, true)...)
		}
		return p.scripts.acquire, appendArgs(p.scripts.acquire.argv(nil, p.keys), args)
	}}
	return r
}

// onGrant notes that the lock was acquired. turn is when the next waiter of the process
// must look, as in onRefusal.
func (r *registering) onGrant(turn any) {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	reg := &r.queue.registration
	reg.registered, reg.ticket, reg.passedOver = r.stays, 0, 0
	reg.setTurn(turn)
}

// onRefusal notes the ticket, the number of processes before this one, and the turn.
func (r *registering) onRefusal(fields []any) {
	r.queue.mu.Lock()
	defer r.queue.mu.Unlock()
	reg := &r.queue.registration
	if len(fields) == 3 { // by another lock of an [Client.All]: the registration is what it was
		return
	}
	if r.woken {
		reg.passedOver++
	}
	reg.registered, reg.ahead, reg.turn = len(fields) >= 4, -1, 0
	if reg.registered {
		reg.ticket, _ = fields[2].(int64)
		reg.ahead, _ = fields[3].(int64)
	}
	if len(fields) == 5 {
		reg.setTurn(fields[4])
	}
}

// setTurn sets the turn to a number of ms; −1 = never, 0 = not known.
func (reg *registration) setTurn(ms any) {
	n, _ := ms.(int64)
	reg.turn = time.Duration(n) * time.Millisecond
	if n < 0 {
		reg.turn = maxTTL
	}
}

// registrationTTL is how long a registration lasts that no process refreshes:
// waiters_common.lua sets it.
const registrationTTL = 16 * time.Second

// leaving is the protocol of a lock for a token that is registered and waits no longer:
// its release also ends the registration.
type leaving struct{ *scriptProtocol }

func (l leaving) release(ctx context.Context, token string, _ int) future {
	return &handover{call: l.sendRelease(ctx, token, 0, token), protocol: l.scriptProtocol}
}

// giveUp ends the registration of a member that waits no longer, in the background. If
// the lock is free, another process is woken: the message may have been for the member.
// If the request is lost, giveUp repeats it for a token, to which a release would hand
// the lock. The process passes a message without a waiter on, and it may have
// registered again since then.
func (p *scriptProtocol) giveUp(member string) {
	c := p.core
	request := leaving{p}.release(c.alive, member, 0)
	c.tasks.spawn(func() {
		if _, err := request.wait(c.alive); transient(err) && member != c.process {
			c.undo(leaving{p}, member, time.Now().Add(registrationTTL), nil)
		}
	})
}

// handover is a release that informs a waiter of the same process: the next holder, if
// the lock was handed to it, or the first waiter, if it was woken.
type handover struct {
	*call
	protocol *scriptProtocol
	grant    grant
}

// wait implements [future]. If ctx ends first, it informs the waiter in the background.
func (h *handover) wait(ctx context.Context) (any, error) {
	reply, err := h.call.wait(ctx)
	if err == nil {
		h.protocol.deliver(reply, h.grant)
	} else if ctx.Err() != nil {
		h.protocol.core.deliverLate(h.call, func(reply any) { h.protocol.deliver(reply, h.grant) })
	}
	return reply, err
}

// deliverLate has the reply to a release delivered, for which its caller does not wait.
func (c *core) deliverLate(release *call, deliver func(reply any)) {
	c.tasks.spawn(func() {
		if late, err := release.wait(c.alive); err == nil {
			deliver(late)
		}
	})
}

// deliver informs a waiter of this process of the reply to a release.
func (p *scriptProtocol) deliver(reply any, g grant) {
	switch reply := reply.(type) {
	case string:
		p.core.notifier.onHandOver(p.processChannel(), reply, g)
	case int64:
		switch reply {
		case wokeOwn:
			p.core.notifier.onMessage(p.processChannel(), freeMessage)
		case wokeOwnForMore:
			p.core.notifier.onMessage(p.processChannel(), moreMessage)
		}
	}
}

// wokeOwn is the reply to a release that has freed the lock, and has removed the
// caller's own process from the waiters. wokeOwnForMore stands for moreMessage.
const (
	wokeOwn        = 2
	wokeOwnForMore = 3
)
