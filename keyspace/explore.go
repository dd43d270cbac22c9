package keyspace

import (
	"context"
	"slices"
	"time"
)

// explore walks on until the time is up or the walk is over, at least by one
// page, and takes in what it finds.
func (w *Watcher) explore(ctx context.Context, until time.Time) error {
	if w.pass == nil || w.pass.done() {
		p, err := w.scanner.begin(ctx)
		if err != nil {
			return err
		}
		w.pass, w.passFrom = p, time.Now()
		p.sieve.trusted, p.reader.trusted = w.trusted, w.trusted
		w.meet(p.server, time.Now())
	} else {
		w.pass.cost.Commands, w.pass.cost.Took, w.pass.cost.Busy = 0, 0, 0
	}
	p := w.pass
	p.sieve.known = w.known // which nobody changes while a step is under way
	for !p.done() {
		p.accept(w.hunches.atLeast(p.turn.visited))
		began := time.Now()
		locks, err := w.scanner.step(ctx, p)
		if err != nil {
			return err
		}
		w.read(began)
		w.discover(w.hunches.sort(w.unknown(locks), p.turn.visited, p.now), p.now)
		if now := time.Now(); !now.Before(until) || !w.scanner.opts.Budget.ready(now) {
			break
		}
	}
	if p.done() {
		w.hunches.ended()
		w.passed = time.Since(w.passFrom)
	}
	w.complete = w.complete || p.complete()
	w.cost = p.cost
	w.cost.add(w.reader.reckon())
	return nil
}

// unknown leaves out what is known already: it is left to those that were told
// of its changes, but for its first sight.
func (w *Watcher) unknown(all []found) []found {
	return slices.DeleteFunc(all, func(l found) bool {
		_, known := w.known[l.lock.Key]
		return known
	})
}

// discover takes in what was not known before.
func (w *Watcher) discover(locks []found, now time.Time) {
	for _, l := range locks {
		w.reader.now = now
		was, known, ours := w.adopt(l)
		if !ours {
			continue
		}
		d := w.compare()
		w.update(was, l, known, &d)
	}
}

// ponder looks again at what is just possibly a lock.
func (w *Watcher) ponder(ctx context.Context) error {
	now := time.Now()
	if now.Sub(w.pondered) < checkEvery || !w.scanner.opts.Budget.ready(now) || len(w.hunches.known) == 0 {
		return nil
	}
	w.pondered = now
	w.reader.atLeast = Possible
	read, err := w.reader.take(ctx, w.hunches.refs())
	w.reader.atLeast = w.hunches.enough
	if err != nil {
		return err
	}
	w.read(now)
	for _, l := range w.unknown(w.hunches.look(read, w.reader.now)) {
		w.trusted.put(l.lock)
		was, known, ours := w.adopt(l)
		if !ours {
			continue
		}
		d := w.compare()
		d.watched = false // it was there before
		w.update(was, l, known, &d)
	}
	return nil
}
