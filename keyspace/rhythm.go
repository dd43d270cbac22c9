package keyspace

import (
	"context"
	"time"
)

// How often and for how long a watcher does what.
const (
	sliceMax   = 20 * time.Millisecond  // of walking, at a time
	sliceNews  = 5 * time.Millisecond   // the same, while events are told
	sliceShare = 10                     // of the time is spent walking, at the most: a tenth
	walkEvery  = time.Second            // between the begins of two walks, while the server tells of changes
	pollEvery  = 100 * time.Millisecond // between two looks at what nobody tells of
	checkEvery = time.Second            // the same where notifications come, which may be lost
	together   = 2 * time.Millisecond   // between two looks, while events are told: what comes within it is read at once
	again      = 5 * time.Millisecond   // after it, what should be gone by now is read again
	doubtFor   = 5 * time.Millisecond   // between two looks at a lock that is gone, as long as it may still be announced
	retryFirst = 100 * time.Millisecond // after a failure, then doubled …
	retryLast  = 2 * time.Second        // … up to this
	modeLasts  = 3 * time.Second        // after which a way to learn of changes counts as another
)

// slice is how long a look may walk: as long as it may be while the first
// picture is incomplete, then a share of the time that has passed.
func (w *Watcher) slice() time.Duration {
	now := time.Now()
	passed := now.Sub(w.called)
	w.called = now
	if !w.complete {
		return sliceMax
	}
	return min(passed/sliceShare, sliceMax)
}

// busySoon reports whether a walk would be in the way of the next deadline, and
// puts the walk off until after it. It can be put off for a while only.
func (w *Watcher) busySoon(now time.Time) bool {
	due, some := w.agenda.first()
	if !some || !w.complete || now.Sub(w.called) > walkEvery {
		return false
	}
	at := due.Add(-w.offset)
	if at.Sub(now) > sliceNews {
		return false
	}
	w.restsTo = at.Add(time.Millisecond)
	return true
}

// rest says until when not to walk, after a slice that began at a time. As long as
// not all locks are known, what passed on the way to the server does not count: a
// walk on which each round trip is followed by a rest would take minutes.
func (w *Watcher) rest(began time.Time) {
	now := time.Now()
	walked := now.Sub(began)
	if !w.complete {
		walked = max(0, walked-(w.cost.Took-w.cost.Busy))
	}
	w.restsTo = now.Add((sliceShare - 1) * walked)
	if w.pass == nil || !w.pass.done() {
		return
	}
	pause := pollEvery
	if w.track.mode() == Push {
		pause = walkEvery
	}
	if until := began.Add(pause); until.After(w.restsTo) {
		w.restsTo = until
	}
}

// wait returns when there may be something to look at.
func (w *Watcher) wait(ctx context.Context) error {
	timer := time.NewTimer(w.leisure())
	defer timer.Stop()
	wake := w.track.wake()
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
	left := together - time.Since(w.lookedAt)
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

// leisure is for how long there is nothing to do, unless something is heard.
func (w *Watcher) leisure() time.Duration {
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
	sooner(w.restsTo)
	if due, some := w.agenda.first(); some {
		sooner(due.Add(-w.offset))
	}
	if w.track.mode() != Push || len(w.track.strays) > 0 {
		sooner(w.polledAt.Add(pollEvery))
	}
	return max(0, until.Sub(now))
}
