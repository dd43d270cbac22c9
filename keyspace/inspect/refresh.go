package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// refresh reads the locks again that may have changed.
func (w *Watcher) refresh(ctx context.Context, all bool) error {
	if err := w.verifyServer(ctx); err != nil {
		return err
	}
	w.tracking.receive()
	for n := 0; w.isSlow() && (n == 0 && len(w.tracking.pending.keys) > 0 || n < 2 && len(w.measuredAhead()) > 0); n++ {
		if err := w.reader.conn.pipelined(ctx, "read changed keys", func(redis.Pipeliner) {}); err != nil {
			return err
		}
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
	polled := w.times.polledAt
	pollDue := every > 0 && time.Since(polled) >= every
	readAll := all || w.failures.missedEvents || c.flushed || w.tracking.resync || pollDue
	if c = w.joinAhead(c, !readAll); readAll {
		w.times.polledAt = time.Now()
		for key := range w.locks.known {
			keys = append(keys, key)
		}
	} else {
		keys = append(slices.AppendSeq(keys, maps.Keys(w.tracking.unreported)), w.tracking.uncoveredKeys(w.locks.known)...)
	}
	keys = append(keys, c.keys...)
	w.times.lag.record(c) // the events say how late they are
	if err := w.refreshKeys(ctx, w.ownersOf(keys), c); err != nil {
		w.tracking.requeue(c) // so that the changes are not lost
		return err
	}
	if c.flushed {
		w.addNotice(keyspace.ServerFlushed, "a database was emptied")
	}
	w.tracking.resync, w.tracking.unreported = false, nil
	w.times.lag.record(c)
	if pollDue && every == pollEvery && !polled.IsZero() { // what changed right after the read before is seen now
		w.times.lag.worst = max(w.times.lag.worst, time.Since(polled))
	}
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
	asked, began := w.reader.conn.cost.Commands, time.Now()
	for _, key := range keys {
		k, known := w.locks.known[key]
		switch a := c.of[key].ahead; {
		case a != nil && a.absent:
			began = keyspace.Earliest(began, a.lastRead)
		case a != nil && a.typ != "":
			began = keyspace.Earliest(began, a.lastRead)
			all = append(all, *a)
		case known:
			all = append(all, candidate{name: k.name, typ: k.typ})
		case w.worthChecking(key):
			unknown = append(unknown, key)
		}
	}
	more, err := w.fetchTypes(ctx, unknown)
	if err != nil {
		return err
	}
	valuesAsked := time.Now()
	locks, err := w.reader.detect(ctx, append(all, more...))
	if err != nil {
		return err
	}
	w.noteRead(began)
	if w.reader.conn.cost.Commands > asked { // otherwise the time is old
		w.followClock(w.reader.conn.now, time.Since(valuesAsked))
	}
	if len(keys) > 0 { // some may have been read ahead
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
			others = append(others, standIns(w.scanner.opts.Formats, key)...)
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
	w.endings.evictionsRead = false
	w.dropMoved()
	renamed := w.renamed(keys, read)
	for _, key := range keys {
		if err := w.reconcileKey(ctx, key, read[key], &c, renamed[key]); err != nil {
			return err
		}
	}
	return nil
}

// reconcileKey compares what was read of a key, nil = nothing, with what is known. Meanwhile no other watcher of the
// cluster changes the lock: each change is told once.
func (w *Watcher) reconcileKey(ctx context.Context, key string, read *candidate, c *changes, renamed bool) error {
	defer w.scanner.opts.Cluster.hold(key)()
	was, known := w.locks.known.get(key)
	now, exists := none, read != nil
	if exists {
		now = *read
	}
	if known && w.scanner.opts.Cluster.ownedByOther(key, w) {
		return nil // dropMoved removes it
	}
	if !known && exists {
		var ours bool
		if now.lock.Confidence < enough && w.possible.alike.isCrowded(keyspace.AlikeClass(key)) {
			w.locks.ignored[key] = w.times.readStart
			return nil
		}
		if was, known, ours = w.adopt(now); !ours {
			return nil
		}
	}
	if !known && !exists {
		return nil
	}
	if was.lastRead.After(w.times.readStart) { // by the watcher from which the lock came: this read is older
		w.locks.readAgain(key, w.reader.conn.now)
		return nil
	}
	name := cmp.Or(was.name, key)
	if !exists && w.reader.unread[name] == movingKey {
		w.locks.readAgain(key, w.reader.conn.now.Add(pollEvery))
		return nil
	}
	if why := w.reader.unread[name]; why != "" && known && !exists {
		w.locks.denied[key] = why
		w.locks.readAgain(key, w.reader.conn.now.Add(checkEvery))
		return nil
	}
	delete(w.locks.denied, key)
	was, open, err := w.settleNext(ctx, was, now, c)
	if err != nil {
		return err
	}
	if open {
		return nil
	}
	// The message of an end may come after the lock was read free. A message does not name its database.
	if m := c.of[key]; !m.released.IsZero() && len(was.lock.Holders) == 0 && w.server.databases == 1 {
		l := was.lock
		if !known {
			l = now.lock
		}
		w.noteReleased(l, m.toWaiter)
	}
	reportedAt := cmp.Or(w.endings.pending[key].since, c.of[key].since)
	changed := w.reportedAt(key, *c)
	end := ending{kind: keyspace.Vanished}
	if !renamed {
		if end, err = w.endingOf(ctx, was, now, *c); err != nil {
			return err
		}
	}
	if end.open {
		return nil
	}
	delete(w.endings.pending, key)
	d := w.newDiffer()
	d.Watched = d.Watched && !renamed
	if w.locks.replaced[key] != nil {
		d.Watched, d.MissedEvents = false, true
		delete(w.locks.replaced, key)
	}
	d.Repeated, d.Reason, d.Possible, d.Reported = !c.of[key].repeated.IsZero(), end.kind, end.possible, changed
	d.Spread, d.Held = was.spread+now.spread, w.heldFor(was, reportedAt)
	switch {
	case !exists:
		w.removeLock(was, &d)
	default:
		w.updateLock(was, now, known, &d)
	}
	return nil
}

// renamed returns the keys that may have got a new name, and these names: a lock is gone, and its holder has a new one
// under the same deadline. A client that acquires a lock sets a deadline of its own.
func (w *Watcher) renamed(keys []string, read map[string]*candidate) map[string]bool {
	fresh, all := make(map[string]*keyspace.Lock), make(map[string]bool)
	for _, key := range keys {
		if _, known := w.locks.known[key]; !known && read[key] != nil {
			fresh[read[key].lock.SoleHolder()] = read[key].lock
		}
	}
	delete(fresh, "")
	for _, key := range keys {
		was, known := w.locks.known[key]
		if !known || read[key] != nil || len(fresh) == 0 {
			continue
		}
		next := fresh[was.lock.SoleHolder()]
		if next != nil && !next.Expires.IsZero() && next.Expires.Sub(was.lock.Expires).Abs() <= keyspace.DeadlineJitter {
			all[key], all[next.Key] = true, true
		}
	}
	return all
}

// settleNext stores the hold that was read while it was open why the one before had ended, if it has ended, too. It
// returns the lock as it is known then.
func (w *Watcher) settleNext(ctx context.Context, was, now candidate, c *changes) (known candidate, open bool, err error) {
	key := was.lock.Key
	p := w.endings.pending[key]
	if p.next == nil || p.next.lock.SoleHolder() == now.lock.SoleHolder() {
		return was, false, nil
	}
	if c.reports(key) > 0 {
		p.later = c.of[key]
		w.endings.pending[key] = p
	}
	end, err := w.endingOf(ctx, was, *p.next, *c)
	if err != nil || end.open {
		return was, end.open, err
	}
	d := w.newDiffer()
	d.Reason, d.Possible, d.Reported = end.kind, end.possible, w.reportedAt(key, changes{})
	delete(w.endings.pending, key)
	d.Spread, d.Held = was.spread+p.next.spread, w.heldFor(was, p.since)
	w.updateLock(was, *p.next, true, &d)
	if c.reports(key) == 0 && !p.later.since.IsZero() {
		c.add(key, p.later)
	}
	known, _ = w.locks.known.get(key)
	return known, false, nil
}

// followClock measures the server's clock with its time, zero = unknown, in a read that took so long at most. A reported
// time is always late, so the largest offset is the best. After a step forward, the renewals are as long ago as before.
func (w *Watcher) followClock(now time.Time, took time.Duration) {
	offset, was := time.Until(now), w.times.clockOffset
	if now.IsZero() {
		return
	}
	if was == 0 || offset >= was || was-offset >= took+time.Second {
		w.times.clockOffset = offset
	}
	if was == 0 || offset-was <= time.Second {
		return
	}
	for key, k := range w.locks.known {
		if l := *k.lock; !l.Renewed.IsZero() {
			l.Renewed = l.Renewed.Add(offset - was)
			w.locks.replace(key, l)
		}
	}
}

// noteRead notes that locks were read between since, on the local clock, and now.
func (w *Watcher) noteRead(since time.Time) { w.times.readStart, w.times.readEnd = since, time.Now() }

// heldFor returns how long, at least, the holder of a changed lock had held it under
// its deadline: until the last read, or until shortly before the change was reported,
// if no report can have been lost.
func (w *Watcher) heldFor(was candidate, reportedAt time.Time) time.Duration {
	held := was.lastRead.Sub(was.firstRead)
	if !reportedAt.IsZero() && !w.tracking.resync && !w.tracking.unreported[was.lock.Key] {
		held = max(held, reportedAt.Sub(was.firstRead)-maxReportDelay)
	}
	return held
}

// Reported keys that are not locks are ignored for a while.
const (
	ignoreFor  = 10 * time.Second
	maxIgnored = 10_000

	maxUnknown = 512 // unknown keys that are read in one cycle
)

// worthChecking reports whether an unknown key should be read.
func (w *Watcher) worthChecking(key string) bool {
	globs := w.scanner.opts.Match
	if w.scanner.index.isCompanion(key) || len(globs) > 0 && !slices.ContainsFunc(globs, func(glob string) bool { return keyspace.MatchGlob(glob, key) }) || w.tracking.coverage.allKeys && !w.tracking.coverage.covers(key) {
		return false
	}
	if at, known := w.locks.ignored[key]; known {
		if time.Since(at) < ignoreFor {
			return false
		}
		delete(w.locks.ignored, key)
	}
	if len(w.locks.ignored) > maxIgnored {
		clear(w.locks.ignored)
	}
	return true
}

// fetchTypes returns the unknown keys that a format can match, with their types. It
// checks a limited number of keys, so that many changed keys that are not locks do not
// delay the locks. A pass finds the others.
func (w *Watcher) fetchTypes(ctx context.Context, keys []string) (all []candidate, err error) {
	ask := func(p redis.Pipeliner, key string) *redis.StatusCmd { return p.Type(ctx, key) }
	err = inBatches(ctx, &w.reader.conn, "get the types of keys", keys[:min(len(keys), maxUnknown)], ask, func(key string, typ *redis.StatusCmd) {
		if w.mayBeLock(key, typ) {
			all = append(all, candidate{name: key, typ: typ.Val()})
		}
	})
	return all, err
}

// mayBeLock reports whether a format can match a key with the type that the server returned. If none can, the key is
// ignored for a while.
func (w *Watcher) mayBeLock(key string, typ *redis.StatusCmd) bool {
	if typ.Err() != nil || typ.Val() == "none" { // gone, but it may come back
		return false
	}
	is := w.scanner.index.needOf(key, typ.Val()) != needNone
	if !is {
		w.locks.ignored[key] = time.Now()
	}
	return is
}
