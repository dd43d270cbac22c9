package keyspace

import (
	"context"
	"slices"
	"time"
)

// pendingReason is a lock that has lost its holder without an announcement that it is free.
type pendingReason struct {
	conn     *invalidationConn
	mark     int  // once it has come back, the ear has heard all that was said before
	replaced bool // another holder stood there when it was noticed
}

// endReason says what is known of why holds ended that were there before and are
// not any more: Flushed, Evicted, Released, Deleted, Stolen, or nothing. It is not
// sure while it may still be announced; then the lock is to be looked at again.
func (w *Watcher) endReason(ctx context.Context, was, now detection, h changes, evicting *evictionCheck) (why EventKind, sure bool, err error) {
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
		w.noteReleased(was.lock, h.toWaiter[key])
		return Released, true, nil
	case w.missedEvents || allExpiredBy(was.lock, w.reader.now.Add(w.tracking.slack())):
		return "", true, nil
	}
	if evicted, err := evicting.evictedSince(ctx, w); err != nil || evicted && now.lock.Key == "" {
		return Evicted, true, err
	}
	always, announces := w.releaseReported(was.lock)
	if !announces || !always && !hasLiveWaiters(was.lock, w.reader.now) || !w.tracking.hearsReleases(w.reader.formats.byName(was.lock.Format)) {
		return "", true, nil
	}
	d, pending := w.pendingReasons[key]
	switch {
	case !pending:
		w.pendingReasons[key] = pendingReason{w.tracking.conn, w.tracking.sendMark(ctx), wasReplaced(was.lock, now.lock)}
	case d.conn != w.tracking.conn: // what it would have heard is lost
		return "", true, nil
	case d.mark <= w.tracking.markReceived && d.replaced:
		return Stolen, true, nil
	case d.mark <= w.tracking.markReceived:
		return Deleted, true, nil
	}
	w.deadlines.set(key, w.reader.now.Add(releaseGrace))
	return "", false, nil
}

// noteReleased notes that the release of a lock was announced, to all or to one waiter.
func (w *Watcher) noteReleased(l Lock, toWaiter bool) {
	always, known := w.releasesSeen.get(l.ID())
	w.releasesSeen.put(l.ID(), (always || !known) && !toWaiter)
	if format := w.reader.formats.byName(l.Format); format != nil && format.ReleaseChannel != nil && format.ReleaseChannel.ToWaiter == nil {
		w.releasesSeen.put(familyID(l), true)
	}
}

// releaseReported reports whether releases of a lock are announced, and whether that is so
// also while nobody waits. Of a lock that was not seen released yet, others of its
// format and of its family tell, if all releases of that format are announced alike.
func (w *Watcher) releaseReported(l Lock) (always, known bool) {
	if always, known = w.releasesSeen.get(l.ID()); known {
		return always, true
	}
	return w.releasesSeen.get(familyID(l))
}

// familyID stands for all locks of one format and of one family on a server.
func familyID(l Lock) ID {
	return ID{Node: l.Node, DB: l.DB, Key: l.Format + "\x00" + keyFamily(l.Key)}
}

// wasReplaced reports whether an exclusive holder stands where another one stood.
func wasReplaced(was, now Lock) bool {
	before, next := soleHolder(was), soleHolder(now)
	return before != "" && next != "" && before != next && was.Holders[0].Mode != Read && now.Holders[0].Mode != Read
}

// hasLiveWaiters reports whether somebody who is not taken for dead waits for a lock.
func hasLiveWaiters(l Lock, now time.Time) bool {
	return slices.ContainsFunc(l.Waiters, func(w Waiter) bool { return w.Expires.IsZero() || w.Expires.After(now) })
}

// allExpiredBy reports whether all holds of a lock are over by a time.
func allExpiredBy(l Lock, now time.Time) bool {
	return !slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Expires.IsZero() || h.Expires.After(now) })
}

// evictionCheck asks once, and only if it matters, whether the server has thrown
// keys away since it was asked last.
type evictionCheck struct {
	asked   bool
	evicted bool
}

func (e *evictionCheck) evictedSince(ctx context.Context, w *Watcher) (bool, error) {
	if e.asked || w.server.MaxMemory == 0 || w.server.Policy == "" || w.server.Policy == "noeviction" {
		return e.evicted, nil
	}
	p := w.reader.rdb.Pipeline()
	stats := p.Info(ctx, "stats")
	if err := w.reader.send(ctx, "ask for evictions", p); err != nil {
		return false, err
	}
	before := w.server.Evicted
	w.server.describe(stats.Val())
	e.asked, e.evicted = true, w.server.Evicted > before
	return e.evicted, nil
}
