package keyspace

import (
	"context"
	"slices"
	"time"
)

// doubt is a lock that has lost its holder without an announcement that it is free.
type doubt struct {
	ear   *ear
	mark  int  // once it has come back, the ear has heard all that was said before
	taken bool // another holder stood there when it was noticed
}

// witness says what is known of why holds ended that were there before and are
// not any more: Flushed, Evicted, Released, Deleted, Stolen, or nothing. It is not
// sure while it may still be announced; then the lock is to be looked at again.
func (w *Watcher) witness(ctx context.Context, was, now found, h heard, evicting *evictions) (why EventKind, sure bool, err error) {
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
		w.announces(was.lock, h.toWaiter[key])
		return Released, true, nil
	case w.blind || overdueBy(was.lock, w.reader.now.Add(w.track.slack())):
		return "", true, nil
	}
	if evicted, err := evicting.happened(ctx, w); err != nil || evicted && now.lock.Key == "" {
		return Evicted, true, err
	}
	always, announces := w.announcing(was.lock)
	if !announces || !always && !awaited(was.lock, w.reader.now) || !w.track.hears(w.reader.formats.named(was.lock.Format)) {
		return "", true, nil
	}
	d, doubted := w.doubts[key]
	switch {
	case !doubted:
		w.doubts[key] = doubt{w.track.ear, w.track.mark(ctx), supplanted(was.lock, now.lock)}
	case d.ear != w.track.ear: // what it would have heard is lost
		return "", true, nil
	case d.mark <= w.track.passed && d.taken:
		return Stolen, true, nil
	case d.mark <= w.track.passed:
		return Deleted, true, nil
	}
	w.agenda.put(key, w.reader.now.Add(doubtFor))
	return "", false, nil
}

// announces notes that the release of a lock was announced, to all or to one waiter.
func (w *Watcher) announces(l Lock, toWaiter bool) {
	always, known := w.announced.find(l.ID())
	w.announced.put(l.ID(), (always || !known) && !toWaiter)
	if format := w.reader.formats.named(l.Format); format != nil && format.ReleaseChannel != nil && format.ReleaseChannel.ToWaiter == nil {
		w.announced.put(kindred(l), true)
	}
}

// announcing reports whether releases of a lock are announced, and whether that is so
// also while nobody waits. Of a lock that was not seen released yet, others of its
// format and of its family tell, if all releases of that format are announced alike.
func (w *Watcher) announcing(l Lock) (always, known bool) {
	if always, known = w.announced.find(l.ID()); known {
		return always, true
	}
	return w.announced.find(kindred(l))
}

// kindred stands for all locks of one format and of one family on a server.
func kindred(l Lock) ID { return ID{Node: l.Node, DB: l.DB, Key: l.Format + "\x00" + family(l.Key)} }

// supplanted reports whether an exclusive holder stands where another one stood.
func supplanted(was, now Lock) bool {
	before, next := soleHolder(was), soleHolder(now)
	return before != "" && next != "" && before != next && was.Holders[0].Mode != Read && now.Holders[0].Mode != Read
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

func (e *evictions) happened(ctx context.Context, w *Watcher) (bool, error) {
	if e.asked || w.server.MaxMemory == 0 || w.server.Policy == "" || w.server.Policy == "noeviction" {
		return e.some, nil
	}
	p := w.reader.rdb.Pipeline()
	stats := p.Info(ctx, "stats")
	if err := w.reader.send(ctx, "ask for evictions", p); err != nil {
		return false, err
	}
	before := w.server.Evicted
	w.server.describe(stats.Val())
	e.asked, e.some = true, w.server.Evicted > before
	return e.some, nil
}
