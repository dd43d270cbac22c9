package keyspace

import (
	"cmp"
	"slices"
	"time"
)

// CarryOver returns now with what the previous snapshot knows about each lock; see
// [Differ.CarryOver].
func CarryOver(before, now Snapshot) Snapshot {
	d := Differ{At: now.At, Jitter: DeadlineJitter}
	locks := slices.Grow([]*Lock(nil), len(now.Locks))
	for was, l := range Pairs(before.Locks, now.Locks) {
		if l == nil {
			continue
		}
		began := time.Time{}
		if was != nil || before.Complete {
			began = now.At
		}
		locks = append(locks, new(d.CarryOver(*cmp.Or(was, &Lock{}), *l, was != nil, began)))
	}
	now.Locks = locks
	return now
}

// CarryOver returns a lock with what the previous read knows about it: the begins of
// holds and waits, the time to live that was set, the number of renewals, the requests of other clients, and the
// overtaken waiters.
//
// A hold or wait without a stored begin began when it was first seen, unless the key
// was not watched before: then it began earlier, and Seen is set instead of Since. began is
// the time of this read, or zero in that case. seen says that the lock was known before.
func (d *Differ) CarryOver(was, l Lock, seen bool, began time.Time) Lock {
	l.Holders = d.startTimes(was, l.Holders, began)
	l.Waiters = d.waiterTimes(was, l, began)
	// A semaphore without permits left has holders that it does not store, and a latch waits for its count.
	free := l.Kind != Latch && (l.Kind != Semaphore || l.Remaining > 0)
	if len(l.Holders) == 0 && (len(l.Waiters) > 0 || l.Waiting > 0 && free) {
		l.UnheldSince = d.At
		if !was.UnheldSince.IsZero() {
			l.UnheldSince = was.UnheldSince
		}
	}
	if seen {
		l.Key = was.Key // one copy of the key
	}
	if l.TTLSet = 0; !began.IsZero() && d.Late == 0 {
		l.TTLSet = TTLAt(l.Expires, d.At)
	}
	if !seen || !sharesHolder(was, l) {
		return l
	}
	for i := range l.Holders { // of a lease that is over, the first read is the closest to its end
		if h := &l.Holders[i]; h.Expires.Equal(l.ReadAt) {
			before, _ := was.Holder(h.ID)
			h.Expires = Earliest(h.Expires, before.Expires)
		}
	}
	d.renewedHolders(was, l.Holders)
	l.Renewals, l.Renewed, l.RenewedEvery, l.ReentryStreak = was.Renewals, was.Renewed, was.RenewedEvery, reentryStreak(was, l)
	if was.AskedAt.After(l.AskedAt) {
		l.AskedAt, l.AskedPercent = was.AskedAt, was.AskedPercent
	}
	switch {
	case movedLater(was.Expires, l.Expires, d.Jitter):
		l.Renewals++
		l.Renewed, l.RenewedEvery = d.At, renewedEvery(was, l, d.At)
	case was.Expires.Sub(l.Expires).Abs() <= d.Jitter:
		l.TTLSet = was.TTLSet
		for i := range l.Holders { // no deadline has moved; only the reads differ
			h := &l.Holders[i]
			if before, held := was.Holder(h.ID); held && before.Expires.Sub(h.Expires).Abs() <= d.Jitter {
				h.Expires = before.Expires
			}
		}
		l.Expires = was.Expires
	}
	return l
}

// TTLAt returns the time to live that a client has set if a read a moment later shows a deadline: the
// time in between, rounded up to 100 ms, and to 500 ms above 10 s. It is 0 without a deadline, or if
// the deadline had passed.
func TTLAt(deadline, read time.Time) time.Duration {
	left, unit := deadline.Sub(read), 100*time.Millisecond
	if deadline.IsZero() || left <= 0 {
		return 0
	}
	if left > 10*time.Second {
		unit *= 5
	}
	return (left + unit - 1).Truncate(unit)
}

// renewedEvery returns the time since the renewal before the one at a time, see
// [Observed.RenewedEvery]; 0 = it is the first, or the lock has several holders.
func renewedEvery(was, l Lock, at time.Time) time.Duration {
	if was.Renewed.IsZero() || was.SoleHolder() == "" || l.SoleHolder() == "" {
		return 0
	}
	every, before := at.Sub(was.Renewed), max(was.RenewedEvery, -was.RenewedEvery)
	if before > 0 && (every-before).Abs() > before/4 {
		return -every
	}
	return every
}

// renewedHolders sets when each of several holders has renewed its deadline.
func (d *Differ) renewedHolders(was Lock, holders []Holder) {
	if len(holders) < 2 {
		return
	}
	for i := range holders {
		h := &holders[i]
		before, held := was.Holder(h.ID)
		if h.Renewed = before.Renewed; held && movedLater(before.Expires, h.Expires, d.Jitter) {
			h.Renewed = d.At
		}
	}
}

// reentryStreak returns the number of reentries since the last exit.
func reentryStreak(was, l Lock) int {
	before, now := was.Depth(), l.Depth()
	switch {
	case now > before:
		return was.ReentryStreak + 1
	case now < before:
		return 0
	default:
		return was.ReentryStreak
	}
}

