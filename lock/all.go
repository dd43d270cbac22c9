package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/lock/internal/transport"
)

var (
	allAcquireScript = newScript("waiters_common", "waiters_acquire", "all_acquire")
	allExtendScript  = newScript("all_extend")
	allReleaseScript = newScript("waiters_common", "tell", "waiters_release", "all_release")
)

// maxAllKeys is the largest number of keys of a [Client.All]. The server executes nothing else
// while a script acquires them.
const maxAllKeys = 100

// all is the lock of [Client.All].
type all struct {
	locker
	protocol *allProtocol // equals base.protocol
	parts    []base       // the keys, in sorted order
}

// All returns the lock over these keys, 1 to 100 different ones, with one holder at a time: an
// attempt acquires all of them or none. The order of the keys does not matter, and a key that is
// given twice counts once. All sends nothing. A lease covers all keys; [Lease.Key] returns them in
// sorted order, joined by ", ". If it loses one, for example by a DEL, it ends with [ErrLost], and
// the others are released in the background. It is not reentrant. [Options.Fence] and
// [Options.Replicas] must be zero.
//
// On the server each key is that of a [Client.Mutex], and all have the same token. So a Mutex, a
// [Client.Fair] lock and other libraries exclude an All that has their key among its keys. On a
// single server, or if all keys are in one slot of a cluster, one script acquires, extends
// or releases all of them. With several slots, an attempt acquires the keys of one slot
// after the other, always in the same order, and releases them again when it finds one
// held. Other clients may see these keys held meanwhile.
//
// An All holds no key while it waits. So clients never deadlock, in whatever order they
// name their keys, unless they lock a second time while they have a lease. It waits for one
// held key at a time, like a Mutex of that key; in each queue its place is that of its first
// refusal on any key. So if only one of the keys is contended, it is served like a Mutex.
// With keys in several slots, however, no release hands the lock to it: clients that come by
// may be faster any number of times. And an All needs the moment at which all of its keys
// are free: clients that always hold one or the other of them can keep it waiting without
// limit. If that matters, have these clients lock the same keys with an All, too, or a
// common key first.
func (c *Client) All(keys []string, o Options) (Locker, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	name := strings.Join(keys, ", ")
	b, err := c.newBase(name, o, "a lock over several keys", "Fence", "Replicas")
	if err = cmp.Or(err, nameKey(name, checkKeys(keys))); err != nil {
		return nil, err
	}
	p := &allProtocol{core: c.core}
	b.protocol, b.several = p, true
	a := &all{locker: locker{base: b}, protocol: p}
	for _, key := range keys {
		part := newScriptProtocol(mutexScripts, c.core, key, false)
		p.parts = append(p.parts, part)
		a.parts = append(a.parts, base{client: c, key: key, opts: a.opts, protocol: part})
	}
	if c.transport.Clustered() {
		p.group(slotTag)
	} else {
		p.group(func(string) string { return "" })
	}
	a.try = func(ctx context.Context, r *request) (*Lease, error) { // its error names the first key that is held
		lease, _, err := a.ask(ctx, r, nil)
		return lease, err
	}
	a.waiting = request{wait: a.acquireWaiting, noHandOver: len(p.groups) > 1}
	return a, nil
}

// checkKeys validates the number of keys.
func checkKeys(keys []string) error {
	switch {
	case len(keys) == 0:
		return fmt.Errorf("%w: a lock over several keys needs at least one", ErrArgument)
	case len(keys) > maxAllKeys:
		return fmt.Errorf("%w: %d keys; a lock can have at most %d", ErrArgument, len(keys), maxAllKeys)
	}
	return nil
}

// Holder implements [Locker]. It asks for one key after the other.
func (a *all) Holder(ctx context.Context) (*HeldError, error) {
	if err := a.check(ctx); err != nil {
		return nil, err
	}
	for i := range a.parts {
		if held, err := a.parts[i].Holder(ctx); held != nil || err != nil {
			return held, err
		}
	}
	return nil, nil
}

// acquireWaiting waits for one key until an attempt finds another one held, then for that
// one. A key is not left without another waiter: waitAndAcquire passes a wake-up on.
func (a *all) acquireWaiting(ctx context.Context, r *request) (*Lease, error) {
	if a.opts.Wait.Poll > 0 {
		return a.poll(ctx, r)
	}
	backoff := minBackoff
	for part := &a.parts[0]; ; {
		r.try = func(ctx context.Context, r *request) (*Lease, error) { return a.attemptWaitingFor(ctx, r, part) }
		lease, err := part.acquireWaiting(ctx, r)
		var other *otherHeld
		switch stopped := stopCause(ctx, a.client); {
		case errors.As(err, &other) && stopped != nil:
			return nil, fmt.Errorf("lock: wait for %q: %w: %w", other.held.Key, other.held, stopped)
		case other != nil:
			part, backoff = &a.parts[slices.Index(a.protocol.parts, other.part)], minBackoff
		case stopped == nil && r.held != nil && transient(err):
			a.client.sleep(ctx, backoff)
			backoff = min(2*backoff, maxBackoff)
		default:
			return lease, err
		}
	}
}

