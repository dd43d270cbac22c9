package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"locktop/keyspace"
)

// refresh reads the locks again that may have changed.
func (w *Watcher) refresh(ctx context.Context, all bool) error {
	if err := w.verifyServer(ctx); err != nil {
		return err
	}
	c := w.tracking.takeChanges()
	if w.failures.missedEvents || c.flushed || len(w.locks.replaced) > 0 && w.replication.sampledAt.IsZero() {
		if err := w.detectReplaced(ctx); err != nil {
			w.tracking.requeue(c)
			return err
		}
	}
	now := w.serverNow()
	keys := w.locks.deadlines.popDue(now)
	// All known locks are read if changes are not, or not reliably, reported.
	every := map[keyspace.WatchMode]time.Duration{keyspace.Polling: pollEvery, keyspace.Notifications: checkEvery}[w.tracking.mode()]
	pollDue := every > 0 && time.Since(w.times.polledAt) >= every
	switch {
	case all, w.failures.missedEvents, c.flushed, w.tracking.resync, pollDue:
		w.times.polledAt = time.Now()
		for key := range w.locks.known {
			keys = append(keys, key)
		}
	default:
		keys = append(keys, w.tracking.uncoveredKeys(w.locks.known)...)
	}
	keys = append(keys, c.keys...)
	if err := w.refreshKeys(ctx, w.ownersOf(keys), c); err != nil {
		w.tracking.requeue(c) // so that the changes are not lost
		return err
	}
	if c.flushed {
		w.addNotice(keyspace.ServerFlushed, "a database was emptied")
	}
	w.tracking.resync = false
	w.times.lag.record(c)
	return nil
}

// verifyServer checks after a disconnect, also of a connection of the pool, that the server is the
// same process. On another process, the reasons of ended holds are unknown. After an outage,
// detectReplaced looks at the server.
func (w *Watcher) verifyServer(ctx context.Context) error {
	w.tracking.reap()
	dials := w.reader.conn.dials()
	if w.failures.missedEvents {
		w.tracking.verifiedDials = dials
	}
	if !w.tracking.disconnected && dials == w.tracking.verifiedDials {
		return nil
	}
	w.tracking.disconnected, w.tracking.verifiedDials = false, dials
	return w.reader.conn.checkRunID(ctx, w.server.info.RunID)
}

// ownersOf returns the distinct locks that keys belong to.
func (w *Watcher) ownersOf(keys []string) []string {
	seen := make(map[string]bool, len(keys))
	var locks []string
	for _, key := range keys {
		if owner, beside := w.locks.companions[key]; beside {
			key = owner
		}
		if !seen[key] {
			seen[key] = true
			locks = append(locks, key)
		}
	}
	return locks
}

// refreshKeys reads known and unknown keys and reconciles the result.
func (w *Watcher) refreshKeys(ctx context.Context, keys []string, c changes) error {
	all := make([]candidate, 0, len(keys))
	var unknown []string
	for _, key := range keys {
		if k, known := w.locks.known[key]; known {
			all = append(all, candidate{name: k.name, typ: k.typ})
		} else if w.worthChecking(key) {
			unknown = append(unknown, key)
		}
	}
	asked := w.reader.conn.cost.Commands
	more, err := w.fetchTypes(ctx, unknown)
	if err != nil {
		return err
	}
	began := time.Now()
	locks, err := w.reader.detect(ctx, append(all, more...))
	if err != nil {
		return err
	}
	w.noteRead(began)
	if w.reader.conn.cost.Commands > asked { // otherwise the time is old
		// A reported time is always late, so the largest offset of the server's clock is the best.
		offset, was := time.Until(w.reader.conn.now), w.times.clockOffset
		if was == 0 || offset >= was || was-offset >= time.Since(began)+time.Second {
			w.times.clockOffset = offset
		}
		if err := w.verifyServer(ctx); err != nil {
			return err
		}
	}
	for _, key := range w.reader.notLocks {
		w.locks.ignored[key] = began
	}
	found := make(map[string]*candidate, len(locks))
	for i := range locks {
		l := &locks[i]
		if key := l.lock.Key; l.standsIn() && !slices.Contains(keys, key) {
			keys = append(slices.Clip(keys), key)
		}
		found[l.lock.Key] = l
	}
	if err := w.readOtherKeys(ctx, keys, found); err != nil {
		return err
	}
	w.locks.touch(slices.Values(keys), w.reader.conn.now)
	return w.reconcile(ctx, keys, found, c)
}

