package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// claimTTL is how long a waiting writer keeps new readers and other writers out
// without asking again.
const claimTTL = 3 * time.Second

// RW is a lock that many readers hold together, or one writer alone. Each of its
// sides, [RW.Reader] and [RW.Writer], is a [Locker].
//
// The owner is the RW itself, as with [Reentrant]: it may take what it holds
// again, and is let in past everybody who waits. Within its own write lock it
// may also read, and go on reading when the write lock is unlocked: no other
// writer gets in between. The other way there is only [ErrUpgrade]. A further
// RW for the same key is another owner.
//
// Nobody starves. A writer that waits in Lock lets no new readers in, and when a
// writer leaves, the readers who waited for it go first. Among writers there is
// no order. A waiting writer that dies holds the readers off for 3 s at most,
// waiting readers that die a writer for a tenth of a second.
//
// Every holder has a deadline of its own on the server: a reader that died is in
// a writer's way for the rest of its own lease and no longer, however many
// others come, go, and renew theirs. After thousands of dead readers a writer's
// attempt takes more than one round trip: each removes a hundred.
//
// A writer's fence is larger than all before it; a reader's is that of the last
// writer, 0 if there was none. On the wire the lock is a hash, see rw_common.lua.
type RW struct {
	reader, writer rwSide
	entryGate      gate
}

// rwSide is what an owner has of one of the two locks.
type rwSide struct {
	base
	rwProtocol *rwProtocol // the target's form
	held       currentHold
}

// RW returns a new owner of the read/write lock of that name. It sends nothing.
// Options that cannot work are reported as [ErrArgument] by Lock and TryLock.
func (c *Client) RW(key string, o Options) *RW {
	reader, writer := newRWProtocol(c.transport, key, readMode, o.Fence), newRWProtocol(c.transport, key, writeMode, o.Fence)
	return &RW{
		reader:    rwSide{base: c.newBase(key, o, reader), rwProtocol: reader},
		writer:    rwSide{base: c.newBase(key, o, writer), rwProtocol: writer},
		entryGate: newGate(),
	}
}

// Reader returns the side that is held together with other readers.
func (rw *RW) Reader() Locker { return rwReader{rw} }

// Holder returns the writer or, if there is none, one of the readers, nil if nobody
// holds the lock. It takes nothing.
func (rw *RW) Holder(ctx context.Context) (*HeldError, error) { return rw.writer.Holder(ctx) }

// Writer returns the side that is held alone.
func (rw *RW) Writer() Locker { return rwWriter{rw} }

// holdsAny reports whether the owner holds either side.
func (rw *RW) holdsAny() bool {
	return rw.reader.held.get() != nil || rw.writer.held.get() != nil
}

// acquire takes a side for its owner: again if it has it, else by what ask does.
func (rw *RW) acquire(ctx context.Context, r *request, side *rwSide, ask func() (*hold, error)) (*Lease, error) {
	if err := rw.entryGate.enter(ctx); err != nil {
		return nil, describe("acquire", side.key, err)
	}
	defer rw.entryGate.leave()
	if h := side.held.get(); h != nil {
		lease, err := h.enterAgain(ctx, r)
		if err == nil || h.valid() {
			return lease, err
		}
	}
	h, err := ask()
	if err != nil {
		return nil, err
	}
	side.held.set(h)
	return newEntry(h), nil
}

// rwReader is the reading side of an owner.
type rwReader struct{ *RW }

func (rw rwReader) TryLock(ctx context.Context) (*Lease, error) {
	return rw.reader.tryLock(ctx, &request{try: rw.tryOnce})
}

