package inspect

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// Budget limits how much of one server's time all its scanners together use. When the
// server answers more slowly, the budget shrinks.
//
// It is safe for concurrent use. A nil Budget has no limit.
type Budget struct {
	// 0 to 1
	share float64

	mu      sync.Mutex
	nextAt  time.Time     // when the next request is allowed
	baseRTT time.Duration // network round-trip time without load
	backoff float64       // factor by which the budget is reduced; at least 1
	lifted  int           // number of watchers that scan without the limit
}

// DefaultShare is the default share of a server's time that reading may use.
const DefaultShare = 0.1

// Parameters of a Budget.
const (
	maxUnspent  = 200 * time.Millisecond // unused time that is kept; more would allow a burst
	maxBackoff  = 16
	jitterFloor = time.Millisecond // a smaller delay does not reduce the budget
	baseGain    = 256              // 1/baseGain of a longer round trip goes into baseRTT
)

// NewBudget returns a budget that uses a share of the server's time, between 0 and 1.
// It returns nil, which is no limit, for any other value.
func NewBudget(share float64) *Budget {
	if share <= 0 || share >= 1 {
		return nil
	}
	return &Budget{share: share, backoff: 1}
}

// Share returns the share of the server's time that may be used: 1 for a nil Budget.
func (b *Budget) Share() float64 {
	if b == nil {
		return 1
	}
	return b.share
}

// allow reports whether a request is allowed at now.
func (b *Budget) allow(now time.Time) bool {
	return !now.Before(b.next())
}

// next returns when a request is allowed; the zero time if one is, as far as is known.
func (b *Budget) next() time.Time {
	if b == nil {
		return time.Time{}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nextAt
}

// wait waits until a request is allowed, or returns the error of ctx if ctx ends first.
func (b *Budget) wait(ctx context.Context, now time.Time) error {
	return sleep(ctx, b.next().Sub(now))
}

// charge records that the server worked for busy and that the network added rtt.
func (b *Budget) charge(busy, rtt time.Duration, now time.Time) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lifted > 0 {
		return
	}
	switch {
	case b.baseRTT == 0 || rtt < b.baseRTT:
		b.baseRTT = rtt
	case rtt > 2*b.baseRTT && rtt > b.baseRTT+jitterFloor:
		b.backoff = min(2*b.backoff, maxBackoff)
	default:
		b.backoff = max(b.backoff/2, 1)
	}
	b.baseRTT += (rtt - b.baseRTT) / baseGain
	b.nextAt = keyspace.Later(b.nextAt, now.Add(-maxUnspent)).Add(time.Duration(float64(busy) * b.backoff / b.share))
}

// lift adds to the number of watchers that scan without the limit.
func (b *Budget) lift(by int) {
	if b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.lifted, b.nextAt = b.lifted+by, time.Time{}
	}
}

// sleep waits for d, or returns the error of ctx if ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Meter adds up what the commands of scanners cost a server. The messages that make a
// server report changed keys are not included. It is safe for concurrent use; the zero
// value is ready.
type Meter struct {
	mu         sync.Mutex
	commands   map[string]int64
	serverTime time.Duration
}

// Usage is what a Meter has counted.
type Usage struct {
	Commands   map[string]int64 // by name, in lower case
	ServerTime time.Duration    // time that the server was busy, on its own clock
}

// Usage returns the sums since the start. They never fall.
func (m *Meter) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Usage{maps.Clone(m.commands), m.serverTime}
}

// sent counts commands.
func (m *Meter) sent(cmds []redis.Cmder) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.commands == nil {
		m.commands = make(map[string]int64)
	}
	for _, c := range cmds {
		m.commands[c.Name()]++
	}
}

// busy adds time of the server.
func (m *Meter) busy(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serverTime += d
}

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

// mustDefer defers a scan that would delay the report of events, or the read at the next deadline.
func (w *Watcher) mustDefer(now time.Time) bool {
	if w.keepsEvents(now) {
		w.scan.next = now.Add(shortScanTime)
		return true
	}
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