// readOtherKeys adds the known locks that were not found under the key that they were last
// read from, and are under another: a lock that was released while clients wait in its
// queue, or that the first of them has acquired.
func (w *Watcher) readOtherKeys(ctx context.Context, keys []string, found map[string]*candidate) error {
	var others []candidate
	var own []string
	for _, key := range keys {
		was, known := w.locks.known[key]
		_, exists := found[key]
		switch {
		case !known || exists:
		case was.standsIn():
			own = append(own, key)
		case len(was.lock.Waiters) > 0:
			others = append(others, standIns(w.reader.formats, key)...)
		}
	}
	more, err := w.fetchTypes(ctx, own)
	if err != nil || len(others)+len(more) == 0 {
		return err
	}
	unread := w.reader.unread
	all, err := w.reader.detect(ctx, append(others, more...))
	maps.Copy(w.reader.unread, unread)
	for i := range all {
		found[all[i].lock.Key] = &all[i]
	}
	return err
}

// reconcile compares what was read with what is known, in the order of keys.
func (w *Watcher) reconcile(ctx context.Context, keys []string, read map[string]*candidate, c changes) error {
	evictions := new(evictionCheck)
	var events []keyspace.Event // of one key; reused
	w.dropMoved()
	for _, key := range keys {
		was, known := w.locks.known.get(key)
		now, exists := none, read[key] != nil
		if exists {
			now = *read[key]
		}
		if !known && exists {
			var ours bool
			if now.lock.Confidence < enough && w.candidates.alike.isCrowded(keyspace.AlikeClass(key)) {
				w.locks.ignored[key] = w.times.readStart
				continue
			}
			if was, known, ours = w.adopt(now); !ours {
				continue
			}
		}
		if !known && !exists {
			continue
		}
		name := cmp.Or(was.name, key)
		if !exists && w.reader.unread[name] == movingKey {
			w.locks.readAgain(key, w.reader.conn.now.Add(pollEvery))
			continue
		}
		if why := w.reader.unread[name]; why != "" && known && !exists {
			w.locks.denied[key] = why
			w.locks.readAgain(key, w.reader.conn.now.Add(checkEvery))
			continue
		}
		delete(w.locks.denied, key)
		reportedAt := cmp.Or(w.endings.pending[key].since, c.of[key].since)
		reason, sure, err := w.endReason(ctx, was, now, c, evictions)
		if err != nil {
			return err
		}
		if !sure {
			continue
		}
		delete(w.endings.pending, key)
		d := w.newDiffer()
		d.Events = events[:0]
		if w.locks.replaced[key] != nil {
			d.Watched, d.MissedEvents = false, true
			delete(w.locks.replaced, key)
		}
		d.Repeated, d.Reason = !c.of[key].repeated.IsZero(), reason
		d.Spread, d.Held = was.spread+now.spread, w.heldFor(was, reportedAt)
		switch {
		case !exists:
			w.removeLock(was, &d)
		default:
			w.updateLock(was, now, known, &d)
		}
		events = d.Events
	}
	return nil
}

// newDiffer returns a differ between the last read and the known locks.
func (w *Watcher) newDiffer() keyspace.Differ {
	return keyspace.Differ{
		At: w.reader.conn.now, Watched: w.scan.complete && !w.failures.missedEvents, MissedEvents: w.failures.missedEvents,
		Slack: w.tracking.slack(), Jitter: w.reader.deadlineJitter(),
	}
}

// noteRead notes that locks were read between since, on the local clock, and now.
func (w *Watcher) noteRead(since time.Time) { w.times.readStart, w.times.readEnd = since, time.Now() }

