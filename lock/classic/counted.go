package classic

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

var countedRenew = script("counted_renew")

// Counted is a correct mutex (SET NX PX with a token, compare-and-delete in Lua) in a
// wrapper. The wrapper makes it reentrant with a counter of entries in the process,
// and renews it every third of its TTL. The number of renewals is limited, so that a
// runaway job does not hold it forever. The owner is the Counted value.
//
// The flaw: exclusion breaks when the limit is reached or the key is lost. The lock
// expires and another client acquires it, but nothing informs the holder. The counter
// does not ask the server: it still says that the lock is held, and lets the owner in
// again beside the other client. To see it, hold a lock for longer than its renewals
// last, acquire it with a second client, and call [Counted.IsLocking] of both.
//
// The Reentrant of package lock is sound. Its Renew.Max is such a limit, too, but its
// leases and their contexts end before the lock expires, and an owner whose lease has
// ended must ask the server.
type Counted struct {
	party
	renewals int

	mu   sync.Mutex
	held *tenure // nil = the counter is 0
}

var _ Lock = (*Counted)(nil)

const defaultRenewals = 4

// NewCounted returns a new owner's view of the lock; key is used unchanged.
func NewCounted(rdb Client, key string, o Options) *Counted {
	return &Counted{party: newParty(rdb, key, o), renewals: cmp.Or(o.Renewals, defaultRenewals)}
}

// tenure is the time from the first entry to the last exit.
type tenure struct {
	token string
	stop  context.CancelFunc // ends the renewal

	// Guarded by Counted.mu.
	entries  int
	deadline time.Time
}

// TryLock implements [Lock]. It sends nothing if the counter says that this owner
// holds the lock.
func (l *Counted) TryLock(ctx context.Context) (Hold, error) {
	if e := l.enter(); e != nil {
		return e, nil
	}
	token, deadline := newToken(), l.deadline()
	taken, err := l.rdb.SetNX(ctx, l.key, token, l.ttl).Result()
	if err != nil || !taken {
		return nil, l.refused(err)
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	t := &tenure{token: token, stop: stop, entries: 1, deadline: deadline}
	l.mu.Lock()
	l.held = t
	l.mu.Unlock()
	go l.keep(keeping, t)
	return &entry{lock: l, tenure: t}, nil
}

// IsLocking reports whether this owner holds the lock, according to the counter.
func (l *Counted) IsLocking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil
}

// enter adds an entry. It returns nil if there is none yet.
func (l *Counted) enter() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return nil
	}
	l.held.entries++
	return &entry{lock: l, tenure: l.held}
}

// leave removes an entry and reports whether it was the last.
func (l *Counted) leave(t *tenure) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.entries--
	if t.entries > 0 {
		return false
	}
	t.stop()
	if l.held == t {
		l.held = nil
	}
	return true
}

// keep renews the lock until the last exit, the limit, or the loss of the lock. A
// renewal without a reply counts.
func (l *Counted) keep(ctx context.Context, t *tenure) {
	if l.renewals < 0 {
		return
	}
	tick := time.NewTicker(l.ttl / 3)
	defer tick.Stop()
	for range l.renewals {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if l.between(ctx, BeforeRenew) != nil {
			return
		}
		deadline := l.deadline()
		ours, err := countedRenew.Run(ctx, l.rdb, []string{l.key}, t.token, l.ttl.Milliseconds()).Bool()
		if err != nil {
			continue
		}
		if !ours {
			return // nothing informs the holder
		}
		l.mu.Lock()
		t.deadline = deadline
		l.mu.Unlock()
	}
}

// entry is the Hold of one entry.
type entry struct {
	lock   *Counted
	tenure *tenure
	over   atomic.Bool
}

// Deadline implements [Hold]. Each renewal changes it.
func (e *entry) Deadline() time.Time {
	e.lock.mu.Lock()
	defer e.lock.mu.Unlock()
	return e.tenure.deadline
}

// Unlock implements [Hold]. Every exit but the last only changes the counter.
func (e *entry) Unlock(ctx context.Context) error {
	if e.over.Swap(true) {
		return e.lock.unlocked(0, ErrLost)
	}
	if !e.lock.leave(e.tenure) {
		return nil
	}
	return e.lock.compareAndDelete(ctx, e.tenure.token)
}
