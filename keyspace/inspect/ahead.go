package inspect

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// isSlow reports whether the network is so slow that a read counts by its round trips.
func (w *Watcher) isSlow() bool { return w.stepTime() > shortScanTime }

// readAhead adds the first reads of the keys whose changes were reported meanwhile to a trip over a slow
// network. The running look may take several trips more, and the hold may have ended by then.
// A string is read in one trip if it is known, or if the last lock with such a name was a string. Other keys
// are measured first.
func (w *Watcher) readAhead(ctx context.Context, p redis.Pipeliner) (answered func(by map[redis.Cmder]string)) {
	type first struct {
		*candidate
		typ    *redis.StatusCmd // nil: it is known
		weight *redis.IntCmd    // nil: it is not measured
	}
	var firsts []first
	ready, fresh := w.measuredAhead(), changes{}
	if w.isSlow() {
		fresh = w.tracking.takeSome(w.mayReadAhead)
	}
	for _, key := range fresh.keys {
		c, f := fresh.of[key], first{candidate: &candidate{name: key, lastRead: time.Now()}}
		if k := w.locks.known[key]; k != nil {
			f.candidate.typ = k.typ
		} else if f.typ = p.Type(ctx, key); w.locks.strings[keyspace.AlikeClass(key)] {
			f.candidate.typ = "string" // a guess
		}
		if f.candidate.typ == "string" {
			ready = append(ready, f.candidate)
		} else {
			f.weight = p.MemoryUsage(ctx, key, maxElements)
		}
		firsts = append(firsts, f)
		c.ahead = f.candidate
		w.ahead.add(key, c)
	}
	if len(firsts)+len(ready) == 0 {
		return func(map[redis.Cmder]string) {}
	}
	reads := w.reader.queueReads(ctx, p, ready)
	return func(by map[redis.Cmder]string) {
		for _, q := range reads {
			q.entry, q.absent = w.reader.conn.entryOf(q, by), q.expiry.Val() == -2
		}
		for _, f := range firsts {
			if f.weight != nil {
				f.light, f.absent = f.weight.Err() == nil && f.weight.Val() <= maxElementBytes, errors.Is(f.weight.Err(), redis.Nil)
			}
			if f.typ != nil {
				f.candidate.typ = f.typ.Val()
				f.absent = !w.mayBeLock(f.name, f.typ)
			}
		}
		w.tracking.receive()
		read := fresh.keys
		for _, c := range ready {
			read = append(read, c.name)
		}
		for _, key := range read { // what was reported by now may be part of what was read
			if later, some := w.tracking.pending.of[key]; some {
				w.ahead.add(key, later)
			}
		}
	}
}

// measuredAhead returns the keys whose value the next trip reads.
func (w *Watcher) measuredAhead() (all []*candidate) {
	for _, c := range w.ahead.of {
		if c := c.ahead; c.light && c.entry == nil && !c.absent && !w.reader.substituted(c.typ) {
			all = append(all, c)
		}
	}
	return all
}

// mayReadAhead reports whether a changed key may be read before the next look. A key whose end is not judged yet is
// not: all reports of it must be known then.
func (w *Watcher) mayReadAhead(key string) bool {
	_, read := w.ahead.of[key]
	_, judged := w.endings.pending[key]
	if read || judged || w.locks.companions[key] != "" || len(w.ahead.keys) >= maxUnknown {
		return false
	}
	if k := w.locks.known[key]; k != nil {
		return k.name == key && !w.reader.substituted(k.typ)
	}
	return w.worthChecking(key)
}

// joinAhead returns the changes of the keys that were read ahead, and the others of c. Changes after such a read stay
// for the next look, which begins at once, and so do those of unknown keys that it can read ahead. If a report may
// be missing, what was read ahead counts as not read.
func (w *Watcher) joinAhead(c changes, complete bool) changes {
	all := w.ahead
	w.ahead = changes{}
	all.flushed, all.mark = c.flushed, c.mark
	for key, x := range all.of {
		if !complete {
			x.ahead = nil
			all.of[key] = x
		}
	}
	for _, key := range c.keys {
		read, fresh := all.of[key].ahead, w.locks.known[key] == nil && w.isSlow() && w.mayReadAhead(key)
		if read == nil && fresh && complete || read != nil && (read.entry != nil || read.absent) {
			w.tracking.pending.add(key, c.of[key])
			wakeUp(w.tracking.wake)
			continue
		}
		all.add(key, c.of[key])
	}
	return all
}
