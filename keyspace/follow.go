package keyspace

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// How often and for how long a follower does what.
const (
	sliceMax   = 20 * time.Millisecond  // of walking, at a time
	sliceNews  = 5 * time.Millisecond   // the same, while events are told
	sliceShare = 10                     // of the time is spent walking, at the most: a tenth
	walkEvery  = time.Second            // between the begins of two walks, while the server tells of changes
	pollEvery  = 100 * time.Millisecond // between two looks at what nobody tells of
	checkEvery = time.Second            // the same where notifications come, which may be lost
	together   = 2 * time.Millisecond   // between two looks, while events are told: what comes within it is read at once
	again      = 5 * time.Millisecond   // after it, what should be gone by now is read again
	doubtFor   = 30 * time.Millisecond  // an announcement may come later than the look that misses the lock
	retryFirst = 100 * time.Millisecond // after a failure, then doubled …
	retryLast  = 2 * time.Second        // … up to this
	modeLasts  = 3 * time.Second        // after which a way to learn of changes counts as another
)

// Follower keeps an eye on the locks that a scanner finds. It is told by the
// server which keys have changed, where that can be had, and looks again and
// again where not; at a lock's deadline it looks by itself. Meanwhile it goes
// on walking over the keyspace to find others. Locks come in as they are found.
//
// A Follower is for one caller at a time. It must be closed.
type Follower struct {
	scanner *Scanner
	reader  reader
	track   tracker

	pass     *pass // nil between two walks
	restsTo  time.Time
	called   time.Time
	complete bool // the keyspace was walked over since the last error

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
	doubts     map[string]time.Time // locks that are gone; why will be known by then
	announced  generations[bool]    // locks whose releases are announced

	blind    bool // nobody knows what happened since the last look
	failures int  // looks that failed, in a row
	retryAt  time.Time
	polledAt time.Time
	lookedAt time.Time     // when the last look began
	offset   time.Duration // the server's clock minus ours
	lag      lag
	server   Server
	met      time.Time // when it said so
	news     *Notice   // what the server has said of itself since the last look
	mode     FollowMode
	modeAt   time.Time       // when it was last so
	fell     bool            // from push to something worse
	hidden   int             // of the denied, at the last look
	denied   map[string]bool // known locks that may not be read any more
	cost     Cost

	events  []Event
	notices []Notice
}

// NewFollower returns a follower of what s finds. Nothing is sent yet.
func NewFollower(s *Scanner) *Follower {
	trusted := make(trust)
	reader := s.reader()
	reader.trusted = trusted
	return &Follower{
		scanner: s, reader: reader, trusted: trusted, track: newTracker(s),
		known: make(picture), hunches: newHunches(s.opts.MinConfidence), claims: make(map[string]string),
		dull: make(map[string]time.Time), doubts: make(map[string]time.Time), denied: make(map[string]bool),
	}
}

// Close hangs up what listens for changes. The client of the scanner stays.
func (f *Follower) Close() { f.track.close() }

// Snapshot looks at all known locks again, walks on for a while, and returns the
// picture. Its events are those since the last snapshot. Its cost is that of the
// call, its progress that of the walk. It takes one round trip for every few
// hundred known locks, and some milliseconds for the walk.
//
// On error nothing of what is known is forgotten, and the next call goes on.
// But the picture is then incomplete until the whole keyspace was walked over
// again: nobody knows what happened meanwhile, and what is gone by then is Gone.
func (f *Follower) Snapshot(ctx context.Context) (Snapshot, error) {
	if err := f.look(ctx, true); err != nil {
		return Snapshot{}, err
	}
	return f.picture(), nil
}

// Next waits until there may be something new, looks at that, and returns what
// has happened: at once if the server tells of changes, at a lock's deadline,
// and at the latest after a second. There may be nothing.
//
// On error the next call waits a while before it tries again; notices say that
// the server is lost, and when it is back. It returns an error of ctx as soon as
// ctx ends.
func (f *Follower) Next(ctx context.Context) ([]Event, []Notice, error) {
	if err := f.wait(ctx); err != nil {
		return nil, nil, err
	}
	err := f.look(ctx, false)
	events, notices := f.events, f.notices
	f.events, f.notices = nil, nil
	return events, notices, err
}

