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
	coalesce      = 2 * time.Millisecond   // between two cycles: changes within it are read together
	recheckAfter  = 5 * time.Millisecond   // after which a lock that should be gone is read again
	releaseGrace  = 5 * time.Millisecond   // between two reads of a vanished lock whose release may still be reported
	minRetry      = 100 * time.Millisecond // after a failure, then doubled,
	maxRetry      = time.Second            // up to this
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

// mayDefer reports whether a scan may be deferred: for passEvery at most.
func (w *Watcher) mayDefer(now time.Time) bool {
	return w.scan.complete && now.Sub(w.scan.last) <= passEvery
}

// stepTime returns how long a step of a scan takes, on a slow network: the network time of
// its round trips.
func (w *Watcher) stepTime() time.Duration {
	const trips = 2 // a page, and a read of what is on it
	if w.scan.pass == nil {
		return 0
	}
	return trips * w.scan.pass.networkTime
}

// keepsEvents reports whether a step of a scan would delay the report of events by the network.
func (w *Watcher) keepsEvents(now time.Time) bool {
	return len(w.unreported.events) > 0 && w.stepTime() > shortScanTime && w.mayDefer(now)
}

// deferForEvents defers a scan that would delay the report of events.
func (w *Watcher) deferForEvents(now time.Time) bool {
	if !w.keepsEvents(now) {
		return false
	}
	w.scan.next = now.Add(shortScanTime)
	return true
}

// deferForDeadline defers a scan that would delay the read at the next deadline.
func (w *Watcher) deferForDeadline(now time.Time) bool {
	due, some := w.locks.deadlines.first()
	if !some || !w.mayDefer(now) {
		return false
	}
	at := due.Add(-w.times.clockOffset)
	if at.Sub(now) > shortScanTime+w.stepTime() {
		return false
	}
	w.scan.next = at.Add(time.Millisecond)
	return true
}

// deferScan sets when scanning continues after a scan that began at began: in the first pass as
// soon as the budget allows, later so that this machine scans a share of the time. The time on
// the network does not count: it costs neither the server nor this machine.
func (w *Watcher) deferScan(began time.Time) {
	now := time.Now()
	network := w.scan.cost.WaitTime - w.scan.cost.ServerTime
	w.scan.passWait += network
	walked := max(0, now.Sub(began)-network)
	if w.scan.next = w.scanner.opts.Budget.next(); w.scan.complete {
		w.scan.next = now.Add((scanShare - 1) * walked)
	}
	if w.scan.pass == nil || !w.scan.pass.done() {
		return
	}
	pause := pollEvery
	if w.tracking.mode() == keyspace.Push {
		pause = passEvery
	}
	w.scan.next = keyspace.Later(w.scan.next, w.scan.passStart.Add(max(pause/2, pause-w.scan.passWait)))
}

// beginRescan begins a pass without the limit of the budget if one was asked for. The first pass
// goes on instead.
func (w *Watcher) beginRescan() {
	asked := w.scanner.opts.Rescans
	if asked == nil || asked.Load() == w.scan.rescans {
		return
	}
	w.scan.rescans = asked.Load()
	if !w.scan.full {
		w.scanner.opts.Budget.lift(1)
	}
	w.scan.full, w.scan.again, w.scan.next = true, w.scan.complete, time.Time{}
}

// endRescan continues a pass without the limit immediately, and sets the limit again after it.
func (w *Watcher) endRescan() {
	switch {
	case !w.scan.full:
	case w.scan.pass == nil || !w.scan.pass.done():
		w.scan.next = time.Time{}
	default:
		w.scanner.opts.Budget.lift(-1)
		w.scan.full = false
	}
}

// wait waits until there may be something to read, at most for the idle time.
func (w *Watcher) wait(ctx context.Context, idle time.Duration) error {
	timer := time.NewTimer(idle)
	defer timer.Stop()
	wake := w.tracking.wake
	if w.failures.count > 0 {
		wake = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-wake:
		return sleep(ctx, coalesce-time.Since(w.times.cycleStart))
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
	if at, due := w.tracking.nextDial(); due {
		sooner(at)
	}
	if w.requests.relevant {
		sooner(w.requests.next)
	}
	if due, some := w.locks.deadlines.first(); some {
		sooner(due.Add(-w.times.clockOffset))
	}
	if w.tracking.mode() != keyspace.Push || len(w.tracking.coverage.uncovered) > 0 {
		sooner(w.times.polledAt.Add(pollEvery))
	}
	return max(0, until.Sub(now))
}