// startTimes returns the holders with the begins of their holds and the times of their
// disconnects, as far as known.
func (d *Differ) startTimes(was Lock, holders []Holder, began time.Time) []Holder {
	holders = slices.Clone(holders)
	for i := range holders {
		h := &holders[i]
		before, held := was.Holder(h.ID)
		if held {
			h.DisconnectedAt, h.ConnectedAt, h.Addr = before.DisconnectedAt, before.ConnectedAt, before.Addr
			h.ID = before.ID // one copy of the text
			if h.Label == before.Label {
				h.Label = before.Label
			}
		}
		switch {
		case held && d.lapsed(was, before, *h): // since its new lease, at least
		case held && (h.Since.IsZero() || !before.Since.IsZero()):
			h.Since, h.Late, h.Seen = before.Since, before.Late, before.Seen
		case held, began.IsZero():
		case h.Since.IsZero():
			h.Since, h.Late = began, d.Late
		case h.Late > 0 && d.Late > 0: // between two scans, and not before its token was made
			h.Since, h.Late = began, max(0, min(d.Late, began.Sub(h.Since.Add(-h.Late))))
		case d.Lag > 0: // what the client stores is by its own clock
			h.Since, h.Late = Earliest(Later(h.Since.Add(-h.Late), began.Add(-max(d.Lag, d.Late))), began), 0
		}
		if h.Since.IsZero() && h.Seen.IsZero() {
			h.Seen = d.At
		}
	}
	return holders
}

// lapsed reports whether the last known deadline of a hold was over before its new lease began: it may have been
// renewed in between without a read, or have ended and been acquired again.
func (d *Differ) lapsed(was Lock, before, h Holder) bool {
	if !movedLater(before.Expires, h.Expires, d.Jitter) || was.TTLSet == 0 && !d.MissedEvents {
		return false
	}
	begin := d.changed()
	if was.TTLSet > 0 {
		begin = Earliest(begin, h.Expires.Add(-was.TTLSet))
	}
	return begin.After(before.Expires.Add(d.Slack))
}

// waiterTimes returns the waiters with the begins of their waits, as far as known, and
// the number of later waiters that got the lock first.
func (d *Differ) waiterTimes(was, l Lock, began time.Time) []Waiter {
	waiters := slices.Clone(l.Waiters)
	var newHolders []string
	for _, h := range l.Holders {
		if _, held := was.Holder(h.ID); !held {
			newHolders = append(newHolders, h.ID)
		}
	}
	for i := range waiters {
		w := &waiters[i]
		at := slices.IndexFunc(was.Waiters, func(before Waiter) bool { return before.ID == w.ID })
		if at < 0 {
			if w.Since = cmp.Or(w.Since, began); w.Since.IsZero() {
				w.Seen = d.At
			}
			continue
		}
		w.OvertakenBy = was.Waiters[at].OvertakenBy
		for _, id := range newHolders {
			first := slices.ContainsFunc(was.Waiters[:at], func(before Waiter) bool { return before.ID == id })
			if !first {
				w.OvertakenBy++
			}
		}
		if w.Since.IsZero() {
			w.Since, w.Seen = was.Waiters[at].Since, was.Waiters[at].Seen
		}
	}
	return waiters
}

// Still returns the lock with only those of its holds that were in had, and whether there is one.
func (l Lock) Still(had []Holder) (Lock, bool) {
	all := l.Holders
	l.Holders = slices.DeleteFunc(slices.Clone(all), func(h Holder) bool { return !slices.ContainsFunc(had, h.sameHold) })
	if len(l.Holders) < len(all) { // what is known of the lock may be about the other holds
		l.Expires, l.TTLSet, l.Renewals, l.Renewed, l.RenewedEvery = lastDeadline(l.Holders), 0, 0, time.Time{}, 0
		for _, h := range l.Holders {
			l.Renewed = Later(l.Renewed, h.Renewed)
		}
	}
	return l, len(l.Holders) > 0
}

// sameHold reports whether two reads show one hold. Their begins may differ by 1 s: one in the future, of a fast clock,
// is read as now.
func (h Holder) sameHold(o Holder) bool {
	again := h.Late == 0 && o.Late == 0 && !h.Since.IsZero() && !o.Since.IsZero() && h.Since.Sub(o.Since).Abs() > time.Second
	return h.ID == o.ID && h.Mode == o.Mode && !again
}

// RebaseDeadlines returns the lock as it was on another node, with the deadlines of this node where they differ only by the
// transit time, at most 1 s: it was not renewed. MIGRATE sends the remaining time to live, not the deadline.
func RebaseDeadlines(was, now Lock) Lock {
	here := func(was, now time.Time) time.Time {
		if !was.IsZero() && !now.IsZero() && now.Sub(was).Abs() <= time.Second {
			return now
		}
		return was
	}
	if !sharesHolder(was, now) {
		return was
	}
	was.Expires, was.Holders = here(was.Expires, now.Expires), slices.Clone(was.Holders)
	for i, h := range was.Holders {
		if held, stays := now.Holder(h.ID); stays {
			was.Holders[i].Expires = here(h.Expires, held.Expires)
		}
	}
	return was
}
