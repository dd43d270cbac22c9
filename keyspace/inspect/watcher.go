package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
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
	ahead    changes // of keys that are read ahead

	scan      scanState
	locks     lockTable
	possible  *possibleLocks
	holdStats holds.Stats
	clients   clientTracker
	endings   endings
	requests  requests

	replication replication
	losses      []keyspace.Loss // never changed

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
	before    time.Time     // begin of the last pass over all keys
	passWait  time.Duration // of the current pass: on the network
	scannedAt time.Time     // end of the last pass over all keys
	next      time.Time     // the keyspace is not scanned before
	last      time.Time     // last call of scanTime
	complete  bool          // a pass has ended since the last error
	history   string        // of writes, when the last pass began: master_replid
	unread    unread        // of the last pass, or of the current one if none has ended
	rescans   int64         // number of scans without the limit that were asked for
	full      bool          // one of them is in progress
	again     bool          // the current pass does not go on
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
		scanner: s, reader: s.reader(), tracking: newTracking(s), possible: newPossibleLocks(s.opts.MinConfidence, s.opts.KeepAlike),
		locks:   newLockTable(),
		endings: endings{pending: make(map[string]pendingReason)}, requests: requests{busy: make(map[string]time.Time)},
	}
	w.reader.confirmed, w.reader.conn.aboard = w.possible.confirmed, w.readAhead
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
		s = w.scan.pass.snapshot(s.Locks, w.scan.complete, keys)
	}
	s.Server.Skew = w.times.clockOffset
	for i := range s.Nodes {
		s.Nodes[i].Skew = w.times.clockOffset
		s.Nodes[i].ScannedAt, s.Nodes[i].ScanTime = w.scan.scannedAt, w.scan.scannedAt.Sub(w.scan.before)
		s.Nodes[i].AnsweredAt, _ = w.scanner.answer.last()
		s.Nodes[i].AskBlind = w.askBlind()
	}
	s.Cost, s.Watch, s.Losses, s.Inversions = w.scan.cost, w.status(), w.losses, w.scanner.opts.Order.Inversions()
	s.At = keyspace.Later(s.At, w.reader.conn.now)
	if due, some := w.locks.deadlines.first(); some && due.Before(s.At) {
		s.At = due
	}
	return s
}

// takeSnapshot returns the known locks with the events, by their time, and the notices since the
// last call.
func (w *Watcher) takeSnapshot() keyspace.Snapshot {
	began := time.Now()
	s := w.Known()
	s.EventsDropped, w.unreported.dropped = w.unreported.dropped, 0
	s.Events, s.Notices = w.unreported.take()
	slices.SortStableFunc(s.Events, func(a, b keyspace.Event) int { return a.At.Compare(b.At) })
	s.Cost.OwnTime = time.Since(began)
	return s
}

// cycle reads what may have changed and continues the pass if it is due. It repeats a
// cycle once after a lost connection, but not after a wait for an answer.
func (w *Watcher) cycle(ctx context.Context, all bool) error {
	w.reader.conn.takeCost()
	w.times.cycleStart = time.Now()
	err := w.tryCycle(ctx, all)
	if slow, network := errors.AsType[net.Error](err); w.failures.count == 0 && isConnLost(err) && !(network && slow.Timeout()) {
		// A lost connection may be a single failure; a new connection that is refused is not.
		w.scan.pass, w.tracking.disconnected, w.tracking.resync, w.scan.next = nil, true, true, time.Time{}
		err = w.tryCycle(ctx, all)
	}
	if err != nil {
		w.onError(ctx, err)
		return err
	}
	w.onSuccess()
	w.followClock(w.reader.conn.now, math.MaxInt64/2)
	if p := w.scan.pass; p != nil {
		w.followClock(p.now, math.MaxInt64/2)
	}
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
	for _, look := range [...]func(context.Context) error{w.sampleReplication, w.catchUp, w.checkForRequests, w.catchUp} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	w.beginRescan()
	now := time.Now()
	if !all && (now.Before(w.scan.next) || w.mustDefer(now)) {
		spent := w.reader.conn.takeCost()
		w.scan.cost.Commands, w.scan.cost.WaitTime, w.scan.cost.ServerTime = spent.Commands, spent.WaitTime, spent.ServerTime
		return nil
	}
	for _, look := range [...]func(context.Context) error{w.catchUp, w.recheckPossible, w.catchUp, w.refreshClients, w.catchUp} {
		if err := look(ctx); err != nil {
			return err
		}
	}
	until := now.Add(w.scanTime())
	if !all && w.scan.complete {
		until = now.Add(min(until.Sub(now), shortScanTime))
	}
	if w.scan.full {
		until = now.Add(maxScanTime)
	}
	err := w.scanSome(ctx, until)
	w.deferScan(now)
	w.endRescan()
	if err == nil || !isDenied(err) || !w.scan.complete {
		return err
	}
	w.addNotice(keyspace.RightsChanged, fmt.Sprintf("new locks cannot be found: %v", err))
	w.scan.next = now.Add(maxRetry)
	return nil
}