// Known returns the picture as it is known now, without a look at the server.
// What has happened is not in it.
func (f *Follower) Known() Snapshot {
	if f.sorted == nil {
		f.sorted = f.known.locks()
	}
	s := Snapshot{At: f.reader.now, Complete: f.complete, Locks: f.sorted}
	if f.pass != nil {
		s = f.scanner.snapshot(f.pass, s.Locks, f.complete)
	}
	s.Server.Skew = f.offset
	for i := range s.Nodes {
		s.Nodes[i].Skew = f.offset
	}
	s.Cost, s.Follow = f.cost, f.following()
	if f.reader.now.After(s.At) {
		s.At = f.reader.now
	}
	return s
}

// picture returns what is known, and what has happened since the last time.
func (f *Follower) picture() Snapshot {
	s := f.Known()
	s.Events, s.Notices = f.events, f.notices
	f.events, f.notices = nil, nil
	return s
}

// look does one round: what has to be read again is read again, and the walk
// goes on if it is its time.
func (f *Follower) look(ctx context.Context, all bool) error {
	f.reader.reckon()
	f.lookedAt = time.Now()
	err := f.round(ctx, all)
	if f.failures == 0 && lost(err) {
		// To be cut off says nothing; to be refused, or let in again, does.
		f.pass, f.track.hungUp, f.track.resync = nil, true, true
		err = f.round(ctx, all)
	}
	if err != nil {
		f.failed(err)
		return err
	}
	f.succeeded()
	return nil
}

func (f *Follower) round(ctx context.Context, all bool) error {
	if !all {
		f.track.attend(f.known)
	}
	if err := f.reread(ctx, all); err != nil {
		return err
	}
	now := time.Now()
	if !all && (now.Before(f.restsTo) || f.busySoon(now)) {
		spent := f.reader.reckon()
		f.cost.Commands, f.cost.Took, f.cost.Busy = spent.Commands, spent.Took, spent.Busy
		return nil
	}
	if err := f.ponder(ctx); err != nil {
		return err
	}
	if err := f.callRoll(ctx); err != nil {
		return err
	}
	until := now.Add(f.slice())
	if !all && f.complete {
		until = now.Add(min(until.Sub(now), sliceNews))
	}
	err := f.explore(ctx, until)
	f.rest(now)
	if err == nil || !refused(err) || !f.complete {
		return err
	}
	f.notice(RightsChanged, fmt.Sprintf("locks that are not known yet cannot be found: %v", err))
	f.restsTo = now.Add(retryLast)
	return nil
}

// reread looks again at what may have changed.
func (f *Follower) reread(ctx context.Context, all bool) error {
	if err := f.recognise(ctx); err != nil {
		return err
	}
	h := f.track.news()
	now := f.serverNow()
	keys := f.agenda.due(now)
	switch {
	case all, f.blind, h.flushed, f.track.resync, f.polls():
		f.polledAt = time.Now()
		for key := range f.known {
			keys = append(keys, key)
		}
	default:
		keys = append(keys, f.track.uncovered(f.known)...)
	}
	keys = append(keys, h.keys...)
	if err := f.refresh(ctx, f.concerned(keys), h); err != nil {
		f.track.put(h) // or what was heard would be lost
		return err
	}
	if h.flushed {
		f.notice(ServerFlushed, "a database was emptied")
	}
	f.track.resync = false
	f.lag.read(h)
	return nil
}

// recognise makes sure that a server that has hung up is still the one that was
// looked at. If it is another process, nobody knows why what is gone is gone.
func (f *Follower) recognise(ctx context.Context) error {
	f.track.bury()
	if !f.track.hungUp {
		return nil
	}
	f.track.hungUp = false
	return f.reader.expect(ctx, f.server.RunID)
}

// polls reports whether it is time to look at everything, because nobody tells
// of changes.
func (f *Follower) polls() bool {
	every := map[FollowMode]time.Duration{Polling: pollEvery, Notify: checkEvery}[f.track.mode()]
	return every > 0 && time.Since(f.polledAt) >= every
}

// concerned returns the locks that keys belong to, each once.
func (f *Follower) concerned(keys []string) []string {
	seen := make(map[string]bool, len(keys))
	var locks []string
	for _, key := range keys {
		if owner, beside := f.claims[key]; beside {
			key = owner
		}
		if !seen[key] {
			seen[key] = true
			locks = append(locks, key)
		}
	}
	return locks
}

