package classic

import (
	"cmp"
	"context"
	_ "embed"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed counted_renew.lua
	countedRenewSource string

	countedRenew = redis.NewScript(countedRenewSource)
)

// Counted is a sound mutex (SET NX PX with a token, compare and delete in Lua)
// in a wrapper that makes it reentrant by counting entries in the process, and
// renews it every third of its TTL, a bounded number of times: a runaway job
// must not hold it for ever. Whoever is given the same value is the same owner.
//
// What breaks is exclusion, when the bound is reached or the key is lost in
// another way. The lock lapses and somebody else takes it, but nothing tells the
// holder; and the counter, which asks nobody, goes on to say that the lock is
// held, and lets the owner in again beside the other. Hold one for longer than
// its renewals last, take it with a second client, and ask both [Counted.IsLocking].
//
// Sound is the Reentrant of package lock, whose Renew.Max is such a bound, too:
// its leases end, with their contexts, before the lock does, and an owner whose
// lease is over has to ask the server like anybody else.
type Counted struct {
	party
	renewals int

	mu   sync.Mutex
	held *tenure // nil = the counter is at zero
}

var _ Lock = (*Counted)(nil)

const defaultRenewals = 4

// NewCounted returns a new owner's view of the lock; key is used as it is.
func NewCounted(rdb redis.UniversalClient, key string, o Options) *Counted {
	return &Counted{party: newParty(rdb, key, o), renewals: cmp.Or(o.Renewals, defaultRenewals)}
}

// tenure is the time from the first entry to the last exit.
type tenure struct {
	token string
	stop  context.CancelFunc // ends the renewal

	// Counted.mu guards what follows.
	entries  int
	deadline time.Time
}

// TryLock implements [Lock]. It sends nothing if the counter says that the lock
// is held by this owner.
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

// IsLocking reports whether this owner holds the lock, as far as its counter
// knows.
func (l *Counted) IsLocking() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.held != nil
}

// enter counts a further entry; nil if there is no first one.
func (l *Counted) enter() *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		return nil
	}
	l.held.entries++
	return &entry{lock: l, tenure: l.held}
}

// leave counts an exit and reports whether it was the last.
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

// keep renews the lock until the last exit, or the bound is reached, or it is
// lost. An unanswered renewal counts as one.
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
			return // and nobody is told
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

// Deadline implements [Hold]. It moves with each renewal.
func (e *entry) Deadline() time.Time {
	e.lock.mu.Lock()
	defer e.lock.mu.Unlock()
	return e.tenure.deadline
}

// Unlock implements [Hold]. All but the last exit change the counter alone.
func (e *entry) Unlock(ctx context.Context) error {
	if e.over.Swap(true) {
		return e.lock.unlocked(0, ErrLost)
	}
	if !e.lock.leave(e.tenure) {
		return nil
	}
	return e.lock.compareAndDelete(ctx, e.tenure.token)
}