// scanSome continues the pass until the time is up or the pass has ended, by one page
// at least, and adds what it finds.
func (w *Watcher) scanSome(ctx context.Context, until time.Time) error {
	if w.scan.pass == nil || w.scan.pass.done() || w.scan.again {
		p, err := w.scanner.startPass(ctx, w.possible)
		if err != nil {
			return err
		}
		w.scan.again = false
		was := cmp.Or(w.replication.runID, w.server.info.RunID) // of detectReplaced, or else of the last scan
		if was != "" && p.server.RunID != "" && p.server.RunID != was {
			return errRestarted
		}
		if w.scan.pass != nil {
			p.networkTime = w.scan.pass.networkTime
		}
		w.scan.pass, w.scan.passStart, w.scan.passWait = p, time.Now(), 0
		p.filter.known = w.locks.known // not changed during a step
		p.worstFirst = !w.scan.complete
		before := w.server.info
		p.server.HadReplicas = p.server.Role == "master" && p.server.Replicas == 0 && before.RunID == p.server.RunID && (before.Replicas > 0 || before.HadReplicas)
		if !p.sized {
			p.cost.Keys = w.scan.cost.Keys // of the pass before
		}
		w.possible.countKnown(w.locks.known)
		w.onServerInfo(p.server, time.Now())
		w.server.databases = p.databases
		p.filter.idles = p.filter.idles && !w.scan.complete
		p.pause, p.reader.conn.aboard = w.catchUp, w.readAhead
		if err := w.catchUp(ctx); err != nil {
			return err
		}
	} else {
		w.scan.pass.cost.Commands, w.scan.pass.cost.WaitTime, w.scan.pass.cost.ServerTime = 0, 0, 0
	}
	p := w.scan.pass
	for !p.done() {
		began := time.Now()
		found, err := p.step(ctx)
		if err != nil {
			w.scan.cost = p.cost
			return err
		}
		w.noteRead(began)
		if err := w.addFound(ctx, p, found); err != nil {
			return err
		}
		w.dropAlike()
		if now := time.Now(); !now.Before(until) || !w.scanner.opts.Budget.allow(now) {
			break
		}
	}
	if p.done() {
		w.possible.endPass()
		w.scan.passTime, w.scan.history = time.Since(w.scan.passStart), p.history
	}
	if p.done() || !w.scan.complete {
		w.scan.unread = p.filter.unread
	}
	if p.complete() {
		w.scan.scannedAt, w.scan.before = time.Now(), w.scan.passStart
	}
	w.scan.complete = w.scan.complete || p.complete()
	w.scan.cost = p.cost
	w.scan.cost.Add(w.reader.conn.takeCost())
	return nil
}

// catchUp reads the changes that were reported during a scan over a slow network. It is called between two stages
// of the scan: none of them has read locks that are not stored yet, except for the probes of the first pass, when it does nothing.
func (w *Watcher) catchUp(ctx context.Context) error {
	if len(w.tracking.wake) == 0 || !w.isSlow() || !w.scan.complete {
		return nil
	}
	return w.refresh(ctx, false)
}

// addFound adds the locks on a page that are not known yet. Known locks are read when their
// changes are reported, or all of their companions may be read at last. A lock that the server may have loaded
// was not acquired since the last pass.
func (w *Watcher) addFound(ctx context.Context, p *scanPass, found []candidate) error {
	loaded, asked := false, false
	for _, c := range found {
		if k, known := w.locks.known[c.lock.Key]; known {
			k.touched = p.now.UnixMilli()
			if k.partial && !c.partial {
				w.locks.readAgain(c.lock.Key, time.Unix(0, 0))
			}
			continue
		}
		if !p.shows(c) {
			continue
		}
		w.reader.conn.now = p.now
		release := w.scanner.opts.Cluster.hold(c.lock.Key)
		was, known, ours := w.adopt(c)
		if newer := was.lastRead.After(w.times.readStart); !ours || newer {
			if release(); newer {
				w.locks.readAgain(c.lock.Key, time.Unix(0, 0))
			}
			continue
		}
		d := w.newDiffer()
		d.Late = time.Since(w.scan.before)
		d.Watched = d.Watched && w.scan.unread.String() == "" // it may have existed, and have become readable
		if d.Watched && !asked {
			r, err := w.readReplication(ctx)
			if err != nil {
				release()
				return err
			}
			asked, loaded = true, r.role == "slave" || r.id != w.scan.history
		}
		d.Watched = d.Watched && !loaded
		w.updateLock(was, c, known, &d)
		release()
	}
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
	sem     chan struct{} // capacity 1; full until the first cycle has ended, and while the watcher is in use
	stop    context.CancelFunc
	done    sync.WaitGroup
	failed  atomic.Pointer[error] // of the last cycle; nil = it succeeded
}

// StartWatcher starts a watcher in the background, which owns it from then on. The
// result must be closed.
func StartWatcher(w *Watcher) *BackgroundWatcher {
	ctx, stop := context.WithCancel(context.Background())
	b := &BackgroundWatcher{watcher: w, sem: make(chan struct{}, 1), stop: stop}
	b.sem <- struct{}{}
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
	if err := b.failed.Load(); err != nil {
		return keyspace.Snapshot{}, *err
	}
	select {
	case b.sem <- struct{}{}:
	case <-ctx.Done():
		return keyspace.Snapshot{}, ctx.Err()
	}
	defer func() { <-b.sem }()
	if err := b.failed.Load(); err != nil {
		return keyspace.Snapshot{}, *err
	}
	return b.watcher.takeSnapshot(), nil
}

// run runs cycles until ctx ends.
func (b *BackgroundWatcher) run(ctx context.Context) {
	w := b.watcher
	for {
		var failed *error
		if err := w.cycle(ctx, false); err != nil {
			failed = &err
		}
		b.failed.Store(failed)
		w.unreported.limit()
		idle := w.idleTime()
		<-b.sem
		if w.wait(ctx, idle) != nil {
			return
		}
		b.sem <- struct{}{}
	}
}