// refresh reads keys again, known ones and strangers, and books what has become
// of them.
func (f *Follower) refresh(ctx context.Context, keys []string, h heard) error {
	refs := make([]ref, 0, len(keys))
	var strangers []string
	for _, key := range keys {
		if k, known := f.known[key]; known {
			refs = append(refs, ref{key: key, typ: k.typ, again: true})
		} else if f.promising(key) {
			strangers = append(strangers, key)
		}
	}
	asked := f.reader.cost.Commands
	more, err := f.introduce(ctx, strangers)
	if err != nil {
		return err
	}
	began := time.Now()
	still, err := f.reader.take(ctx, append(refs, more...))
	if err != nil {
		return err
	}
	if f.reader.cost.Commands > asked { // or what the clock said is old
		f.clock(began)
	}
	for _, key := range f.reader.plain {
		f.dull[key] = began
	}
	found := make(map[string]found, len(still))
	for _, l := range still {
		found[l.lock.Key] = l
	}
	return f.book(ctx, keys, found, h)
}

// book compares what was read with what was known, in the order of keys.
func (f *Follower) book(ctx context.Context, keys []string, read map[string]found, h heard) error {
	evicting := new(evictions)
	for _, key := range keys {
		was, known := f.known[key]
		now, there := read[key]
		if !known && !there {
			continue
		}
		if known && !there && slices.Contains(f.reader.denied, key) {
			f.denied[key] = true
			f.agenda.put(key, f.reader.now.Add(checkEvery))
			continue
		}
		delete(f.denied, key)
		w, sure, err := f.witness(ctx, was, now, h, evicting)
		if err != nil {
			return err
		}
		if !sure {
			continue
		}
		delete(f.doubts, key)
		d := f.compare()
		d.witness, d.moved = w, h.again[key]
		switch {
		case !there:
			f.forget(was, &d)
		default:
			f.update(was, now, known, &d)
		}
	}
	return nil
}

// compare returns a comparison of what was read last with what was known.
func (f *Follower) compare() diff {
	return diff{
		at: f.reader.now, watched: f.complete && !f.blind, blind: f.blind,
		slack: f.track.slack(), blur: f.reader.blur(),
	}
}

// update takes in a lock that was read.
func (f *Follower) update(was, now found, known bool, d *diff) {
	began := time.Time{}
	if known && !d.blind || d.watched {
		began = d.at
	}
	now.lock = carried(was.lock, now.lock, known, d.at, began, d.blur)
	if known {
		d.change(was.lock, now.lock)
	} else {
		d.appear(now.lock)
	}
	f.habits.learn(d.events)
	f.habits.tell(&now.lock)
	for i := range d.events {
		d.events[i].Lock = now.lock
	}
	f.events = append(f.events, d.events...)
	key := now.lock.Key
	f.known[key], f.sorted = now, nil
	f.claim(was, now)
	f.track.learn(now)
	f.agenda.put(key, f.appointment(now.lock))
}

// forget takes out a lock that is gone.
func (f *Follower) forget(was found, d *diff) {
	d.vanish(was.lock)
	f.habits.learn(d.events)
	f.events = append(f.events, d.events...)
	delete(f.known, was.lock.Key)
	f.sorted = nil
	f.claim(was, found{})
	f.agenda.put(was.lock.Key, time.Time{})
}

// claim notes which lock the companions belong to.
func (f *Follower) claim(was, now found) {
	for _, c := range was.claims {
		delete(f.claims, c.Key)
	}
	for _, c := range now.claims {
		if c.Key != now.lock.Key {
			f.claims[c.Key] = now.lock.Key
		}
	}
}

// appointment is when a lock has to be looked at by itself: at the first of its
// deadlines, on the server's clock.
func (f *Follower) appointment(l Lock) time.Time {
	first := l.Expires
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, h := range l.Holders {
		sooner(h.Expires)
	}
	for _, w := range l.Waiters {
		if w.Expires.After(f.reader.now) {
			sooner(w.Expires)
		}
	}
	if first.IsZero() {
		return first
	}
	soonest := f.reader.now.Add(again)
	if first = first.Add(time.Millisecond); first.Before(soonest) {
		return soonest
	}
	return first
}

