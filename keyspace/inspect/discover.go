package inspect

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/keyspace"
)

// scanSome continues the pass until the time is up or the pass has ended, by one page
// at least, and adds what it finds.
func (w *Watcher) scanSome(ctx context.Context, until time.Time) error {
	if w.scan.pass == nil || w.scan.pass.done() {
		p, err := w.scanner.startPass(ctx)
		if err != nil {
			return err
		}
		was := cmp.Or(w.replication.runID, w.server.info.RunID) // of detectReplaced, or else of the last scan
		if was != "" && p.server.RunID != "" && p.server.RunID != was {
			return errRestarted
		}
		w.scan.pass, w.scan.passStart, w.scan.passWait = p, time.Now(), 0
		p.filter.confirmed, p.reader.confirmed = w.candidates.confirmed, w.candidates.confirmed
		p.filter.alike = w.candidates.alike
		w.candidates.countKnown(w.locks.known)
		w.onServerInfo(p.server, time.Now())
		w.server.databases = p.databases
	} else {
		w.scan.pass.cost.Commands, w.scan.pass.cost.WaitTime, w.scan.pass.cost.ServerTime = 0, 0, 0
	}
	p := w.scan.pass
	p.filter.known = w.locks.known // not changed during a step
	for !p.done() {
		p.setThreshold(w.candidates)
		began := time.Now()
		locks, err := w.scanner.step(ctx, p)
		if err != nil {
			w.scan.cost = p.cost
			return err
		}
		w.noteRead(began)
		w.addNew(w.candidates.split(w.unknown(locks), p.cursors.visited, p.now), p.now)
		w.dropAlike()
		if now := time.Now(); !now.Before(until) || !w.scanner.opts.Budget.allow(now) {
			break
		}
	}
	if p.done() {
		w.candidates.endPass()
		w.scan.passTime = time.Since(w.scan.passStart)
	}
	if p.done() || !w.scan.complete {
		w.scan.unread = p.filter.unread
	}
	if p.complete() {
		w.scan.scannedAt, w.scan.scanTime = time.Now(), w.scan.passTime
	}
	w.scan.complete = w.scan.complete || p.complete()
	w.scan.cost = p.cost
	w.scan.cost.Add(w.reader.conn.takeCost())
	return nil
}

// unknown returns the locks that are not known yet. Known locks are read when
// their changes are reported, or all of their companions may be read at last.
func (w *Watcher) unknown(all []candidate) []candidate {
	return slices.DeleteFunc(all, func(l candidate) bool {
		k, known := w.locks.known[l.lock.Key]
		if known {
			k.touched = w.scan.pass.now.UnixMilli()
		}
		if known && k.partial && !l.partial {
			w.locks.readAgain(l.lock.Key, time.Unix(0, 0))
		}
		return known
	})
}

// addNew adds new locks.
func (w *Watcher) addNew(locks []candidate, now time.Time) {
	for _, l := range locks {
		w.reader.conn.now = now
		was, known, ours := w.adopt(l)
		if !ours {
			continue
		}
		d := w.newDiffer()
		d.Watched = d.Watched && w.scan.unread.String() == "" // it may have existed, and have become readable
		w.updateLock(was, l, known, &d)
	}
}

// dropAlike removes the known locks of classes of which there are too many to be locks.
func (w *Watcher) dropAlike() {
	classes := w.candidates.alike.takeFresh()
	if len(classes) == 0 {
		return
	}
	for key := range w.locks.known {
		if was, _ := w.locks.known.get(key); was.lock.Confidence < enough && classes[keyspace.AlikeClass(key)] {
			w.locks.remove(key)
			w.scanner.opts.Cluster.forget(w, was)
		}
	}
	w.tracking.coverage.prefixes, w.tracking.coverage.stale = make(prefixes), true // the next connection covers the known locks only
	w.tracking.coverage.relearn(w.locks.known)
}

// recheckCandidates reads the candidates again.
func (w *Watcher) recheckCandidates(ctx context.Context) error {
	now := time.Now()
	if now.Sub(w.candidates.recheckedAt) < checkEvery || !w.scanner.opts.Budget.allow(now) || len(w.candidates.known) == 0 {
		return nil
	}
	w.candidates.recheckedAt = now
	w.reader.atLeast = keyspace.Possible
	all := make([]candidate, 0, len(w.candidates.known))
	for key, k := range w.candidates.known {
		all = append(all, candidate{name: key, typ: k.typ})
	}
	read, err := w.reader.detect(ctx, all)
	w.reader.atLeast = w.candidates.shown
	if err != nil {
		return err
	}
	w.noteRead(now)
	w.locks.touch(maps.Keys(w.candidates.known), w.reader.conn.now)
	for _, l := range w.candidates.update(read, w.reader.conn.now) {
		if len(w.candidates.confirmed) >= 10_000 {
			clear(w.candidates.confirmed)
		}
		w.candidates.confirmed[l.lock.Key] = l.lock.Evidence[len(l.lock.Evidence)-1]
		was, known := w.locks.known.get(l.lock.Key)
		switch {
		case !known:
			var ours bool
			if was, known, ours = w.adopt(l); !ours {
				continue
			}
		case was.lock.Confidence >= enough:
			continue
		}
		d := w.newDiffer()
		d.Watched = false // it existed before
		w.updateLock(was, l, known, &d)
	}
	return nil
}

// Reported keys that are not locks are ignored for a while.
const (
	ignoreFor  = 10 * time.Second
	maxIgnored = 10_000

	maxUnknown = 512 // unknown keys that are read in one cycle
)

// worthChecking reports whether an unknown key should be read.
func (w *Watcher) worthChecking(key string) bool {
	if w.scanner.index.isCompanion(key) || !w.scanner.selects(key) || w.tracking.coverage.allKeys && !w.tracking.coverage.covers(key) {
		return false
	}
	if at, known := w.locks.ignored[key]; known {
		if time.Since(at) < ignoreFor {
			return false
		}
		delete(w.locks.ignored, key)
	}
	if len(w.locks.ignored) > maxIgnored {
		clear(w.locks.ignored)
	}
	return true
}

// fetchTypes returns the unknown keys that a format can match, with their types. It
// checks a limited number of keys, so that many changed keys that are not locks do not
// delay the locks. A pass finds the others.
func (w *Watcher) fetchTypes(ctx context.Context, keys []string) (all []candidate, err error) {
	if len(keys) == 0 {
		return nil, nil
	}
	keys = keys[:min(len(keys), maxUnknown)]
	types := make([]*redis.StatusCmd, len(keys))
	err = w.reader.conn.pipelined(ctx, "get the types of keys", func(p redis.Pipeliner) {
		for i, key := range keys {
			types[i] = p.Type(ctx, key)
		}
	})
	if err != nil {
		return nil, err
	}
	for i, key := range keys {
		switch typ := types[i].Val(); {
		case types[i].Err() != nil, typ == "none": // gone, but it may come back
		case w.scanner.index.needOf(key, typ) == needNone:
			w.locks.ignored[key] = time.Now()
		default:
			all = append(all, candidate{name: key, typ: typ})
		}
	}
	return all, nil
}
