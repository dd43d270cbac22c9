package keyspace

import (
	"context"
	"slices"
	"time"
)

// reread looks again at what may have changed.
func (w *Watcher) reread(ctx context.Context, all bool) error {
	if err := w.recognise(ctx); err != nil {
		return err
	}
	h := w.track.news()
	now := w.serverNow()
	keys := w.agenda.due(now)
	switch {
	case all, w.blind, h.flushed, w.track.resync, w.polls():
		w.polledAt = time.Now()
		for key := range w.known {
			keys = append(keys, key)
		}
	default:
		keys = append(keys, w.track.uncovered(w.known)...)
	}
	keys = append(keys, h.keys...)
	if err := w.refresh(ctx, w.concerned(keys), h); err != nil {
		w.track.put(h) // or what was heard would be lost
		return err
	}
	if h.flushed {
		w.notice(ServerFlushed, "a database was emptied")
	}
	w.track.resync = false
	w.lag.read(h)
	return nil
}

// recognise makes sure that a server that has hung up is still the one that was
// looked at. If it is another process, nobody knows why what is gone is gone.
func (w *Watcher) recognise(ctx context.Context) error {
	w.track.bury()
	if !w.track.hungUp {
		return nil
	}
	w.track.hungUp = false
	return w.reader.expect(ctx, w.server.RunID)
}

// polls reports whether it is time to look at everything, because nobody tells
// of changes.
func (w *Watcher) polls() bool {
	every := map[WatchMode]time.Duration{Polling: pollEvery, Notifications: checkEvery}[w.track.mode()]
	return every > 0 && time.Since(w.polledAt) >= every
}

