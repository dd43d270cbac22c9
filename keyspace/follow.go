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
	scanner *Scanner
	reader  reader
	track   tracker

	pass     *pass // nil between two walks
	restsTo  time.Time
	called   time.Time
	passed   time.Duration // from the begin of the last walk to its end
	passFrom time.Time     // when the walk under way began
	complete bool          // the keyspace was walked over since the last error

	known      picture
	sorted     []Lock   // those that are known, as a snapshot has them; nil = not worked out yet
	hunches    *hunches // what is just possibly a lock
	trusted    trust
	pondered   time.Time
	claims     map[string]string // companion → its lock
	dull       map[string]time.Time
	habits     habits
	agenda     agenda
	attendance attendance
	doubts     map[string]doubt  // locks that have lost their holder; why will be known soon
	announced  generations[bool] // locks, and families of them, whose releases are announced; true = also while nobody waits

	blind    bool // nobody knows what happened since the last look
	failures int  // looks that failed, in a row
	retryAt  time.Time
	polledAt time.Time
	lookedAt time.Time     // when the last look began
	readFrom time.Time     // when the last reading of locks began …
	readTo   time.Time     // … and ended
	offset   time.Duration // the server's clock minus ours
	lag      lag
	server   Server
	met      time.Time // when it said so
	news     *Notice   // what the server has said of itself since the last look
	mode     WatchMode
	modeAt   time.Time       // when it was last so
	fell     bool            // from push to something worse
	hidden   int             // of the denied, at the last look
	denied   map[string]bool // known locks that may not be read any more
	cost     Cost
	taught   int // prefixes that the other nodes of a cluster have taught it

	events  []Event
	notices []Notice
}

// NewWatcher returns a watcher of what s finds. Nothing is sent yet.
func NewWatcher(s *Scanner) *Watcher {
	trusted := make(trust)
	reader := s.reader()
	reader.trusted = trusted
	return &Watcher{
		scanner: s, reader: reader, trusted: trusted, track: newTracker(s),
		known: make(picture), hunches: newHunches(s.opts.MinConfidence), claims: make(map[string]string),
		dull: make(map[string]time.Time), doubts: make(map[string]doubt), denied: make(map[string]bool),
	}
}

// Close hangs up what listens for changes. The client of the scanner stays.
func (w *Watcher) Close() {
	w.track.close()
	w.scanner.opts.Cluster.leave(w)
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
	if err := w.look(ctx, true); err != nil {
		return Snapshot{}, err
	}
	return w.picture(), nil
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
	err := w.look(ctx, false)
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
	s.Server.Skew = w.offset
	for i := range s.Nodes {
		s.Nodes[i].Skew = w.offset
	}
	s.Cost, s.Follow = w.cost, w.following()
	if w.reader.now.After(s.At) {
		s.At = w.reader.now
	}
	return s
}

// picture returns what is known, and what has happened since the last time.
func (w *Watcher) picture() Snapshot {
	s := w.Known()
	s.Events, s.Notices = w.events, w.notices
	w.events, w.notices = nil, nil
	return s
}

// look does one round: what has to be read again is read again, and the walk
// goes on if it is its time.
func (w *Watcher) look(ctx context.Context, all bool) error {
	w.reader.reckon()
	w.lookedAt = time.Now()
	err := w.round(ctx, all)
	if w.failures == 0 && lost(err) {
		// To be cut off says nothing; to be refused, or let in again, does.
		w.pass, w.track.hungUp, w.track.resync, w.restsTo = nil, true, true, time.Time{}
		err = w.round(ctx, all)
	}
	if err != nil {
		w.failed(err)
		return err
	}
	w.succeeded()
	return nil
}

func (w *Watcher) round(ctx context.Context, all bool) error {
	w.handOver()
	if !all {
		w.taught = w.scanner.opts.Cluster.teach(&w.track, w.taught)
		w.track.attend(w.known)
	}
	if err := w.reread(ctx, all); err != nil {
		return err
	}
	now := time.Now()
	if !all && (now.Before(w.restsTo) || w.busySoon(now)) {
		spent := w.reader.reckon()
		w.cost.Commands, w.cost.Took, w.cost.Busy = spent.Commands, spent.Took, spent.Busy
		return nil
	}
	if err := w.ponder(ctx); err != nil {
		return err
	}
	if err := w.callRoll(ctx); err != nil {
		return err
	}
	until := now.Add(w.slice())
	if !all && w.complete {
		until = now.Add(min(until.Sub(now), sliceNews))
	}
	err := w.explore(ctx, until)
	w.rest(now)
	if err == nil || !refused(err) || !w.complete {
		return err
	}
	w.notice(RightsChanged, fmt.Sprintf("locks that are not known yet cannot be found: %v", err))
	w.restsTo = now.Add(retryLast)
	return nil
}
