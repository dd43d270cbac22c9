package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"locktop/lock/internal/transport"
)

var (
	rwRead     = newScript("rw_common", "rw_read")
	rwWrite    = newScript("waiters_common", "waiters_acquire", "tell", "waiters_release", "rw_common", "rw_next", "rw_write")
	rwExtend   = newScript("rw_common", "rw_extend")
	rwRelease  = newScript("waiters_common", "tell", "waiters_release", "rw_common", "rw_next", "rw_release")
	rwWithdraw = newScript("waiters_common", "tell", "waiters_release", "rw_common", "rw_next", "rw_withdraw")
	rwForget   = newScript("rw_common", "rw_forget")
	rwPeek     = newScript("rw_common", "rw_peek")
)

// claimTTL is how long the claim of a waiting writer keeps out new readers and other
// writers unless it is renewed. rw_next.lua contains it, too.
const claimTTL = 750 * time.Millisecond

// claimPolls is the number of processes at the head of the queue of writers that look by
// themselves: the first one every claimTTL/3, and the next ones each claimTTL/3 later. They
// find out that the process before them does not use its claim.
const claimPolls = 8

// rwOwner is an owner of the lock of [Client.RW].
type rwOwner struct {
	reader, writer rwSide
}

// rwSide is one side of an owner.
type rwSide struct {
	base
	rwProtocol *rwProtocol // equals base.protocol
	held       currentHold
}

// RW returns a new owner of the read/write lock with that name, as its two sides: many readers or
// one writer hold the lock. It sends nothing.
//
// The owner is the two returned values, as with [Client.Reentrant]. It may acquire a side again
// that it holds, and does not wait behind other waiters then. While it holds the write
// lock it may also acquire the read lock, and keep that after it has unlocked the
// write lock: no other writer gets in between. The opposite order returns [ErrArgument]:
// two readers that want to write would wait for each other forever. The values of another
// call are another owner.
//
// No client starves. While a writer waits in Lock, new readers are refused. When a
// writer leaves, the readers that waited for it go first. Processes that wait to write
// are served in the order in which they came; a writer with [Options.Wait] comes after
// them. A waiting writer that dies keeps readers out for at most 0.75 s; waiting readers
// that die keep a writer out for at most 0.1 s.
//
// A release wakes one process that waits to write, however many wait, and a writer that
// leaves wakes all processes that wait to read: all of them may enter. The woken writer
// has the claim to be next, so no other client acquires the lock before it. If its
// process is stopped, the others are delayed by up to 1 s, or by 3 s if several are. A
// process that has died delays them only on a cluster, or if it dies after it was woken.
//
// Every holder has its own deadline on the server. A dead reader keeps writers out
// until its own lease has expired, no matter how many other readers come, go and
// renew. An attempt of a writer removes up to 100 dead readers per round trip.
//
// The fence of a writer is larger than all earlier ones. The fence of a reader is that
// of the last writer; 0 if there was none. On the server the lock is a hash;
// rw_common.lua describes its fields.
func (c *Client) RW(key string, o Options) (reader, writer Locker, err error) {
	b, err := c.newBase(key, o, "a read/write lock")
	if err != nil {
		return nil, nil, err
	}
	rw := &rwOwner{reader: newSide(b, readMode), writer: newSide(b, writeMode)}
	newOwner(&rw.reader.held, &rw.writer.held)
	return rwReader{rw}, rwWriter{rw}, nil
}

func newSide(b base, mode rwMode) rwSide {
	p := newRWProtocol(b.client.core, b.key, mode, b.opts.Fence)
	b.protocol = p
	return rwSide{base: b, rwProtocol: p}
}

// Holder implements [Locker] for both sides.
func (rw *rwOwner) Holder(ctx context.Context) (*HeldError, error) { return rw.writer.Holder(ctx) }

// rwReader is the read side of an owner.
type rwReader struct{ *rwOwner }

func (rw rwReader) TryLock(ctx context.Context) (*Lease, error) {
	return rw.reader.tryLock(ctx, &request{try: rw.attempt, ticket: noTicket})
}

func (rw rwReader) Lock(ctx context.Context) (*Lease, error) {
	r := &request{try: rw.attempt, owner: rw.reader.held.owner, shared: true}
	lease, err := rw.reader.lock(ctx, r)
	if err != nil && r.ticket > 0 {
		rw.reader.rwProtocol.forget(r.ticket)
	}
	return lease, err
}

