package lock

import (
	"context"
	"strconv"
	"time"
)

var fairScripts = &scripts{
	acquire: newScript("fair_quick", "waiters_common", "tell", "fair_acquire"),
	extend:  mutexScripts.extend, release: mutexScripts.release, peek: mutexScripts.peek,
	isValue: true,
}

// claimTimeout is how long a waiter has to claim a lock that was handed to it. Then the next
// waiter gets it.
const claimTimeout = time.Second

// fair is the lock of [Client.Fair].
type fair struct{ locker }

// Fair returns the mutex with that name, which serves its waiters in order of arrival, also across
// processes. It sends nothing. [Options.Wait] must be zero, because waiters receive messages.
// A release hands the lock to the first waiter, so the lock is never free while a
// client waits. A hand-over sends two messages at most, however long the queue is: one to the
// process of the next holder, and one to the process of a waiter behind it, which
// checks that the next holder claims the lock.
//
// A waiter that dies costs the waiters behind it no time, because the server knows
// that its process no longer subscribes. A process that is stopped costs the waiters behind
// its own 1 s, however many it has; later they have their places again. On a cluster a
// process that has died costs the same. TryLock does not queue: it succeeds only if the lock is
// free and no client waits. Lock joins the queue at once if the lock is held, and leaves it if ctx
// ends.
//
// On the server the lock is the same key as a [Client.Mutex] and excludes the same clients.
// Such clients ignore the queue: one that finds the lock free right after a crash gets
// it before the waiters. A further key, the zset that a [Client.Mutex] has, too, holds the queue; it
// vanishes with the last waiter.
func (c *Client) Fair(key string, o Options) (Locker, error) {
	b, err := c.newBase(key, o, "a fair lock", "Wait")
	if err == nil {
		err = nameKey(key, c.checkCompanions(key))
	}
	if err != nil {
		return nil, err
	}
	p := newScriptProtocol(fairScripts, c.core, key, o.Fence)
	if !b.opts.Fence && b.opts.Replicas == 0 {
		p.grant = b.opts.keyTTL()
	}
	b.protocol = p
	f := &fair{locker{base: b, waiting: request{inOrder: true}}}
	f.try = f.attempt
	return f, nil
}

// grant is a lock that was handed over within the process with its full TTL. The next holder
// need not ask the server, unless it wants another TTL, raises a fence or asks replicas.
type grant struct {
	sent time.Time // the release
	ttl  time.Duration
}

// attempt takes a grant. Without one it asks for the lock and, if it is held, for a place in the
// queue.
func (f *fair) attempt(ctx context.Context, r *request) (_ *Lease, err error) {
	var h *hold
	var g grant
	if r.token != "" {
		g = r.queue.grantFor(r.token)
	}
	if ttl := f.protocol.(*scriptProtocol).grant; ttl > 0 && g.ttl == ttl && time.Since(g.sent) < ttl/2 && f.client.tasks.begin() {
		h, err = f.startHold(r, r.token, 0, g.sent)
		f.client.tasks.done()
	} else {
		h, err = f.ask(ctx, r)
	}
	return leaseOf(h, err)
}

// ask asks the server once.
func (f *fair) ask(ctx context.Context, r *request) (*hold, error) {
	return f.acquireOnceBy(ctx, r, func(token string) future {
		ticket, stopped := "-", ""
		if r.token != "" {
			if ticket = ""; r.ticket > 0 {
				ticket = strconv.FormatInt(r.ticket, 10)
			}
			stopped = r.queue.claimant()
		}
		p := f.protocol.(*scriptProtocol)
		c := p.scripts.acquire.send(ctx, p.transport, p.keys, token, f.opts.keyTTL().Milliseconds(), p.freeChannel, p.publishCounts(), ticket, stopped)
		return &queueing{c, r}
	})
}

// queueing is an attempt that asks for a place in the queue of a fair lock.
type queueing struct {
	*call
	request *request
}

// wait implements [future]. It notes the place, and who must claim the lock or has little time
// left. If the queue was lost, all waiters of the process ask again.
func (q *queueing) wait(ctx context.Context) (any, error) {
	reply, err := q.call.wait(ctx)
	if fields, _ := reply.([]any); len(fields) > 2 {
		q.request.ticket, _ = fields[2].(int64)
		holder, _ := fields[0].(string)
		ttl, _ := fields[1].(int64)
		if _, ours := tokenOwner(holder); ours && ttl <= claimTimeout.Milliseconds() {
			q.request.queue.noteClaimant(processOf(holder))
		}
		if len(fields) > 3 {
			q.request.queue.wakeInOrder()
		}
	}
	return reply, err
}