// explore walks on until the time is up or the walk is over, at least by one
// page, and takes in what it finds.
func (f *Follower) explore(ctx context.Context, until time.Time) error {
	if f.pass == nil || f.pass.done() {
		p, err := f.scanner.begin(ctx)
		if err != nil {
			return err
		}
		f.pass = p
		p.sieve.trusted, p.reader.trusted = f.trusted, f.trusted
		f.meet(p.server, time.Now())
	} else {
		f.pass.cost.Commands, f.pass.cost.Took, f.pass.cost.Busy = 0, 0, 0
	}
	p := f.pass
	for !p.done() {
		p.accept(f.hunches.atLeast(p.visited))
		locks, err := f.scanner.step(ctx, p)
		if err != nil {
			return err
		}
		f.discover(f.hunches.sort(f.unknown(locks), p.visited, p.now), p.now)
		if now := time.Now(); !now.Before(until) || !f.scanner.opts.Pace.ready(now) {
			break
		}
	}
	if p.done() {
		f.hunches.ended()
	}
	f.complete = f.complete || p.complete()
	f.cost = p.cost
	f.cost.add(f.reader.reckon())
	return nil
}

// unknown leaves out what is known already: it is left to those that were told
// of its changes, but for its first sight.
func (f *Follower) unknown(all []found) []found {
	return slices.DeleteFunc(all, func(l found) bool {
		_, known := f.known[l.lock.Key]
		return known
	})
}

// discover takes in what was not known before.
func (f *Follower) discover(locks []found, now time.Time) {
	for _, l := range locks {
		f.reader.now = now
		d := f.compare()
		f.update(found{}, l, false, &d)
	}
}

// ponder looks again at what is just possibly a lock.
func (f *Follower) ponder(ctx context.Context) error {
	now := time.Now()
	if now.Sub(f.pondered) < checkEvery || !f.scanner.opts.Pace.ready(now) || len(f.hunches.known) == 0 {
		return nil
	}
	f.pondered = now
	f.reader.atLeast = Possible
	read, err := f.reader.take(ctx, f.hunches.refs())
	f.reader.atLeast = f.hunches.enough
	if err != nil {
		return err
	}
	for _, l := range f.unknown(f.hunches.look(read, f.reader.now)) {
		f.trusted.put(l.lock)
		d := f.compare()
		d.watched = false // it was there before
		f.update(found{}, l, false, &d)
	}
	return nil
}

// meet notes what the server says of itself.
func (f *Follower) meet(s Server, now time.Time) {
	const rounding = 2 * time.Second // its clock and its start are in whole seconds
	was, passed := f.server, now.Sub(f.met)
	f.server, f.met = s, now
	switch {
	case was.RunID == "" || s.RunID == "":
	case was.RunID == s.RunID && was.Role == "master" && s.Role == "slave":
		f.news = &Notice{Kind: ServerFailover, Text: "the server is a replica now"}
	case was.RunID == s.RunID:
	case s.Port == was.Port && s.Uptime < passed+rounding:
		f.news = &Notice{Kind: ServerRestarted, Text: "it was started again"}
	default:
		f.news = &Notice{Kind: ServerFailover, Text: fmt.Sprintf("another server has taken its place, which is up for %v", s.Uptime)}
	}
}

// slice is how long a look may walk: as long as it may be while the first
// picture is incomplete, then a share of the time that has passed.
func (f *Follower) slice() time.Duration {
	now := time.Now()
	passed := now.Sub(f.called)
	f.called = now
	if !f.complete {
		return sliceMax
	}
	return min(passed/sliceShare, sliceMax)
}

// busySoon reports whether a walk would be in the way of the next deadline, and
// puts the walk off until after it. It can be put off for a while only.
func (f *Follower) busySoon(now time.Time) bool {
	due, some := f.agenda.first()
	if !some || !f.complete || now.Sub(f.called) > walkEvery {
		return false
	}
	at := due.Add(-f.offset)
	if at.Sub(now) > sliceNews {
		return false
	}
	f.restsTo = at.Add(time.Millisecond)
	return true
}

