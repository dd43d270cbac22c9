package inspect

import (
	"context"
	"time"

	"locktop/keyspace"
)

// Intervals and durations of a watcher.
const (
	maxScanTime   = 20 * time.Millisecond  // of scanning, at a time
	shortScanTime = 5 * time.Millisecond   // the same, while the caller waits for events
	scanShare     = 10                     // at most 1/scanShare of the time is spent scanning
	passEvery     = time.Second            // between the begins of two passes, while the server reports changes
	pollEvery     = 100 * time.Millisecond // between two reads of locks whose changes are not reported
	checkEvery    = time.Second            // the same with keyspace notifications, which may be lost
	coalesce      = 2 * time.Millisecond   // between two cycles: changes within it are read at once
	recheckAfter  = 5 * time.Millisecond   // after which a lock that should be gone is read again
	releaseGrace  = 5 * time.Millisecond   // between two reads of a vanished lock whose release may still be reported
	minRetry      = 100 * time.Millisecond // after a failure, then doubled,
	maxRetry      = 2 * time.Second        // up to this
	modeGrace     = 3 * time.Second        // after which another mode is reported
)

// scanTime returns how long a cycle may scan: the maximum until the first pass has
// ended, then a share of the time that has passed.
func (w *Watcher) scanTime() time.Duration {
	now := time.Now()
	passed := now.Sub(w.scan.last)
	w.scan.last = now
	if !w.scan.complete {
		return maxScanTime
	}
	return min(passed/scanShare, maxScanTime)
}

// deferForDeadline defers a scan that would delay the read at the next deadline. It
// defers for passEvery at most.
func (w *Watcher) deferForDeadline(now time.Time) bool {
	due, some := w.locks.deadlines.first()
	if !some || !w.scan.complete || now.Sub(w.scan.last) > passEvery {
		return false
	}
	at := due.Add(-w.times.clockOffset)
	if at.Sub(now) > shortScanTime {
		return false
	}
	w.scan.next = at.Add(time.Millisecond)
	return true
}

// deferScan sets when scanning continues after a scan that began at began. Until the
// first pass has ended, network time does not count: with a pause after each round
// trip, a pass would take minutes.
func (w *Watcher) deferScan(began time.Time) {
	now := time.Now()
	walked := now.Sub(began)
	if !w.scan.complete {
		walked = max(0, walked-(w.scan.cost.WaitTime-w.scan.cost.ServerTime))
	}
	w.scan.next = now.Add((scanShare - 1) * walked)
	if w.scan.pass == nil || !w.scan.pass.done() {
		return
	}
	pause := pollEvery
	if w.tracking.mode() == keyspace.Push {
		pause = passEvery
	}
	if until := began.Add(pause); until.After(w.scan.next) {
		w.scan.next = until
	}
}

// wait waits until there may be something to read.
func (w *Watcher) wait(ctx context.Context) error {
	timer := time.NewTimer(w.idleTime())
	defer timer.Stop()
	wake := w.tracking.wake()
	if w.failures.count > 0 {
		wake = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-wake:
	}
	left := coalesce - time.Since(w.times.cycleStart)
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

// idleTime returns how long there is nothing to do without reports.
func (w *Watcher) idleTime() time.Duration {
	now := time.Now()
	if w.failures.count > 0 {
		return w.failures.retryAt.Sub(now)
	}
	until := now.Add(checkEvery)
	sooner := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	sooner(w.scan.next)
	if due, some := w.locks.deadlines.first(); some {
		sooner(due.Add(-w.times.clockOffset))
	}
	if w.tracking.mode() != keyspace.Push || len(w.tracking.coverage.uncovered) > 0 {
		sooner(w.times.polledAt.Add(pollEvery))
	}
	return max(0, until.Sub(now))
}
