package keyspace

import (
	"context"
	"slices"
	"time"
)

// witness says what is known of why holds ended that were there before and are
// not any more: Flushed, Evicted, Released, Deleted, or nothing. It is not sure
// while it may still be announced; then the lock is to be looked at again.
func (f *Follower) witness(ctx context.Context, was, now found, h heard, evicting *evictions) (why EventKind, sure bool, err error) {
	key := was.lock.Key
	gone := slices.ContainsFunc(was.lock.Holders, func(h Holder) bool {
		_, stays := now.lock.holder(h.ID)
		return !stays
	})
	switch {
	case !gone:
		return "", true, nil
	case h.flushed && now.lock.Key == "":
		return Flushed, true, nil
	case h.evicted[key]:
		return Evicted, true, nil
	case h.released[key]:
		always, known := f.announced.find(was.lock.ID())
		f.announced.put(was.lock.ID(), (always || !known) && !h.toWaiter[key])
		return Released, true, nil
	case f.blind || overdueBy(was.lock, f.reader.now.Add(f.track.slack())):
		return "", true, nil
	}
	if evicted, err := evicting.happened(ctx, f); err != nil || evicted && now.lock.Key == "" {
		return Evicted, true, err
	}
	always, announces := f.announced.find(was.lock.ID())
	if !announces || !always && !awaited(was.lock, f.reader.now) || !f.track.hears(f.reader.formats.named(was.lock.Format)) {
		return "", true, nil
	}
	until, doubted := f.doubts[key]
	switch {
	case !doubted:
		f.doubts[key] = f.reader.now.Add(doubtFor)
		f.agenda.put(key, f.doubts[key])
		return "", false, nil
	case f.reader.now.Before(until):
		return "", false, nil
	}
	return Deleted, true, nil
}

// awaited reports whether somebody who is not taken for dead waits for a lock.
func awaited(l Lock, now time.Time) bool {
	return slices.ContainsFunc(l.Waiters, func(w Waiter) bool { return w.Expires.IsZero() || w.Expires.After(now) })
}

// overdueBy reports whether all holds of a lock are over by a time.
func overdueBy(l Lock, now time.Time) bool {
	return !slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Expires.IsZero() || h.Expires.After(now) })
}

// evictions asks once, and only if it matters, whether the server has thrown
// keys away since it was asked last.
type evictions struct {
	asked bool
	some  bool
}

func (e *evictions) happened(ctx context.Context, f *Follower) (bool, error) {
	if e.asked || f.server.MaxMemory == 0 || f.server.Policy == "" || f.server.Policy == "noeviction" {
		return e.some, nil
	}
	p := f.reader.rdb.Pipeline()
	stats := p.Info(ctx, "stats")
	if err := f.reader.send(ctx, "ask for evictions", p); err != nil {
		return false, err
	}
	before := f.server.Evicted
	f.server.describe(stats.Val())
	e.asked, e.some = true, f.server.Evicted > before
	return e.some, nil
}