// attempt asks once. A waiting reader that has not asked before, but waited behind another
// reader of its process when the lock became free, has the ticket of that one.
func (rw rwReader) attempt(ctx context.Context, r *request) (*Lease, error) {
	if r.ticket == 0 && r.queue != nil {
		r.ticket = r.queue.readersTicket(r.began)
	}
	return rw.reader.held.enterOrAcquire(ctx, rw.reader.key, r, func() (*hold, error) {
		ownWriteToken := ""
		if h := rw.writer.held.get(); h != nil {
			ownWriteToken = h.token
		}
		return rw.reader.acquireOnceBy(ctx, r, func(token string) future {
			return &readAttempt{rw.reader.rwProtocol.read(ctx, token, rw.reader.opts.keyTTL(), 1, ownWriteToken, r.ticket), r}
		})
	})
}

// noTicket is the ticket of a reader that does not wait.
const noTicket = -1

// readAttempt is an attempt of a reader.
type readAttempt struct {
	*call
	request *request
}

// wait implements [future]. It notes the ticket of a waiting reader that is refused.
func (a *readAttempt) wait(ctx context.Context) (any, error) {
	reply, err := a.call.wait(ctx)
	if fields, _ := reply.([]any); len(fields) == 3 {
		a.request.ticket, _ = fields[2].(int64)
		if a.request.queue != nil {
			a.request.queue.setReadersTicket(a.request.ticket)
		}
	}
	return reply, err
}

// rwWriter is the write side of an owner.
type rwWriter struct{ *rwOwner }

func (rw rwWriter) TryLock(ctx context.Context) (*Lease, error) {
	return rw.writer.tryLock(ctx, &request{try: func(ctx context.Context, r *request) (*Lease, error) { return rw.tryWrite(ctx, r, "") }})
}

// Lock implements [Locker]. While it waits, its own claim or that of a writer before it
// keeps new readers and other writers out.
func (rw rwWriter) Lock(ctx context.Context) (*Lease, error) {
	r := &request{try: rw.tryWaiting, owner: rw.writer.held.owner, noHandOver: true}
	writers := &rw.writer.client.writers
	writers.add(rw.writer.key)
	lease, err := rw.writer.lock(ctx, r)
	writers.remove(rw.writer.key, func() {
		if err != nil && r.attempts > 0 {
			rw.writer.rwProtocol.writers.giveUp(rw.writer.client.process)
		}
	})
	return lease, err
}

// waitingWriters counts the waiting writers of a process by key. They share one claim.
type waitingWriters struct {
	mu    sync.Mutex
	byKey map[string]int
}

func (w *waitingWriters) add(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byKey == nil {
		w.byKey = make(map[string]int)
	}
	w.byKey[key]++
}

// remove removes one writer. After the last one it calls withdraw, before a new one
// can be added.
func (w *waitingWriters) remove(key string, withdraw func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKey[key]--
	if w.byKey[key] == 0 {
		delete(w.byKey, key)
		withdraw()
	}
}

// tryWaiting asks once and, if it is refused, claims to be the next writer or registers.
func (rw rwWriter) tryWaiting(ctx context.Context, r *request) (*Lease, error) {
	// Only the first writer of the process's queue talks to the server, and it does so for all. With a claim
	// per writer, the queue could wake a writer that the claim of a later one keeps out.
	lease, err := rw.tryWrite(ctx, r, rw.writer.client.owner+"~"+processOf(rw.writer.client.id))
	r.pollEvery = claimTTL / 3
	if r.queue != nil {
		r.pollEvery = r.queue.registrationNow().claimPoll()
	}
	return lease, err
}

func (rw rwWriter) tryWrite(ctx context.Context, r *request, claimID string) (*Lease, error) {
	return rw.writer.held.enterOrAcquire(ctx, rw.writer.key, r, func() (*hold, error) {
		if rw.reader.held.get() != nil {
			return nil, fmt.Errorf("lock: acquire %q: %w", rw.writer.key, errUpgrade)
		}
		ttl := max(claimTTL, 3*rw.writer.opts.Wait.Poll)
		for {
			h, err := rw.writer.acquireOnceBy(ctx, r, func(token string) future {
				return rw.writer.rwProtocol.write(ctx, token, rw.writer.opts.keyTTL(), 1, claimID, ttl, r.queue)
			})
			var refused *HeldError
			if !errors.As(err, &refused) || refused.Token != "" || refused.TTL != 0 { // else there were only more dead readers than one call removes
				return h, err
			}
		}
	})
}