// otherHeld is the error of an attempt that found another key held than the one for which
// it waits. It does not match [ErrHeld], which would mean that the wait goes on.
type otherHeld struct {
	part *scriptProtocol
	held *HeldError
}

func (e *otherHeld) Error() string { return e.held.Error() }

// RedisError marks the error as a reply of the server: the outcome of the attempt is known.
func (e *otherHeld) RedisError() {}

// attemptWaitingFor asks the server once and, if part is held, for a place in its queue.
func (a *all) attemptWaitingFor(ctx context.Context, r *request, part *base) (*Lease, error) {
	waiting := part.protocol.(*scriptProtocol)
	if r.queue == nil || !r.queue.subscribedBoth() {
		waiting = nil
	} else {
		r.queue.inheritTicket(r.ticket)
	}
	lease, by, err := a.ask(ctx, r, waiting)
	var held *HeldError
	switch {
	case !errors.As(err, &held):
	case by != part.protocol:
		return nil, &otherHeld{by, held}
	case waiting != nil:
		r.ticket = cmp.Or(r.ticket, r.queue.registrationNow().ticket)
	}
	return lease, err
}

// ask asks the server once. If a key is held, it returns the part of that key.
func (a *all) ask(ctx context.Context, r *request, waiting *scriptProtocol) (_ *Lease, by *scriptProtocol, _ error) {
	var asked *allAcquire
	h, err := a.acquireOnceBy(ctx, r, func(token string) future {
		asked = a.protocol.start(ctx, token, a.opts.keyTTL(), r, waiting)
		return asked
	})
	if err == nil {
		return newLease(h), nil, nil
	}
	var held *HeldError
	if errors.As(err, &held) {
		held.Key, by = asked.heldBy.lockKey(), asked.heldBy
	}
	return nil, by, err
}

// allProtocol stores the lock in several keys, each like a [Client.Mutex].
type allProtocol struct {
	*core
	parts  []*scriptProtocol   // the keys, in sorted order
	groups [][]*scriptProtocol // the keys of one slot together; every client has the same order of slots
}

// group groups the keys by their slots.
func (p *allProtocol) group(slot func(key string) string) {
	bySlot := map[string][]*scriptProtocol{}
	var slots []string
	for _, part := range p.parts {
		s := slot(part.lockKey())
		if bySlot[s] == nil {
			slots = append(slots, s)
		}
		bySlot[s] = append(bySlot[s], part)
	}
	slices.Sort(slots)
	p.groups = nil
	for _, s := range slots {
		p.groups = append(p.groups, bySlot[s])
	}
}

// namesOf returns the names of locks.
func namesOf(parts []*scriptProtocol) []string {
	names := make([]string, len(parts))
	for i, part := range parts {
		names[i] = part.lockKey()
	}
	return names
}

// acquire implements [protocol].
func (p *allProtocol) acquire(ctx context.Context, token string, ttl time.Duration, _ int) future {
	return p.start(ctx, token, ttl, nil, nil)
}

// start is acquire. If waiting is held, its process registers as r asks.
func (p *allProtocol) start(ctx context.Context, token string, ttl time.Duration, r *request, waiting *scriptProtocol) *allAcquire {
	f := &allAcquire{protocol: p, token: token, ttl: ttl, until: time.Now().Add(ttl), request: r, waiting: waiting}
	f.askNext(ctx)
	return f
}

// extend implements [protocol]. If one key is lost, others may be extended.
func (p *allProtocol) extend(ctx context.Context, t transport.Transport, token string, ttl time.Duration) future {
	var requests allExtend
	for _, group := range p.groups {
		requests = append(requests, allExtendScript.send(ctx, t, namesOf(group), token, ttl.Milliseconds()))
	}
	return requests
}

// allExtend are the requests to extend the keys in several slots.
type allExtend []future

// wait implements [future]. A lost key counts more than an error for another key.
func (requests allExtend) wait(ctx context.Context) (any, error) {
	var failed error
	for _, r := range requests {
		reply, err := r.wait(ctx)
		if err == nil && reply != int64(1) {
			return reply, nil
		}
		failed = cmp.Or(failed, err)
	}
	return int64(1), failed
}

// release implements [protocol]. It releases the keys that the token holds. The reply is
// nil if it does not hold one of them.
func (p *allProtocol) release(ctx context.Context, token string, _ int) future {
	return p.releaseGroups(ctx, token, p.groups)
}

