package inspect

import (
	"cmp"
	"context"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/internal/cache"
)

// pendingReason is a lock whose holder is gone without a release message so far.
type pendingReason struct {
	conn     *invalidationConn
	mark     int       // when this mark has come back, all earlier messages have been received
	replaced bool      // the lock had another holder when the change was read
	late     bool      // the change was read late
	flushed  bool      // a database was emptied, and no change of the lock was reported
	reports  int       // of changes of the lock
	since    time.Time // first report, local clock; zero = none

	next  *candidate // the lock with its next holder, as it was read meanwhile; nil: it had none
	later change     // of the lock, after that read
}

// endings is what a watcher knows of the ends of holds.
type endings struct {
	pending   map[string]pendingReason     // by key: locks whose holder is gone for a reason that will be known soon
	published cache.Map[keyspace.ID, bool] // locks and families whose releases are published; true = also without waiters
	evictedAt time.Time                    // local time of the last INFO that counts more evictions than the one before; zero = none

	evictionsRead bool // the server was asked for them since the keys that are compared were read
}

// ending is why the missing holds of a lock ended.
type ending struct {
	kind     keyspace.EventKind   // "" = the deadline decides
	possible []keyspace.EventKind // of Vanished: the kinds of what may have happened
	open     bool                 // a message may still arrive: the lock must then be read again
}

// endingOf returns why the missing holds of a lock ended. What the server did to other keys is no proof: an
// eviction is one if the server has reported it for this key, and a flush if it has reported no change of the
// key beside it.
func (w *Watcher) endingOf(ctx context.Context, was, now candidate, c changes) (ending, error) {
	key := was.lock.Key
	gone := slices.ContainsFunc(was.lock.Holders, func(h keyspace.Holder) bool {
		_, stays := now.lock.Holder(h.ID)
		return !stays
	})
	before, lost, mayBeLost := w.locks.replaced[key], false, false
	if before != nil {
		lost, mayBeLost = w.lostWith(before, was)
	}
	switch {
	case !gone:
		return ending{}, nil
	case c.of[key].evicted:
		return ending{kind: keyspace.Evicted}, nil
	case w.provesRelease(was.lock, c.of[key]):
		w.noteReleased(was.lock, c.of[key].toWaiter)
		return ending{kind: keyspace.Released}, nil
	case lost:
		return ending{kind: keyspace.Lost}, nil
	case mayBeLost && !allExpiredBy(was.lock, w.changedAt(key, c).Add(w.tracking.slack())):
		return ending{kind: keyspace.Vanished, possible: []keyspace.EventKind{keyspace.Released, keyspace.Lost}}, nil
	case before != nil, w.failures.missedEvents, allExpiredBy(was.lock, w.changedAt(key, c).Add(w.tracking.slack())):
		return ending{}, nil
	}
	p, pending := w.endings.pending[key]
	change, reported := c.of[key]
	if flushed := c.flushed || p.flushed; flushed && !reported && p.reports == 0 && now.lock.Key == "" {
		return w.endingByFlush(ctx, key, p, pending), nil
	}
	aliveAt := was.firstRead.Add(w.heldFor(was, cmp.Or(p.since, change.since)))
	if evicted, err := w.evictedSince(ctx, aliveAt); err != nil || evicted && now.lock.Key == "" {
		return ending{kind: keyspace.Vanished, possible: []keyspace.EventKind{keyspace.Released, keyspace.Evicted}}, err
	}
	if p.next == nil && (p.late && reported || change.repeated.Sub(change.since) > maxUnread) { // another change, before the read that came late or after it
		return ending{kind: keyspace.Vanished}, nil // it may have ended at a deadline that was not read
	}
	announced, late := w.releaseAnnounced(was), p.late || reported && w.tracking.conn != nil && w.times.readEnd.Sub(change.since) > maxUnread
	if p.next == nil {
		p.reports += c.reports(key)
	}
	replaced := wasReplaced(was.lock, now.lock) && p.reports < 2
	came := p.conn == w.tracking.conn && p.mark <= w.tracking.marks.received
	switch {
	case !announced && !late && !replaced:
		return ending{}, nil
	case !announced && !late && w.tracking.conn == nil: // changes are not reported
		return ending{kind: keyspace.Replaced}, nil
	case !pending:
		p = pendingReason{conn: w.tracking.conn, mark: w.tracking.sendMark(ctx), replaced: wasReplaced(was.lock, now.lock), late: late, reports: p.reports, since: change.since}
		if p.replaced {
			p.next = &now
		}
	case p.conn != w.tracking.conn && late: // messages on the old connection are lost
		return ending{kind: keyspace.Vanished}, nil
	case (p.conn != w.tracking.conn || came) && !announced && replaced:
		return ending{kind: keyspace.Replaced}, nil
	case p.conn != w.tracking.conn, came && !announced:
		return ending{}, nil
	case came && p.replaced:
		return w.endingWithoutRelease(was, keyspace.Stolen), nil
	case came:
		return w.endingWithoutRelease(was, keyspace.Deleted), nil
	}
	return w.readAgain(key, p), nil
}