func (rw rwReader) Lock(ctx context.Context) (*Lease, error) {
	if rw.holdsAny() { // not behind those of our own process who wait for us
		if lease, err := rw.TryLock(ctx); !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	return rw.reader.lock(ctx, &request{try: rw.tryWaiting, shared: true})
}

// tryOnce asks once, for somebody who does not wait.
func (rw rwReader) tryOnce(ctx context.Context, r *request) (*Lease, error) {
	return rw.attempt(ctx, r, -time.Millisecond)
}

// tryWaiting asks once, for somebody who has been waiting since the request began.
func (rw rwReader) tryWaiting(ctx context.Context, r *request) (*Lease, error) {
	return rw.attempt(ctx, r, time.Since(r.began))
}

func (rw rwReader) attempt(ctx context.Context, r *request, waited time.Duration) (*Lease, error) {
	return rw.acquire(ctx, r, &rw.reader, func() (*hold, error) {
		ownWriteToken := "" // our own write lock
		if h := rw.writer.held.get(); h != nil {
			ownWriteToken = h.token
		}
		return rw.reader.acquireBy(ctx, r, func(token string) future {
			return rw.reader.rwProtocol.read(ctx, token, rw.reader.opts.TTL, 1, ownWriteToken, waited)
		})
	})
}

// rwWriter is the writing side of an owner.
type rwWriter struct{ *RW }

func (rw rwWriter) TryLock(ctx context.Context) (*Lease, error) {
	return rw.writer.tryLock(ctx, &request{try: rw.tryOnce})
}

// Lock keeps others out from its first refusal on, until it has had its turn or
// ctx ends.
func (rw rwWriter) Lock(ctx context.Context) (*Lease, error) {
	if rw.holdsAny() { // not behind those of our own process who wait for us
		if lease, err := rw.TryLock(ctx); !errors.Is(err, ErrHeld) {
			return lease, err
		}
	}
	r := &request{try: rw.tryWaiting, pollEvery: claimTTL / 3}
	writers := &rw.writer.client.writers
	writers.add(rw.writer.key)
	lease, err := rw.writer.lock(ctx, r)
	writers.remove(rw.writer.key, func() {
		if err != nil && r.attempts > 0 {
			rw.withdraw()
		}
	})
	return lease, err
}

// waitingWriters counts, by key, those of a process that wait to write. They share a claim.
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

// remove counts one out. After the last one it calls withdraw, before another comes.
func (w *waitingWriters) remove(key string, withdraw func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byKey[key]--
	if w.byKey[key] == 0 {
		delete(w.byKey, key)
		withdraw()
	}
}

// tryOnce asks once, for somebody who does not wait.
func (rw rwWriter) tryOnce(ctx context.Context, r *request) (*Lease, error) {
	return rw.attempt(ctx, r, "")
}

// tryWaiting asks once and, if it is refused, claims to be the next.
func (rw rwWriter) tryWaiting(ctx context.Context, r *request) (*Lease, error) {
	return rw.attempt(ctx, r, rw.claimID())
}

func (rw rwWriter) attempt(ctx context.Context, r *request, claimID string) (*Lease, error) {
	return rw.acquire(ctx, r, &rw.writer, func() (*hold, error) {
		if rw.reader.held.get() != nil {
			return nil, fmt.Errorf("lock: acquire %q: %w", rw.writer.key, ErrUpgrade)
		}
		ttl := max(claimTTL, 3*rw.writer.opts.Wait.Poll)
		for {
			h, err := rw.writer.acquireBy(ctx, r, func(token string) future {
				return rw.writer.rwProtocol.write(ctx, token, rw.writer.opts.TTL, 1, claimID, ttl)
			})
			if !mustRetry(err) {
				return h, err
			}
		}
	})
}

// mustRetry reports whether a writer was refused only because there were too
// many dead readers to be removed at once.
func mustRetry(err error) bool {
	var held *HeldError
	return errors.As(err, &held) && held.Token == "" && held.TTL == 0
}

// claimID is the id under which the process waits. Its writers stand in one
// line, and whoever is at its front acts for all: if each had a claim of its
// own, the line could wake one whom the claim of another behind it keeps out.
func (rw rwWriter) claimID() string {
	return rw.writer.client.owner + "~" + rw.writer.client.id
}

// withdraw takes the claim back, in the background. If it does not arrive, the
// claim ends by itself.
func (rw rwWriter) withdraw() {
	c := rw.writer.client
	withdrawal := rw.writer.rwProtocol.withdraw(c.alive, rw.claimID())
	c.tasks.spawn(func() {
		ctx, cancel := context.WithTimeout(c.alive, claimTTL)
		defer cancel()
		_, _ = withdrawal.wait(ctx)
	})
}
