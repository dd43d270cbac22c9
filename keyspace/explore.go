package keyspace

import (
	"context"
	"slices"
	"time"
)

// explore walks on until the time is up or the walk is over, at least by one
// page, and takes in what it finds.
func (f *Follower) explore(ctx context.Context, until time.Time) error {
	if f.pass == nil || f.pass.done() {
		p, err := f.scanner.begin(ctx)
		if err != nil {
			return err
		}
		f.pass, f.passFrom = p, time.Now()
		p.sieve.trusted, p.reader.trusted = f.trusted, f.trusted
		f.meet(p.server, time.Now())
	} else {
		f.pass.cost.Commands, f.pass.cost.Took, f.pass.cost.Busy = 0, 0, 0
	}
	p := f.pass
	p.sieve.known = f.known // which nobody changes while a step is under way
	for !p.done() {
		p.accept(f.hunches.atLeast(p.turn.visited))
		began := time.Now()
		locks, err := f.scanner.step(ctx, p)
		if err != nil {
			return err
		}
		f.read(began)
		f.discover(f.hunches.sort(f.unknown(locks), p.turn.visited, p.now), p.now)
		if now := time.Now(); !now.Before(until) || !f.scanner.opts.Pace.ready(now) {
			break
		}
	}
	if p.done() {
		f.hunches.ended()
		f.passed = time.Since(f.passFrom)
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
		was, known, ours := f.adopt(l)
		if !ours {
			continue
		}
		d := f.compare()
		f.update(was, l, known, &d)
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
	f.read(now)
	for _, l := range f.unknown(f.hunches.look(read, f.reader.now)) {
		f.trusted.put(l.lock)
		was, known, ours := f.adopt(l)
		if !ours {
			continue
		}
		d := f.compare()
		d.watched = false // it was there before
		f.update(was, l, known, &d)
	}
	return nil
}