func (p *allProtocol) releaseGroups(ctx context.Context, token string, groups [][]*scriptProtocol) allRelease {
	var requests allRelease
	for _, group := range groups {
		args := []any{token, group[0].publishCounts()}
		for _, part := range group {
			process := p.process
			if part.broadcast {
				process = ""
			}
			args = append(args, part.freeChannel, process)
		}
		requests = append(requests, &groupRelease{allReleaseScript.send(ctx, p.transport, namesOf(group), args...), group})
	}
	return requests
}

// channel implements [protocol]. A waiter waits on the channel of one of the keys.
func (p *allProtocol) channel() string { return p.parts[0].channel() }

func (p *allProtocol) lockKey() string { return strings.Join(namesOf(p.parts), ", ") }

// allAcquire acquires the keys of one slot after the other.
type allAcquire struct {
	protocol *allProtocol
	token    string
	ttl      time.Duration
	until    time.Time // no key that was acquired outlives this moment
	request  *request
	waiting  *scriptProtocol // its key is awaited; nil = none

	asked  [][]*scriptProtocol // the keys of each call, in the order of its KEYS
	calls  []allCall
	heldBy *scriptProtocol // the key that is held; set by wait
}

// allCall is a call of all_acquire.lua.
type allCall interface {
	future
	writtenAt() time.Time
	waitLast(context.Context)
}

// askNext sends the request for the keys of the next slot.
func (f *allAcquire) askNext(ctx context.Context) {
	group := f.protocol.groups[len(f.calls)]
	send := func(waiter ...any) *call {
		args := append([]any{f.token, f.ttl.Milliseconds()}, waiter...)
		return allAcquireScript.send(ctx, f.protocol.transport, namesOf(group), args...)
	}
	i := slices.Index(group, f.waiting)
	if i < 0 {
		f.asked, f.calls = append(f.asked, group), append(f.calls, send())
		return
	}
	group = slices.Concat(group[i:i+1], group[:i], group[i+1:])
	f.asked = append(f.asked, group)
	f.calls = append(f.calls, f.waiting.register(f.token, f.request.queue, f.request.token != "", send))
}

// wait implements [future]. When keys are held or cannot be acquired, it releases those
// of the slots before.
func (f *allAcquire) wait(ctx context.Context) (any, error) {
	for {
		last := len(f.calls) - 1
		reply, err := f.calls[last].wait(ctx)
		refusal, refused := reply.([]any)
		if err != nil || refused {
			f.backOut(f.asked[:last])
		}
		if refused {
			f.heldBy = f.asked[last][0]
			if i, _ := refusal[len(refusal)-1].(int64); len(refusal) == 3 && i > 0 && i <= int64(len(f.asked[last])) {
				f.heldBy = f.asked[last][i-1]
			}
		}
		if err != nil || refused || len(f.calls) == len(f.protocol.groups) {
			return reply, err
		}
		f.askNext(ctx)
	}
}

// backOut releases keys that were acquired, in the background.
func (f *allAcquire) backOut(groups [][]*scriptProtocol) {
	if len(groups) == 0 {
		return
	}
	c := f.protocol.core
	request := f.protocol.releaseGroups(c.alive, f.token, groups)
	c.tasks.spawn(func() {
		if _, err := request.wait(c.alive); transient(err) {
			c.undo(&allProtocol{core: c, parts: f.protocol.parts, groups: groups}, f.token, f.until, nil)
		}
	})
}

// writtenAt returns when the first request was written; zero = not known.
func (f *allAcquire) writtenAt() time.Time { return f.calls[0].writtenAt() }

// waitLast waits for the reply to the request that was sent last.
func (f *allAcquire) waitLast(ctx context.Context) { f.calls[len(f.calls)-1].waitLast(ctx) }

// allRelease are the requests to release the keys of each slot.
type allRelease []*groupRelease

// wait implements [future].
func (requests allRelease) wait(ctx context.Context) (any, error) {
	var failed error
	reply := any(int64(1))
	for _, r := range requests {
		freed, err := r.wait(ctx)
		if err == nil && freed == nil {
			reply = nil
		}
		failed = cmp.Or(failed, err)
	}
	return reply, failed
}

// groupRelease releases the keys of one slot.
type groupRelease struct {
	*call
	parts []*scriptProtocol
}

// wait implements [future]. If ctx ends first, it informs waiters of this process in the
// background.
func (r *groupRelease) wait(ctx context.Context) (any, error) {
	reply, err := r.call.wait(ctx)
	if err != nil && ctx.Err() != nil {
		r.parts[0].core.deliverLate(r.call, r.deliver)
	}
	r.deliver(reply)
	replies, _ := reply.([]any)
	if err == nil && (len(replies) != len(r.parts) || slices.Contains(replies, any(int64(0)))) {
		return nil, nil
	}
	return int64(1), err
}

// deliver informs the waiters of this process that were woken.
func (r *groupRelease) deliver(reply any) {
	replies, _ := reply.([]any)
	for i := range min(len(replies), len(r.parts)) {
		r.parts[i].deliver(replies[i], grant{})
	}
}
