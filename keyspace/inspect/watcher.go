package inspect

import (
	"context"
	"fmt"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/internal/cache"
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

	pass *scanPass // nil between two passes
	// the keyspace is not scanned before
	nextScan time.Time
	// last call of scanTime
	lastScan  time.Time
	passTime  time.Duration // duration of the last pass
	passStart time.Time     // begin of the current pass
	complete  bool          // a pass has ended since the last error

	known          lockSet
	sorted         []keyspace.Lock // the known locks as in a snapshot; nil = to be computed
	candidates     *candidates     // keys that are only possibly locks
	confirmed      confirmedKeys
	recheckedAt    time.Time
	companions     map[string]string // companion → its lock
	ignored        map[string]time.Time
	holdStats      keyspace.HoldStats
	deadlines      deadlineQueue
	clients        clientTracker
	pendingReasons map[string]pendingReason     // locks whose holder is gone for a reason that will be known soon
	releasesSeen   cache.Map[keyspace.ID, bool] // locks and families whose releases are published; true = also without waiters

	missedEvents  bool // the server could not be read since the last cycle
	failures      int  // consecutive failed cycles
	retryAt       time.Time
	polledAt      time.Time
	cycleStart    time.Time     // begin of the last cycle
	readStart     time.Time     // begin of the last read of locks
	readEnd       time.Time     // end of the last read of locks
	clockOffset   time.Duration // the server's clock minus the local clock
	lag           lag
	server        keyspace.Server
	serverAt      time.Time        // when server was read
	serverNotice  *keyspace.Notice // change of the server since the last cycle
	mode          keyspace.WatchMode
	modeAt        time.Time       // last time in this mode
	degraded      bool            // the mode is worse than Push, after it was Push
	deniedBefore  int             // number of denied keys after the last cycle
	denied        map[string]bool // known locks that may not be read any more
	cost          keyspace.Cost
	prefixVersion int // version of the cluster's prefixes that this watcher has

	events  []keyspace.Event
	notices []keyspace.Notice
}

// NewWatcher returns a watcher of the locks that s finds. It sends nothing yet.
func NewWatcher(s *Scanner) *Watcher {
	confirmed := make(confirmedKeys)
	reader := s.reader()
	reader.confirmed = confirmed
	return &Watcher{
		scanner: s, reader: reader, confirmed: confirmed, tracking: newTracking(s),
		known: make(lockSet), candidates: newCandidates(s.opts.MinConfidence), companions: make(map[string]string),
		ignored: make(map[string]time.Time), pendingReasons: make(map[string]pendingReason), denied: make(map[string]bool),
	}
}

// Close closes the invalidation connections. The client of the scanner stays open.
func (w *Watcher) Close() {
	w.tracking.close()
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

// Next waits until there may be changes, reads them, and returns the events: at once if
// the server reports changes, at the deadline of a lock, and at least once a second.
// There may be none.
//
// After an error the next call waits before it retries; notices report that the server
// is lost and back. An error of ctx is returned as soon as ctx ends.
func (w *Watcher) Next(ctx context.Context) ([]keyspace.Event, []keyspace.Notice, error) {
	if err := w.wait(ctx); err != nil {
		return nil, nil, err
	}
	err := w.cycle(ctx, false)
	events, notices := w.events, w.notices
	w.events, w.notices = nil, nil
	return events, notices, err
}

// Known returns the known locks without a read. It has no events.
func (w *Watcher) Known() keyspace.Snapshot {
	if w.sorted == nil {
		w.sorted = w.known.locks()
	}
	s := keyspace.Snapshot{At: w.reader.conn.now, Complete: w.complete, Locks: w.sorted}
	if w.pass != nil {
		s = w.scanner.snapshot(w.pass, s.Locks, w.complete)
	}
	s.Server.Skew = w.clockOffset
	for i := range s.Nodes {
		s.Nodes[i].Skew = w.clockOffset
	}
	s.Cost, s.Follow = w.cost, w.status()
	if w.reader.conn.now.After(s.At) {
		s.At = w.reader.conn.now
	}
	return s
}

// takeSnapshot returns the known locks with the events and notices since the last call.
func (w *Watcher) takeSnapshot() keyspace.Snapshot {
	s := w.Known()
	s.Events, s.Notices = w.events, w.notices
	w.events, w.notices = nil, nil
	return s
}

// cycle reads what may have changed and continues the pass if it is due. It repeats a
// cycle once after a lost connection.
func (w *Watcher) cycle(ctx context.Context, all bool) error {
	w.reader.conn.takeCost()
	w.cycleStart = time.Now()
	err := w.tryCycle(ctx, all)
	if w.failures == 0 && isConnLost(err) {
		// A lost connection may be a single failure; a new connection that is refused is not.
		w.pass, w.tracking.disconnected, w.tracking.resync, w.nextScan = nil, true, true, time.Time{}
		err = w.tryCycle(ctx, all)
	}
	if err != nil {
		w.onError(err)
		return err
	}
	w.onSuccess()
	return nil
}

// tryCycle runs one cycle.
func (w *Watcher) tryCycle(ctx context.Context, all bool) error {
	w.dropMoved()
	if !all {
		w.prefixVersion = w.scanner.opts.Cluster.sharePrefixes(&w.tracking, w.prefixVersion)
		w.tracking.maintain(w.known)
	}
	if err := w.refresh(ctx, all); err != nil {
		return err
	}
	now := time.Now()
	if !all && (now.Before(w.nextScan) || w.deferForDeadline(now)) {
		spent := w.reader.conn.takeCost()
		w.cost.Commands, w.cost.Took, w.cost.Busy = spent.Commands, spent.Took, spent.Busy
		return nil
	}
	if err := w.recheckCandidates(ctx); err != nil {
		return err
	}
	if err := w.refreshClients(ctx); err != nil {
		return err
	}
	until := now.Add(w.scanTime())
	if !all && w.complete {
		until = now.Add(min(until.Sub(now), shortScanTime))
	}
	err := w.scanSome(ctx, until)
	w.deferScan(now)
	if err == nil || !isDenied(err) || !w.complete {
		return err
	}
	w.addNotice(keyspace.RightsChanged, fmt.Sprintf("locks that are not known yet cannot be found: %v", err))
	w.nextScan = now.Add(maxRetry)
	return nil
}
