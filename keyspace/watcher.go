package keyspace

import (
	"context"
	"fmt"
	"time"
)

// Watcher keeps an eye on the locks that a scanner finds. It is told by the
// server which keys have changed, where that can be had, and looks again and
// again where not; at a lock's deadline it looks by itself. Meanwhile it goes
// on walking over the keyspace to find others. Locks come in as they are found.
//
// A Watcher is for one caller at a time. It must be closed.
type Watcher struct {
	scanner  *Scanner
	reader   reader
	tracking tracking

	pass      *scanPass // nil between two walks
	nextScan  time.Time
	lastScan  time.Time
	passTime  time.Duration // from the begin of the last walk to its end
	passStart time.Time     // when the walk under way began
	complete  bool          // the keyspace was walked over since the last error

	known          lockSet
	sorted         []Lock      // those that are known, as a snapshot has them; nil = not worked out yet
	candidates     *candidates // what is just possibly a lock
	confirmed      confirmedKeys
	recheckedAt    time.Time
	companions     map[string]string // companion → its lock
	ignored        map[string]time.Time
	holdStats      holdStats
	deadlines      deadlineQueue
	clients        clientTracker
	pendingReasons map[string]pendingReason // locks that have lost their holder; why will be known soon
	releasesSeen   twoGenCache[bool]        // locks, and families of them, whose releases are announced; true = also while nobody waits

	missedEvents  bool // nobody knows what happened since the last look
	failures      int  // looks that failed, in a row
	retryAt       time.Time
	polledAt      time.Time
	cycleStart    time.Time     // when the last look began
	readStart     time.Time     // when the last reading of locks began …
	readEnd       time.Time     // … and ended
	clockOffset   time.Duration // the server's clock minus ours
	lag           lag
	server        Server
	serverAt      time.Time // when it said so
	serverNotice  *Notice   // what the server has said of itself since the last look
	mode          WatchMode
	modeAt        time.Time       // when it was last so
	degraded      bool            // from push to something worse
	deniedBefore  int             // of the denied, at the last look
	denied        map[string]bool // known locks that may not be read any more
	cost          Cost
	prefixVersion int // prefixes that the other nodes of a cluster have taught it

	events  []Event
	notices []Notice
}

// NewWatcher returns a watcher of what s finds. Nothing is sent yet.
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

// Close hangs up what listens for changes. The client of the scanner stays.
func (w *Watcher) Close() {
	w.tracking.close()
	w.scanner.opts.Cluster.removeWatcher(w)
}

// Snapshot looks at all known locks again, walks on for a while, and returns the
// picture. Its events are those since the last snapshot. Its cost is that of the
// call, its progress that of the walk. It takes one round trip for every few
// hundred known locks, and some milliseconds for the walk.
//
// On error nothing of what is known is forgotten, and the next call goes on.
// But the picture is then incomplete until the whole keyspace was walked over
// again: nobody knows what happened meanwhile, and what is gone by then is Vanished.
func (w *Watcher) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := w.cycle(ctx, true); err != nil {
		return Snapshot{}, err
	}
	return w.takeSnapshot(), nil
}

// Next waits until there may be something new, looks at that, and returns what
// has happened: at once if the server tells of changes, at a lock's deadline,
// and at the latest after a second. There may be nothing.
//
// On error the next call waits a while before it tries again; notices say that
// the server is lost, and when it is back. It returns an error of ctx as soon as
// ctx ends.
func (w *Watcher) Next(ctx context.Context) ([]Event, []Notice, error) {
	if err := w.wait(ctx); err != nil {
		return nil, nil, err
	}
	err := w.cycle(ctx, false)
	events, notices := w.events, w.notices
	w.events, w.notices = nil, nil
	return events, notices, err
}

// Known returns the picture as it is known now, without a look at the server.
// What has happened is not in it.
func (w *Watcher) Known() Snapshot {
	if w.sorted == nil {
		w.sorted = w.known.locks()
	}
	s := Snapshot{At: w.reader.now, Complete: w.complete, Locks: w.sorted}
	if w.pass != nil {
		s = w.scanner.snapshot(w.pass, s.Locks, w.complete)
	}
	s.Server.Skew = w.clockOffset
	for i := range s.Nodes {
		s.Nodes[i].Skew = w.clockOffset
	}
	s.Cost, s.Follow = w.cost, w.status()
	if w.reader.now.After(s.At) {
		s.At = w.reader.now
	}
	return s
}

// takeSnapshot returns what is known, and what has happened since the last time.
func (w *Watcher) takeSnapshot() Snapshot {
	s := w.Known()
	s.Events, s.Notices = w.events, w.notices
	w.events, w.notices = nil, nil
	return s
}

// cycle does one round: what has to be read again is read again, and the walk
// goes on if it is its time.
func (w *Watcher) cycle(ctx context.Context, all bool) error {
	w.reader.takeCost()
	w.cycleStart = time.Now()
	err := w.tryCycle(ctx, all)
	if w.failures == 0 && isConnLost(err) {
		// To be cut off says nothing; to be refused, or let in again, does.
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
		spent := w.reader.takeCost()
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
	w.addNotice(RightsChanged, fmt.Sprintf("locks that are not known yet cannot be found: %v", err))
	w.nextScan = now.Add(maxRetry)
	return nil
}