// endingWithoutRelease returns that a hold ended without the message of a release. That proves nothing if only other
// locks of its family have published one, and some locks of its format publish none without waiters.
func (w *Watcher) endingWithoutRelease(was candidate, kind keyspace.EventKind) ending {
	if _, published := w.endings.published.Get(was.lock.ID()); published || was.format.ReleaseChannel.ToWaiter == nil {
		return ending{kind: kind}
	}
	return ending{kind: keyspace.Vanished, possible: []keyspace.EventKind{keyspace.Released, kind}}
}

// endingByFlush returns why a lock is gone after a report that a database was emptied, which does not name the
// database. A client that ends a hold causes a report of its own, also if the read was earlier.
func (w *Watcher) endingByFlush(ctx context.Context, key string, p pendingReason, pending bool) ending {
	switch {
	case !pending:
		p = pendingReason{conn: w.tracking.conn, mark: w.tracking.sendMark(ctx), flushed: true}
	case p.conn != w.tracking.conn: // messages on the old connection are lost
		return ending{kind: keyspace.Vanished, possible: []keyspace.EventKind{keyspace.Released, keyspace.Flushed}}
	case p.mark <= w.tracking.marks.received:
		return ending{kind: keyspace.Flushed}
	}
	return w.readAgain(key, p)
}

// readAgain postpones the judgement of an end until the lock is read again.
func (w *Watcher) readAgain(key string, p pendingReason) ending {
	w.endings.pending[key] = p
	w.locks.readAgain(key, w.reader.conn.now.Add(releaseGrace))
	return ending{open: true}
}

// changedAt returns when a lock changed, on the server's clock: when the change was reported last, or
// else when it was read.
func (w *Watcher) changedAt(key string, c changes) time.Time {
	if at := w.reportedAt(key, c); !at.IsZero() {
		return keyspace.Earliest(at, w.reader.conn.now)
	}
	return w.reader.conn.now
}

// reportedAt returns when the last change of a lock was reported, on the server's clock; zero = it was not. That is
// not before the change: the offset of the clock is that of the fastest reply.
func (w *Watcher) reportedAt(key string, c changes) time.Time {
	at := cmp.Or(c.of[key].repeated, c.of[key].since, w.endings.pending[key].since)
	if at.IsZero() {
		return at
	}
	return at.Add(w.times.clockOffset)
}

