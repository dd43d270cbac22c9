package classic

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	countedRenew = script("counted_renew")
	compareDel   = script("compare_del")
)

// Counted is the form of the fourth article, a wrapper of a correct mutex (SET NX PX with a
// token, compare-and-delete in Lua). It makes the mutex reentrant with a counter of entries
// in the process, and renews it [Options.Renewals] times, so that a runaway job does not
// hold it forever. The owner is the Counted value.
//
// The flaw: exclusion breaks after one TTL, however many renewals there are. The first one
// comes at once, and each further one a whole TTL later, when the lock has just expired.
// Another client acquires it, and nothing informs the holder. The counter does not ask the
// server: it lets the owner in again beside the other client. Only [Counted.IsLocking] asks.
// And one flag says that renewals go on, for all keys: the unlock of one key ends the
// renewals of the others. TestRenewalsComeTooLate, TestTheCounterOutlivesTheKey,
// TestWhatACountedLockSends and the scene counted show it.
//
// The Reentrant of package lock is sound. Its Renew.Max is such a limit, too, but its
// leases and their contexts end before the lock expires, and an owner whose lease has
// ended must ask the server.
type Counted struct {
	party
	renewals int
	renewing *atomic.Bool // of all keys

	mu   sync.Mutex
	held *tenure // nil = the counter is 0
}

// NewCounted returns a new owner's view of the lock; key is used unchanged.
func NewCounted(rdb Client, key string, o Options) *Counted {
	return &Counted{party: newParty(rdb, key, o), renewals: o.Renewals, renewing: new(atomic.Bool)}
}

// With returns the owner's view of another lock.
func (l *Counted) With(key string) *Counted {
	other := &Counted{party: l.party, renewals: l.renewals, renewing: l.renewing}
	other.key = key
	return other
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
	l.renewing.Store(true)
	go l.keep(keeping, t)
	return &entry{lock: l, tenure: t}, nil
}

// IsLocking reports whether the server says that this owner holds the lock.
func (l *Counted) IsLocking(ctx context.Context) (bool, error) {
	holder, err := l.rdb.Get(ctx, l.key).Result()
	if errors.Is(err, redis.Nil) {
		err = nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil && holder == l.held.token, err
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
	l.renewing.Store(false)
	if l.held == t {
		l.held = nil
	}
	return true
}

// keep renews the lock, and sleeps for its TTL after each renewal. In the article requests
// take more than the millisecond in which Redis would still have the key.
func (l *Counted) keep(ctx context.Context, t *tenure) {
	for range l.renewals {
		if ctx.Err() != nil || !l.renewing.Load() || l.between(ctx, BeforeRenew) != nil {
			return
		}
		deadline := l.deadline()
		if ours, _ := countedRenew.Run(ctx, l.rdb, []string{l.key}, t.token, l.ttl.Milliseconds()).Bool(); ours {
			l.mu.Lock()
			t.deadline = deadline
			l.mu.Unlock()
		} // else nothing informs the holder
		select {
		case <-ctx.Done():
		case <-time.After(l.ttl + time.Millisecond):
		}
	}
}

// entry is the Hold of one entry.
type entry struct {
	lock   *Counted
	tenure *tenure
	over   atomic.Bool
}

// Deadline implements [Hold]. A renewal changes it.
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
	return e.lock.unlocked(compareDel.Run(ctx, e.lock.rdb, []string{e.lock.key}, e.tenure.token).Int64())
}