// concerned returns the locks that keys belong to, each once.
func (w *Watcher) concerned(keys []string) []string {
	seen := make(map[string]bool, len(keys))
	var locks []string
	for _, key := range keys {
		if owner, beside := w.claims[key]; beside {
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
func (w *Watcher) refresh(ctx context.Context, keys []string, h heard) error {
	refs := make([]ref, 0, len(keys))
	var strangers []string
	for _, key := range keys {
		if k, known := w.known[key]; known {
			refs = append(refs, ref{key: key, typ: k.typ, again: true})
		} else if w.promising(key) {
			strangers = append(strangers, key)
		}
	}
	asked := w.reader.cost.Commands
	more, err := w.introduce(ctx, strangers)
	if err != nil {
		return err
	}
	began := time.Now()
	still, err := w.reader.take(ctx, append(refs, more...))
	if err != nil {
		return err
	}
	w.read(began)
	if w.reader.cost.Commands > asked { // or what the clock said is old
		w.clock(began)
	}
	for _, key := range w.reader.plain {
		w.dull[key] = began
	}
	found := make(map[string]found, len(still))
	for _, l := range still {
		found[l.lock.Key] = l
	}
	return w.book(ctx, keys, found, h)
}

// book compares what was read with what was known, in the order of keys.
func (w *Watcher) book(ctx context.Context, keys []string, read map[string]found, h heard) error {
	evicting := new(evictions)
	w.handOver()
	for _, key := range keys {
		was, known := w.known[key]
		now, there := read[key]
		if !known && there {
			var ours bool
			if was, known, ours = w.adopt(now); !ours {
				continue
			}
		}
		if !known && !there {
			continue
		}
		if !there && slices.Contains(w.reader.astray, key) {
			w.agenda.put(key, w.reader.now.Add(pollEvery))
			continue
		}
		if known && !there && slices.Contains(w.reader.denied, key) {
			w.denied[key] = true
			w.agenda.put(key, w.reader.now.Add(checkEvery))
			continue
		}
		delete(w.denied, key)
		reason, sure, err := w.witness(ctx, was, now, h, evicting)
		if err != nil {
			return err
		}
		if !sure {
			continue
		}
		delete(w.doubts, key)
		d := w.compare()
		d.witness, d.moved = reason, h.again[key]
		d.spread, d.held = was.spread+now.spread, w.heldFor(was, h.since[key])
		switch {
		case !there:
			w.forget(was, &d)
		default:
			w.update(was, now, known, &d)
		}
	}
	return nil
}

// compare returns a comparison of what was read last with what was known.
func (w *Watcher) compare() diff {
	return diff{
		at: w.reader.now, watched: w.complete && !w.blind, blind: w.blind,
		slack: w.track.slack(), blur: w.reader.blur(),
	}
}

// read notes that locks have been read since a moment of our clock.
func (w *Watcher) read(since time.Time) { w.readFrom, w.readTo = since, time.Now() }

// heldFor is how long the holder of a lock that has changed had held it under its
// deadline, at the least: until it was read so for the last time, or until shortly
// before we were told that it has changed, if no such message can have been lost.
func (w *Watcher) heldFor(was found, told time.Time) time.Duration {
	held := was.last.Sub(was.first)
	if !told.IsZero() && !w.track.resync {
		held = max(held, told.Sub(was.first)-toldLate)
	}
	return held
}

// since carries over since when a lock is known as it is: by the same holder, under
// the same deadline, which is the one that was read first.
func (w *Watcher) since(was found, now *found) {
	now.first, now.last = w.readTo, w.readFrom
	if soleHolder(was.lock) != "" && soleHolder(was.lock) == soleHolder(now.lock) && was.lock.Expires.Equal(now.lock.Expires) {
		now.first, now.spread = was.first, was.spread
	}
}

// update takes in a lock that was read.
func (w *Watcher) update(was, now found, known bool, d *diff) {
	began := time.Time{}
	if known && !d.blind || d.watched {
		began = d.at
	}
	if known && was.lock.Node != now.lock.Node {
		was.lock, d.moved = arrived(was.lock, now.lock), true
	}
	now.lock = carried(was.lock, now.lock, known, d.at, began, d.blur)
	w.since(was, &now)
	if known {
		d.change(was.lock, now.lock)
	} else {
		d.appear(now.lock)
	}
	w.habits.learn(d.events)
	w.habits.tell(&now.lock)
	for i := range d.events {
		d.events[i].Lock = now.lock
	}
	w.events = append(w.events, d.events...)
	key := now.lock.Key
	w.known[key], w.sorted = now, nil
	w.claim(was, now)
	w.track.learn(now)
	w.agenda.put(key, w.appointment(now.lock))
	w.scanner.opts.Cluster.note(w, now)
}

// forget takes out a lock that is gone.
func (w *Watcher) forget(was found, d *diff) {
	d.vanish(was.lock)
	w.habits.learn(d.events)
	w.events = append(w.events, d.events...)
	delete(w.known, was.lock.Key)
	w.sorted = nil
	w.claim(was, found{})
	w.agenda.put(was.lock.Key, time.Time{})
	w.scanner.opts.Cluster.drop(w, was.lock.Key)
}

// adopt returns what is known of a lock that this watcher has found, if another
// node of the cluster has had it until now: it has moved, and goes on. It is not
// ours if it was read on another node, whose watcher has it already.
func (w *Watcher) adopt(l found) (was found, known, ours bool) {
	cluster := w.scanner.opts.Cluster
	if w.away(l.lock) && cluster.others(l.lock.Key, w) {
		return found{}, false, false
	}
	if was, known = cluster.claim(l.lock.Key, w); known {
		w.known[l.lock.Key] = was
	}
	return was, known, true
}

// transitMost is by how much a deadline may be later when its key has moved to another
// node: MIGRATE sends what is left of the time to live, and not the deadline.
const transitMost = time.Second

// arrived returns the lock as it was on another node, with the deadlines that it has here
// where they differ only by the time of the transit: it was not renewed.
func arrived(was, now Lock) Lock {
	here := func(was, now time.Time) time.Time {
		if !was.IsZero() && !now.IsZero() && now.Sub(was).Abs() <= transitMost {
			return now
		}
		return was
	}
	if !sharesHolder(was, now) {
		return was
	}
	was.Expires, was.Holders = here(was.Expires, now.Expires), slices.Clone(was.Holders)
	for i, h := range was.Holders {
		if held, stays := now.holder(h.ID); stays {
			was.Holders[i].Expires = here(h.Expires, held.Expires)
		}
	}
	return was
}

// away reports whether a lock was read on another node of the cluster.
func (w *Watcher) away(l Lock) bool { return l.Node != w.reader.node }

// handOver forgets the locks that other nodes of the cluster have by now. Nothing
// has happened to them.
func (w *Watcher) handOver() {
	for _, key := range w.scanner.opts.Cluster.lostTo(w) {
		was := w.known[key]
		delete(w.known, key)
		delete(w.doubts, key)
		delete(w.denied, key)
		w.sorted = nil
		w.claim(was, found{})
		w.agenda.put(key, time.Time{})
	}
}

// claim notes which lock the companions belong to.
func (w *Watcher) claim(was, now found) {
	for _, c := range was.claims {
		delete(w.claims, c.Key)
	}
	for _, c := range now.claims {
		if c.Key != now.lock.Key {
			w.claims[c.Key] = now.lock.Key
		}
	}
}

// appointment is when a lock has to be looked at by itself: at the first of its
// deadlines, on the server's clock.
func (w *Watcher) appointment(l Lock) time.Time {
	first := l.Expires
	sooner := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, h := range l.Holders {
		sooner(h.Expires)
	}
	for _, waiter := range l.Waiters {
		if waiter.Expires.After(w.reader.now) {
			sooner(waiter.Expires)
		}
	}
	if w.away(l) { // nobody tells this watcher of its changes
		sooner(w.reader.now.Add(pollEvery))
	}
	if first.IsZero() {
		return first
	}
	soonest := w.reader.now.Add(again)
	if first = first.Add(time.Millisecond); first.Before(soonest) {
		return soonest
	}
	return first
}