// heldFor returns how long, at least, the holder of a changed lock had held it under
// its deadline: until the last read, or until shortly before the change was reported,
// if no report can have been lost.
func (w *Watcher) heldFor(was candidate, reportedAt time.Time) time.Duration {
	held := was.lastRead.Sub(was.firstRead)
	if !reportedAt.IsZero() && !w.tracking.resync {
		held = max(held, reportedAt.Sub(was.firstRead)-maxReportDelay)
	}
	return held
}

// keepFirstRead carries over when the current holder was first read under the current
// deadline, and the uncertainty of that deadline.
func (w *Watcher) keepFirstRead(was candidate, now *candidate) {
	now.firstRead, now.lastRead, now.touched = w.times.readEnd, w.times.readStart, w.reader.conn.now.UnixMilli()
	if was.lock.SoleHolder() != "" && was.lock.SoleHolder() == now.lock.SoleHolder() && was.lock.Expires.Equal(now.lock.Expires) {
		now.firstRead, now.spread = was.firstRead, was.spread
	}
	if was.lock.SoleHolder() == now.lock.SoleHolder() {
		now.quiet = was.quiet
	}
}

// updateLock stores a lock that was read.
func (w *Watcher) updateLock(was, now candidate, known bool, d *keyspace.Differ) {
	began := time.Time{}
	if known && !d.MissedEvents || d.Watched {
		began = d.At
	}
	if known && was.lock.Node != now.lock.Node {
		was.lock, d.Repeated = new(keyspace.RebaseDeadlines(*was.lock, *now.lock)), true
	}
	past, seen := *was.lock, known
	if lookUp := w.scanner.opts.Past; began.IsZero() && !known && lookUp != nil {
		past, seen = lookUp(*now.lock, d.At)
	}
	*now.lock = d.CarryOver(past, *now.lock, seen, began)
	w.keepFirstRead(was, &now)
	if known {
		d.Changed(*was.lock, *now.lock)
	} else {
		d.Added(*now.lock)
	}
	w.holdStats.Learn(d.Events)
	w.holdStats.Annotate(now.lock, d.At)
	for i := range d.Events {
		d.Events[i].Lock = *now.lock
	}
	w.unreported.events = append(w.unreported.events, d.Events...)
	w.locks.put(was, now, w.nextDeadline(*now.lock))
	w.tracking.coverage.learn(&now)
	w.scanner.opts.Cluster.record(w, now)
}

// removeLock removes a lock that is gone. It reports the end of a lock of a cluster only if
// no other watcher has taken the lock over since the last call of dropMoved.
func (w *Watcher) removeLock(was candidate, d *keyspace.Differ) {
	w.locks.remove(was.lock.Key)
	if !w.scanner.opts.Cluster.forget(w, was) {
		return
	}
	d.Removed(*was.lock)
	w.holdStats.Learn(d.Events)
	w.holdStats.Removed(was.lock.ID(), d.At)
	w.unreported.events = append(w.unreported.events, d.Events...)
}

// adopt returns what another watcher of the cluster knows of a lock that this one has
// found: the lock has moved. ours is false if the lock was read on another node whose
// watcher has it already, or if another watcher has already found its end.
func (w *Watcher) adopt(l candidate) (was candidate, known, ours bool) {
	cluster := w.scanner.opts.Cluster
	if w.onOtherNode(*l.lock) && cluster.ownedByOther(l.lock.Key, w) {
		return none, false, false
	}
	if was, known = cluster.claim(l.lock.Key, w); known {
		w.locks.mark(l.lock.Key)
		w.locks.known.put(was)
	}
	return was, known, known || !cluster.hasEnded(l, w.times.readStart)
}

// onOtherNode reports whether a lock was read on another cluster node.
func (w *Watcher) onOtherNode(l keyspace.Lock) bool { return l.Node != w.reader.node }

// dropMoved removes the locks that other watchers of the cluster have taken over,
// without events.
func (w *Watcher) dropMoved() {
	for _, key := range w.scanner.opts.Cluster.takeMoved(w) {
		delete(w.endings.pending, key)
		w.locks.remove(key)
	}
}
