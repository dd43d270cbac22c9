package inspect

import (
	"context"
	"fmt"
	"sync"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// Watcher follows the locks that a scanner finds. The server reports changed keys to it
// if possible; otherwise it polls. It reads a lock again at its deadline. Meanwhile it
// scans the keyspace for other locks. Locks are added as they are found.
//
// A Watcher is for one caller at a time. It must be closed.
type Watcher struct {
	scanner  *Scanner
	reader   reader
	tracking tracking

	scan       scanState
	locks      lockTable
	candidates *candidates // keys that are only possibly locks
	holdStats  holds.Stats
	clients    clientTracker
	endings    endings
	requests   requests

	replication replication

	times         cycleTimes
	failures      failures
	server        serverState
	mode          modeState
	prefixVersion int // version of the cluster's prefixes that this watcher has
	unreported    unreported
}

// scanState is the state of the passes of a watcher.
type scanState struct {
	pass      *scanPass // nil between two passes
	passStart time.Time
	passTime  time.Duration // duration of the last pass
	passWait  time.Duration // of the current pass: on the network
	scannedAt time.Time     // end of the last pass over all keys
	scanTime  time.Duration // duration of the last pass over all keys
	next      time.Time     // the keyspace is not scanned before
	last      time.Time     // last call of scanTime
	complete  bool          // a pass has ended since the last error
	unread    unread        // of the last pass, or of the current one if none has ended
	cost      keyspace.Cost
}

// cycleTimes are the times of the cycles of a watcher.
type cycleTimes struct {
	cycleStart  time.Time // begin of the last cycle
	polledAt    time.Time
	readStart   time.Time     // begin of the last read of locks
	readEnd     time.Time     // end of the last read of locks
	clockOffset time.Duration // the server's clock minus the local clock
	lag         lag
}

// failures are the failed cycles of a watcher.
type failures struct {
	count        int       // consecutive failed cycles
	since        time.Time // last answer before the first of them, on the local clock
	retryAt      time.Time
	missedEvents bool // the server could not be read since the last cycle
}

// unreported is what has happened since the last snapshot or call of Next.
type unreported struct {
	events  []keyspace.Event
	dropped int64 // number of older events that were dropped
	notices []keyspace.Notice
}

// limit drops the oldest events if there are more than eventsKept.
func (u *unreported) limit() {
	if more := len(u.events) - eventsKept; more > 0 {
		u.events = u.events[more:]
		u.dropped += int64(more)
	}
}

// take returns the events and notices since the last call.
func (u *unreported) take() ([]keyspace.Event, []keyspace.Notice) {
	events, notices := u.events, u.notices
	u.events, u.notices = nil, nil
	if len(events) == 0 {
		return nil, notices
	}
	u.events = make([]keyspace.Event, 0, len(events)) // as many may follow
	return events, notices
}

// NewWatcher returns a watcher of the locks that s finds. It sends nothing yet.
func NewWatcher(s *Scanner) *Watcher {
	w := &Watcher{
		scanner: s, reader: s.reader(), tracking: newTracking(s), candidates: newCandidates(s.opts.MinConfidence, s.opts.KeepAlike),
		locks:   newLockTable(),
		endings: endings{pending: make(map[string]pendingReason)}, requests: requests{busy: make(map[string]time.Time)},
	}
	w.reader.confirmed = w.candidates.confirmed
	w.carryOver()
	return w
}

// Close closes the invalidation connections. The client of the scanner stays open. The
// next watcher with the same Carryover and database continues with the locks.
func (w *Watcher) Close() {
	w.tracking.close()
	w.dropMoved()
	w.scanner.opts.Carryover.leave(w)
	w.scanner.opts.Cluster.removeWatcher(w)
}

// Snapshot reads all known locks again, scans for a while, and returns the snapshot.
// Its events are those since the last snapshot. Its cost is that of the call, its
// progress that of the pass. It takes one round trip for every few hundred known locks,
// and some milliseconds of scanning.
//
// After an error all known locks are kept, and the next call continues. But the
// snapshot is incomplete until the next pass has ended, and locks that are gone by then
// have Vanished.
func (w *Watcher) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	if err := w.cycle(ctx, true); err != nil {
		return keyspace.Snapshot{}, err
	}
	return w.takeSnapshot(), nil
}