// rwMode is a side of the lock, as the scripts name it.
type rwMode string

const (
	readMode  rwMode = "r"
	writeMode rwMode = "w"
)

// rwProtocol stores one side of the lock in a hash.
type rwProtocol struct {
	transport     transport.Transport
	keys          []string // the lock; its fence, if it has one
	mode          rwMode
	readerChannel string          // tells readers that a writer has left or has stopped waiting
	writers       *scriptProtocol // of the processes that wait to write; its release withdraws one of them
}

var rwWriters = &scripts{release: rwWithdraw}

func newRWProtocol(c *core, key string, mode rwMode, fence bool) *rwProtocol {
	p := &rwProtocol{transport: c.transport, keys: keysOf(key, fence), mode: mode, readerChannel: companionKey(key, "open"),
		writers: newScriptProtocol(rwWriters, c, key, false)}
	p.writers.releaseArgs = []any{p.readerChannel}
	return p
}

// read asks for the read side. ownWriteToken is the token of the owner's own write
// lock, which does not keep the owner out; empty = none. ticket is what an earlier
// refusal has returned: when the owner was refused first, on the server's clock; 0 = it was
// not; noTicket = it does not wait.
func (p *rwProtocol) read(ctx context.Context, token string, ttl time.Duration, entries int, ownWriteToken string, ticket int64) *call {
	return rwRead.send(ctx, p.transport, p.keys, string(readMode), token, ttl.Milliseconds(), entries, ownWriteToken, ticket)
}

// forget ends the wait of a reader that was refused, in the background.
func (p *rwProtocol) forget(ticket int64) {
	c := p.writers.core
	request := rwForget.send(c.alive, p.transport, p.keys[:1], string(readMode), "", ticket, p.readerChannel)
	c.tasks.spawn(func() { _, _ = request.wait(c.alive) })
}

// write asks for the write side. If it is refused and claimID is not empty, a claim
// keeps out new readers and other writers for claimTTL, unless another process is next.
// Then the process registers in q, if its messages can be received there.
func (p *rwProtocol) write(ctx context.Context, token string, ttl time.Duration, entries int, claimID string, claimTTL time.Duration, q *waitQueue) future {
	args := []any{string(writeMode), token, ttl.Milliseconds(), entries, claimID, claimTTL.Milliseconds()}
	if claimID != "" && !p.writers.broadcast {
		args = append(args, p.writers.freeChannel, p.writers.core.process, p.writers.publishCounts())
		if q != nil && q.subscribedBoth() {
			return p.writers.register(token, q, false, func(waiter ...any) *call {
				return rwWrite.send(ctx, p.transport, p.keys, append(args, waiter...)...)
			})
		}
	}
	return rwWrite.send(ctx, p.transport, p.keys, args...)
}

func (p *rwProtocol) acquire(ctx context.Context, token string, ttl time.Duration, entries int) future {
	if p.mode == writeMode {
		return p.write(ctx, token, ttl, entries, "", 0, nil)
	}
	return p.read(ctx, token, ttl, entries, "", noTicket)
}

func (p *rwProtocol) extend(ctx context.Context, t transport.Transport, token string, ttl time.Duration) future {
	return rwExtend.send(ctx, t, p.keys[:1], string(p.mode), token, ttl.Milliseconds())
}

func (p *rwProtocol) release(ctx context.Context, token string, left int) future {
	args := p.writers.appendWakeArgs([]any{string(p.mode), token, left, p.readerChannel}, "")
	return &handover{call: rwRelease.send(ctx, p.transport, p.keys[:1], args...), protocol: p.writers}
}

func (p *rwProtocol) lockKey() string { return p.keys[0] }

func (p *rwProtocol) peek(ctx context.Context) future {
	return rwPeek.send(ctx, p.transport, p.keys[:1], string(p.mode), "")
}

func (p *rwProtocol) channel() string {
	if p.mode == writeMode {
		return p.writers.freeChannel
	}
	return p.readerChannel
}
