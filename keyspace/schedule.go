package keyspace

import (
	"context"
	"time"
)

// How often and for how long a watcher does what.
const (
	maxScanTime   = 20 * time.Millisecond  // of walking, at a time
	shortScanTime = 5 * time.Millisecond   // the same, while events are told
	scanShare     = 10                     // of the time is spent walking, at the most: a tenth
	passEvery     = time.Second            // between the begins of two walks, while the server tells of changes
	pollEvery     = 100 * time.Millisecond // between two looks at what nobody tells of
	checkEvery    = time.Second            // the same where notifications come, which may be lost
	coalesce      = 2 * time.Millisecond   // between two looks, while events are told: what comes within it is read at once
	recheckAfter  = 5 * time.Millisecond   // after it, what should be gone by now is read again
	releaseGrace  = 5 * time.Millisecond   // between two looks at a lock that is gone, as long as it may still be announced
	minRetry      = 100 * time.Millisecond // after a failure, then doubled …
	maxRetry      = 2 * time.Second        // … up to this
	modeGrace     = 3 * time.Second        // after which a way to learn of changes counts as another
)

// scanTime is how long a look may walk: as long as it may be while the first
// picture is incomplete, then a share of the time that has passed.
func (w *Watcher) scanTime() time.Duration {
	now := time.Now()
	passed := now.Sub(w.lastScan)
	w.lastScan = now
	if !w.complete {
		return maxScanTime
	}
	return min(passed/scanShare, maxScanTime)
}

// deferForDeadline reports whether a walk would be in the way of the next deadline, and
// puts the walk off until after it. It can be put off for a while only.
func (w *Watcher) deferForDeadline(now time.Time) bool {
	due, some := w.deadlines.first()
	if !some || !w.complete || now.Sub(w.lastScan) > passEvery {
		return false
	}
	at := due.Add(-w.clockOffset)
	if at.Sub(now) > shortScanTime {
		return false
	}
	w.nextScan = at.Add(time.Millisecond)
	return true
}

// deferScan says until when not to walk, after a slice that began at a time. As long as
// not all locks are known, what passed on the way to the server does not count: a
// walk on which each round trip is followed by a rest would take minutes.
func (w *Watcher) deferScan(began time.Time) {
	now := time.Now()
	walked := now.Sub(began)
	if !w.complete {
		walked = max(0, walked-(w.cost.Took-w.cost.Busy))
	}
	w.nextScan = now.Add((scanShare - 1) * walked)
	if w.pass == nil || !w.pass.done() {
		return
	}
	pause := pollEvery
	if w.tracking.mode() == Push {
		pause = passEvery
	}
	if until := began.Add(pause); until.After(w.nextScan) {
		w.nextScan = until
	}
}

// wait returns when there may be something to look at.
func (w *Watcher) wait(ctx context.Context) error {
	timer := time.NewTimer(w.idleTime())
	defer timer.Stop()
	wake := w.tracking.wake()
	if w.failures > 0 {
		wake = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-wake:
	}
	left := coalesce - time.Since(w.cycleStart)
	if left <= 0 {
		return nil
	}
	timer.Reset(left)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// idleTime is for how long there is nothing to do, unless something is heard.
func (w *Watcher) idleTime() time.Duration {
	now := time.Now()
	if w.failures > 0 {
		return w.retryAt.Sub(now)
	}
	until := now.Add(checkEvery)
	sooner := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	sooner(w.nextScan)
	if due, some := w.deadlines.first(); some {
		sooner(due.Add(-w.clockOffset))
	}
	if w.tracking.mode() != Push || len(w.tracking.uncovered) > 0 {
		sooner(w.polledAt.Add(pollEvery))
	}
	return max(0, until.Sub(now))
}