// Next waits until there may be changes, reads them, and returns the events: immediately if
// the server reports changes, at the deadline of a lock, and at least once a second.
// There may be none.
//
// After an error the next call waits before it retries; notices report that the server
// is lost and back. An error of ctx is returned as soon as ctx ends; notices report then
// that the server is lost if it does not answer.
func (w *Watcher) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	if err := w.wait(ctx, w.idleTime()); err != nil {
		return nil, nil, err
	}
	err := w.cycle(ctx, false)
	events, notices := w.unreported.take()
	return events, notices, err
}

// Known returns the known locks without a read. It has no events. Its time is that of
// the last reply, or the first deadline after which a lock has not been read again: at
// that time the locks are as they were read.
func (w *Watcher) Known() keyspace.Snapshot {
	s := keyspace.Snapshot{At: w.reader.conn.now, Complete: w.scan.complete, Locks: w.locks.inOrder()}
	if w.scan.pass != nil {
		keys := make(unread)
		keys.add(w.scan.unread)
		for _, why := range w.locks.denied {
			keys[why]++
		}
		s = w.scanner.snapshot(w.scan.pass, s.Locks, w.scan.complete, keys)
	}
	s.Server.Skew = w.times.clockOffset
	for i := range s.Nodes {
		s.Nodes[i].Skew = w.times.clockOffset
		s.Nodes[i].ScannedAt, s.Nodes[i].ScanTime = w.scan.scannedAt, w.scan.scanTime
		s.Nodes[i].AnsweredAt = w.scanner.answer.time()
		s.Nodes[i].AskBlind = w.askBlind()
	}
	s.Cost, s.Watch = w.scan.cost, w.status()
	s.At = keyspace.Later(s.At, w.reader.conn.now)
	if due, some := w.locks.deadlines.first(); some && due.Before(s.At) {
		s.At = due
	}
	return s
}

// takeSnapshot returns the known locks with the events and notices since the last call.
func (w *Watcher) takeSnapshot() keyspace.Snapshot {
	began := time.Now()
	s := w.Known()
	s.EventsDropped, w.unreported.dropped = w.unreported.dropped, 0
	s.Events, s.Notices = w.unreported.take()
	s.Cost.OwnTime = time.Since(began)
	return s
}

// cycle reads what may have changed and continues the pass if it is due. It repeats a
// cycle once after a lost connection, but not after a wait for an answer.
func (w *Watcher) cycle(ctx context.Context, all bool) error {
	w.reader.conn.takeCost()
	w.times.cycleStart = time.Now()
	err := w.tryCycle(ctx, all)
	if w.failures.count == 0 && isConnLost(err) && !isTimeout(err) {
		// A lost connection may be a single failure; a new connection that is refused is not.
		w.scan.pass, w.tracking.disconnected, w.tracking.resync, w.scan.next = nil, true, true, time.Time{}
		err = w.tryCycle(ctx, all)
	}
	if err != nil {
		w.onError(ctx, err)
		return err
	}
	w.onSuccess()
	return nil
}

