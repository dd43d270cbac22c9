package keyspace

import (
	"context"
	"slices"
	"time"
)

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
	f.read(began)
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
	f.handOver()
	for _, key := range keys {
		was, known := f.known[key]
		now, there := read[key]
		if !known && there {
			var ours bool
			if was, known, ours = f.adopt(now); !ours {
				continue
			}
		}
		if !known && !there {
			continue
		}
		if !there && slices.Contains(f.reader.astray, key) {
			f.agenda.put(key, f.reader.now.Add(pollEvery))
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
		d.spread, d.held = was.spread+now.spread, f.heldFor(was, h.since[key])
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

// read notes that locks have been read since a moment of our clock.
func (f *Follower) read(since time.Time) { f.readFrom, f.readTo = since, time.Now() }

// heldFor is how long the holder of a lock that has changed had held it under its
// deadline, at the least: until it was read so for the last time, or until shortly
// before we were told that it has changed, if no such message can have been lost.
func (f *Follower) heldFor(was found, told time.Time) time.Duration {
	held := was.last.Sub(was.first)
	if !told.IsZero() && !f.track.resync {
		held = max(held, told.Sub(was.first)-toldLate)
	}
	return held
}

// since carries over since when a lock is known as it is: by the same holder, under
// the same deadline, which is the one that was read first.
func (f *Follower) since(was found, now *found) {
	now.first, now.last = f.readTo, f.readFrom
	if soleHolder(was.lock) != "" && soleHolder(was.lock) == soleHolder(now.lock) && was.lock.Expires.Equal(now.lock.Expires) {
		now.first, now.spread = was.first, was.spread
	}
}

// update takes in a lock that was read.
func (f *Follower) update(was, now found, known bool, d *diff) {
	began := time.Time{}
	if known && !d.blind || d.watched {
		began = d.at
	}
	if known && was.lock.Node != now.lock.Node {
		was.lock, d.moved = arrived(was.lock, now.lock), true
	}
	now.lock = carried(was.lock, now.lock, known, d.at, began, d.blur)
	f.since(was, &now)
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
	f.scanner.opts.Cluster.note(f, now)
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
	f.scanner.opts.Cluster.drop(f, was.lock.Key)
}

// adopt returns what is known of a lock that this follower has found, if another
// node of the cluster has had it until now: it has moved, and goes on. It is not
// ours if it was read on another node, whose follower has it already.
func (f *Follower) adopt(l found) (was found, known, ours bool) {
	cluster := f.scanner.opts.Cluster
	if f.away(l.lock) && cluster.others(l.lock.Key, f) {
		return found{}, false, false
	}
	if was, known = cluster.claim(l.lock.Key, f); known {
		f.known[l.lock.Key] = was
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
func (f *Follower) away(l Lock) bool { return l.Node != f.reader.node }

// handOver forgets the locks that other nodes of the cluster have by now. Nothing
// has happened to them.
func (f *Follower) handOver() {
	for _, key := range f.scanner.opts.Cluster.lostTo(f) {
		was := f.known[key]
		delete(f.known, key)
		delete(f.doubts, key)
		delete(f.denied, key)
		f.sorted = nil
		f.claim(was, found{})
		f.agenda.put(key, time.Time{})
	}
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
	if f.away(l) { // nobody tells this follower of its changes
		sooner(f.reader.now.Add(pollEvery))
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