// provesRelease reports whether a release message proves that the holds of a lock were released.
// If another change at the deadline was reported before the message, the holds have expired, and
// the message may be of the next one. A message does not name the database. If the server has
// several, one at the deadline may be of the same key in another database.
func (w *Watcher) provesRelease(l *keyspace.Lock, c change) bool {
	expiredBy := func(local time.Time) bool {
		return allExpiredBy(l, local.Add(w.times.clockOffset+w.tracking.slack()))
	}
	switch {
	case c.released.IsZero(), c.since.Before(c.released) && expiredBy(c.since):
		return false
	default:
		return w.server.databases < 2 || !allExpiredBy(l, w.reader.conn.now) || !expiredBy(c.released)
	}
}

// maxUnread is how long the state between two changes of a lock may stay unread. A lock has
// hardly ever a shorter TTL. If the state is unread for longer, the first change may have set
// a deadline and the second one may be its end.
const maxUnread = maxReportDelay

// releaseAnnounced reports whether a release of a lock would have been published and the
// message received. For a lock without a known release, other locks of the same format and
// family decide.
func (w *Watcher) releaseAnnounced(was candidate) bool {
	always, known := w.endings.published.Get(was.lock.ID())
	if !known {
		always, known = w.endings.published.Get(familyID(was.lock))
	}
	waiting := slices.ContainsFunc(was.lock.Waiters, func(one keyspace.Waiter) bool { return one.Expires.IsZero() || one.Expires.After(w.reader.conn.now) })
	channel, conn := was.format.ReleaseChannel, w.tracking.conn
	return known && (always || waiting) && channel != nil && conn != nil && !slices.Contains(conn.current().denied, channel.Pattern)
}

// noteReleased records that the release of a lock was published, to all subscribers or
// to one waiter.
func (w *Watcher) noteReleased(l *keyspace.Lock, toWaiter bool) {
	for _, id := range []keyspace.ID{l.ID(), familyID(l)} {
		always, known := w.endings.published.Get(id)
		w.endings.published.Put(id, (always || !known) && !toWaiter)
	}
}

// familyID stands for all locks of one format and key family on a server.
func familyID(l *keyspace.Lock) keyspace.ID {
	return keyspace.ID{Node: l.Node, DB: l.DB, Key: l.Format + "\x00" + keyFamily(l.Key)}
}

// wasReplaced reports whether an exclusive holder has been replaced by another.
func wasReplaced(was, now *keyspace.Lock) bool {
	before, next := was.SoleHolder(), now.SoleHolder()
	return before != "" && next != "" && before != next && was.Holders[0].Mode != keyspace.Read && now.Holders[0].Mode != keyspace.Read
}

// allExpiredBy reports whether all holds of a lock have expired at now.
func allExpiredBy(l *keyspace.Lock, now time.Time) bool {
	return !slices.ContainsFunc(l.Holders, func(h keyspace.Holder) bool { return h.Expires.IsZero() || h.Expires.After(now) })
}

// evictedSince reports whether the server may have evicted keys after a local time. It asks the server how many
// it has evicted, only if needed and at most once for all keys that are compared together.
func (w *Watcher) evictedSince(ctx context.Context, at time.Time) (bool, error) {
	if !w.endings.evictionsRead && w.server.info.MaxMemory != 0 && w.server.info.Policy != "" && w.server.info.Policy != "noeviction" {
		p := w.scanner.rdb.Pipeline()
		stats := p.Info(ctx, "stats")
		if err := w.reader.conn.send(ctx, "count evictions", p); err != nil {
			return false, err
		}
		w.endings.evictionsRead = true
		info := w.server.info
		describeServer(&info, stats.Val())
		w.countEvictions(info)
	}
	return w.endings.evictedAt.After(at), nil
}

// countEvictions compares the number of evicted keys with that of the last INFO of the same
// server. A scan and evictedSince may read the INFO that counts an eviction.
func (w *Watcher) countEvictions(s keyspace.Server) {
	if s.RunID == w.server.info.RunID && s.Evicted > w.server.info.Evicted {
		w.endings.evictedAt = time.Now()
	}
	w.server.info.Evicted = s.Evicted
}