// tryCycle runs one cycle.
func (w *Watcher) tryCycle(ctx context.Context, all bool) error {
	w.dropMoved()
	w.carryOver()
	if !all {
		w.prefixVersion = w.scanner.opts.Cluster.sharePrefixes(&w.tracking.coverage, w.prefixVersion)
		w.tracking.maintain(w.locks.known)
	}
	if err := w.refresh(ctx, all); err != nil {
		return err
	}
	if err := w.sampleReplication(ctx); err != nil {
		return err
	}
	if err := w.checkForRequests(ctx); err != nil {
		return err
	}
	now := time.Now()
	if !all && (now.Before(w.scan.next) || w.deferForEvents(now) || w.deferForDeadline(now)) {
		spent := w.reader.conn.takeCost()
		w.scan.cost.Commands, w.scan.cost.WaitTime, w.scan.cost.ServerTime = spent.Commands, spent.WaitTime, spent.ServerTime
		return nil
	}
	if err := w.recheckCandidates(ctx); err != nil {
		return err
	}
	if err := w.refreshClients(ctx); err != nil {
		return err
	}
	until := now.Add(w.scanTime())
	if !all && w.scan.complete {
		until = now.Add(min(until.Sub(now), shortScanTime))
	}
	err := w.scanSome(ctx, until)
	w.deferScan(now)
	if err == nil || !isDenied(err) || !w.scan.complete {
		return err
	}
	w.addNotice(keyspace.RightsChanged, fmt.Sprintf("new locks cannot be found: %v", err))
	w.scan.next = now.Add(maxRetry)
	return nil
}

// eventsKept is the maximum number of events between two snapshots. The oldest of more
// are dropped and counted.
const eventsKept = 20_000

// BackgroundWatcher runs a watcher in a goroutine, so that no event is missed if
// snapshots are taken rarely. It may be used by several goroutines; each event is in
// one snapshot only.
type BackgroundWatcher struct {
	watcher *Watcher
	sem     chan struct{} // capacity 1; full while the watcher is in use
	ready   chan struct{} // closed after the first cycle
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu  sync.Mutex
	err error // of the last cycle
}

// StartWatcher starts a watcher in the background, which owns it from then on. The
// result must be closed.
func StartWatcher(w *Watcher) *BackgroundWatcher {
	ctx, stop := context.WithCancel(context.Background())
	b := &BackgroundWatcher{watcher: w, sem: make(chan struct{}, 1), ready: make(chan struct{}), stop: stop}
	b.done.Go(func() { b.run(ctx) })
	return b
}

// Close stops the watcher and returns when its goroutines have ended.
func (b *BackgroundWatcher) Close() {
	b.stop()
	b.done.Wait()
	b.watcher.Close()
}

// Snapshot returns the known locks with the events since the last snapshot. It waits
// for the first cycle and for a cycle in progress. If the last cycle failed, it returns
// the error immediately, also while the watcher waits for the server again; events and
// notices are kept for the next snapshot.
func (b *BackgroundWatcher) Snapshot(ctx context.Context) (keyspace.Snapshot, error) {
	select {
	case <-b.ready:
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	if err := b.failed(); err != nil {
		return keyspace.Snapshot{}, err
	}
	select {
	case b.sem <- struct{}{}:
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	defer func() { <-b.sem }()
	if err := b.failed(); err != nil {
		return keyspace.Snapshot{}, err
	}
	return b.watcher.takeSnapshot(), nil
}

// failed returns the error of the last cycle; nil if it succeeded.
func (b *BackgroundWatcher) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// run runs cycles until ctx ends.
func (b *BackgroundWatcher) run(ctx context.Context) {
	w := b.watcher
	for first := true; ; first = false {
		b.sem <- struct{}{}
		err := w.cycle(ctx, false)
		b.mu.Lock()
		b.err = err
		b.mu.Unlock()
		w.unreported.limit()
		idle := w.idleTime()
		<-b.sem
		if first {
			close(b.ready)
		}
		if w.wait(ctx, idle) != nil {
			return
		}
	}
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

// deferScan sets when scanning continues after a scan that began at began. The time on
// the network does not count: it costs neither the server nor this machine.
func (w *Watcher) deferScan(began time.Time) {
	now := time.Now()
	network := w.scan.cost.WaitTime - w.scan.cost.ServerTime
	w.scan.passWait += network
	walked := max(0, now.Sub(began)-network)
	w.scan.next = now.Add((scanShare - 1) * walked)
	if w.scan.pass == nil || !w.scan.pass.done() {
		return
	}
	pause := pollEvery
	if w.tracking.mode() == keyspace.Push {
		pause = passEvery
	}
	w.scan.next = keyspace.Later(w.scan.next, w.scan.passStart.Add(max(pause/2, pause-w.scan.passWait)))
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
