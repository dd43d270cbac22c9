package lock

import (
	"cmp"
	"context"
	"fmt"
)

var (
	semaphoreScripts = &scripts{
		acquire: newScript("waiters_common", "tell", "waiters_release", "waiters_acquire", "semaphore_common", "semaphore_acquire"),
		extend:  newScript("semaphore_common", "semaphore_extend"),
		release: newScript("waiters_common", "tell", "waiters_release", "semaphore_common", "semaphore_release"),
		peek:    newScript("semaphore_common", "semaphore_peek"),
	}
	semaphoreLimit = newScript("waiters_common", "tell", "waiters_release", "semaphore_common", "semaphore_limit")
	semaphoreCount = newScript("semaphore_common", "semaphore_count")
)

// Semaphore is a lock with a limited number of holders. Each Lock and TryLock acquires a
// permit of its own, also for a client that has one: with its own token, deadline
// and renewal. A holder that dies keeps one permit until the TTL of this permit has
// passed. The other permits are not affected. Holders at the same time have no order, so
// there are no fences: a resource would refuse all holders but the last. A Semaphore limits how many holders
// there are at the same time, not how many acquire it per second.
//
// On the server it is a sorted set of the permits with their deadlines, and with the
// limit; semaphore_common.lua describes it. It vanishes with the last permit. A further
// key holds the processes that wait, as for a [Client.Mutex]; another one, which does not
// expire, holds the limit of [Semaphore.SetLimit].
//
// A Semaphore is a [Locker]. The methods of the zero value return [ErrArgument].
type Semaphore struct {
	locker
	scripted  *scriptProtocol // equals base.protocol
	limit     int             // counts if none is stored
	storedKey string          // key of the stored limit; empty = there can be none
}

// Semaphore returns the semaphore with that name, for at most limit holders; key is used
// unchanged. It sends nothing. All clients should use the same limit, at least 1. A client whose
// limit is higher acquires permits up to its own. A limit that was stored by
// [Semaphore.SetLimit] counts instead of limit. [Options.Fence] must be false.
//
// If no permit is free, the error of TryLock names the permit whose deadline is the next. Lock
// waits like that of a [Client.Mutex]: a release wakes one process, the one that has waited
// longest. A process that finds more than one permit free wakes the next process. If a holder
// dies, the process that has waited longest gets the permit when its TTL has passed; if that
// process is stopped, the next one gets it 1 to 2 s later, or up to 7.5 s later if many wait.
func (c *Client) Semaphore(key string, limit int, o Options) (*Semaphore, error) {
	b, err := c.newBase(key, o, "a semaphore", "Fence")
	if err = cmp.Or(err, nameKey(key, checkLimit(limit))); err != nil {
		return nil, err
	}
	p := newScriptProtocol(semaphoreScripts, c.core, key, false)
	stored := companionKey(key, "limit")
	if p.broadcast {
		stored = ""
	}
	p.acquireArgs, p.releaseArgs = []any{limit, stored}, []any{limit}
	b.protocol = p
	s := &Semaphore{locker{base: b, waiting: request{shared: true}}, p, limit, stored}
	s.try = func(ctx context.Context, r *request) (*Lease, error) { return leaseOf(s.acquireOnce(ctx, r)) }
	return s, nil
}

// checkLimit validates the limit of a semaphore.
func checkLimit(limit int) error {
	if limit < 1 {
		return fmt.Errorf("%w: a limit of %d permits; it must be at least 1", ErrArgument, limit)
	}
	return nil
}

// SetLimit stores a limit that counts for all clients, instead of the limit that they
// have passed to [Client.Semaphore]. It does not expire. SetLimit with 0 deletes it; then the
// limit of each client counts again. Lowering the limit takes no permit away: the next acquires
// wait until enough holders have left. Raising it wakes as many waiters as there are new permits.
// A client without permission for the key of the limit uses its own. If ctx ends before the reply,
// the limit may have been stored.
func (s *Semaphore) SetLimit(ctx context.Context, limit int) error {
	const doing = "set the limit of"
	store := 1
	if limit == 0 {
		limit, store = s.limit, 0
	}
	if err := s.check(ctx); err != nil {
		return err
	}
	if err := cmp.Or(checkLimit(limit), s.client.checkCompanions(s.key)); err != nil {
		return fmt.Errorf("lock: %s %q: %w", doing, s.key, err)
	}
	if !s.client.tasks.begin() {
		return describe(doing, s.key, ErrClosed)
	}
	defer s.client.tasks.done()
	p := s.scripted
	keys := []string{s.key, companionKey(s.key, "limit")}
	request := &handover{call: semaphoreLimit.send(ctx, p.transport, keys, p.appendWakeArgs([]any{limit, store}, "")...), protocol: p}
	if _, err := request.wait(ctx); err != nil {
		return describe(doing, s.key, err)
	}
	return nil
}

// Permits returns the number of permits that all clients hold, and the limit that counts for s: the
// one that SetLimit has stored, or else the one that was passed to [Client.Semaphore]. After
// SetLimit has lowered the limit, more may be in use. The answer may be outdated when it arrives:
// use it for messages, not for decisions.
func (s *Semaphore) Permits(ctx context.Context) (inUse, limit int, err error) {
	const doing = "count the permits of"
	if err := s.check(ctx); err != nil {
		return 0, 0, err
	}
	reply, err := semaphoreCount.send(ctx, s.scripted.transport, []string{s.key}, s.limit, s.storedKey).wait(ctx)
	if err != nil {
		return 0, 0, describe(doing, s.key, err)
	}
	counts, _ := reply.([]any)
	if len(counts) != 2 {
		return 0, 0, describe(doing, s.key, errUnexpectedReply)
	}
	permits, _ := counts[0].(int64)
	counted, _ := counts[1].(int64)
	return int(permits), int(counted), nil
}