// rest says until when not to walk, after a slice that began at a time.
func (f *Follower) rest(began time.Time) {
	now := time.Now()
	f.restsTo = now.Add((sliceShare - 1) * now.Sub(began))
	if f.pass == nil || !f.pass.done() {
		return
	}
	pause := pollEvery
	if f.track.mode() == Push {
		pause = walkEvery
	}
	if until := began.Add(pause); until.After(f.restsTo) {
		f.restsTo = until
	}
}

// wait returns when there may be something to look at.
func (f *Follower) wait(ctx context.Context) error {
	timer := time.NewTimer(f.leisure())
	defer timer.Stop()
	wake := f.track.wake()
	if f.failures > 0 {
		wake = nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	case <-wake:
	}
	left := together - time.Since(f.lookedAt)
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
func (f *Follower) leisure() time.Duration {
	now := time.Now()
	if f.failures > 0 {
		return f.retryAt.Sub(now)
	}
	until := now.Add(checkEvery)
	sooner := func(t time.Time) {
		if t.Before(until) {
			until = t
		}
	}
	sooner(f.restsTo)
	if due, some := f.agenda.first(); some {
		sooner(due.Add(-f.offset))
	}
	if f.track.mode() != Push || len(f.track.strays) > 0 {
		sooner(f.polledAt.Add(pollEvery))
	}
	return max(0, until.Sub(now))
}

// failed books a look that failed.
func (f *Follower) failed(err error) {
	f.pass, f.complete, f.blind, f.restsTo = nil, false, true, time.Time{}
	f.attendance.came = nil // it may be another server by now
	if f.failures == 0 {
		f.notice(ServerLost, err.Error())
	}
	pause := min(retryFirst<<min(f.failures, 10), retryLast)
	f.failures++
	f.retryAt = time.Now().Add(pause)
}

// succeeded books a look that went well.
func (f *Follower) succeeded() {
	switch {
	case f.failures > 0 && f.news != nil:
		f.notice(ServerBack, f.news.Text)
	case f.failures > 0:
		f.notice(ServerBack, "")
	case f.news != nil:
		f.notice(f.news.Kind, f.news.Text)
	}
	f.failures, f.blind, f.news = 0, false, nil
	f.modes()
	was := f.hidden
	f.hidden = len(f.denied)
	switch {
	case was == 0 && f.hidden > 0:
		f.notice(RightsChanged, "known locks may not be read any more; they are shown as they were")
	case was > 0 && f.hidden == 0:
		f.notice(RightsChanged, "all known locks may be read again")
	}
}

// modes tells when changes are learnt of in another way than before, and that
// lasts.
func (f *Follower) modes() {
	now, mode := time.Now(), f.track.mode()
	switch {
	case mode == f.mode:
		f.modeAt = now
	case f.mode == "" || now.Sub(f.modeAt) > modeLasts:
		if f.mode == Push || f.fell {
			f.notice(FollowChanged, "changes are learnt of by "+string(mode)+" now")
			f.fell = mode != Push
		}
		f.mode, f.modeAt = mode, now
	}
}

// notice books something that happened to the server, or to our view of it.
func (f *Follower) notice(kind NoticeKind, text string) {
	n := Notice{At: time.Now(), Kind: kind, Node: f.scanner.node, Text: text}
	if last := len(f.notices) - 1; last >= 0 && f.notices[last].Kind == kind && f.notices[last].Text == text {
		return
	}
	f.notices = append(f.notices, n)
}

// clock compares the server's clock with ours. A reading is old by the time it
// comes: the one that puts the server ahead most is the best.
func (f *Follower) clock(began time.Time) {
	offset := time.Until(f.reader.now)
	if offset < f.offset && f.offset-offset < time.Since(began)+time.Second && f.offset != 0 {
		return
	}
	f.offset = offset
}

// serverNow is what the server's clock says, as far as we know.
func (f *Follower) serverNow() time.Time { return time.Now().Add(f.offset) }

// following says how the locks are followed.
func (f *Follower) following() Follow {
	follow := Follow{Mode: f.track.mode(), Lag: f.lag.of(), Blind: f.track.blind(f.reader.formats)}
	if follow.Mode == Polling {
		follow.Lag = pollEvery
	}
	follow.Blind = append(follow.Blind, f.attendance.blind(f.reader.refused.has(rolling))...)
	if n := len(f.denied); n > 0 {
		follow.Blind = append(follow.Blind, fmt.Sprintf("%d known locks may not be read by this user any more", n))
	}
	return follow
}
