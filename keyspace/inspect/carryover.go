package inspect

import (
	"slices"
	"sync"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
	"locktop/keyspace/internal/cache"
)

// Carryover passes what a closed watcher knows to the next watcher of the same database:
// after a failover the locks have another server, and their past remains. It is for the
// watchers of one Sentinel group, cluster or server, and safe for concurrent use.
type Carryover struct {
	mu   sync.Mutex
	left []pastWatch
}

// pastWatch is what a closed watcher has left.
type pastWatch struct {
	db        int
	locks     lockSet
	replaced  map[string]*replication
	published cache.Map[keyspace.ID, bool]
	holdStats holds.Stats
	confirmed confirmedKeys
	events    []keyspace.Event // that no caller has taken
}

// leave stores what a watcher knows.
func (c *Carryover) leave(w *Watcher) {
	if c == nil {
		return
	}
	w.markReplaced()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = append(c.left, pastWatch{
		db: w.scanner.opts.DB, locks: w.locks.known, replaced: w.locks.replaced, published: w.endings.published,
		holdStats: w.holdStats, confirmed: w.possible.confirmed, events: w.unreported.events,
	})
}

// take removes and returns what the closed watchers of a database have left.
func (c *Carryover) take(db int) (all []pastWatch) {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = slices.DeleteFunc(c.left, func(p pastWatch) bool {
		if p.db == db {
			all = append(all, p)
		}
		return p.db == db
	})
	return all
}

// carryOver continues the watches that closed watchers of this database have left. It
// reads their locks in the next cycle.
func (w *Watcher) carryOver() {
	for _, past := range w.scanner.opts.Carryover.take(w.scanner.opts.DB) {
		w.endings.published.PutAll(&past.published)
		w.holdStats.Add(&past.holdStats)
		w.unreported.events = append(w.unreported.events, past.events...)
		for key, why := range past.confirmed {
			w.possible.confirmed[key] = why
		}
		for key := range past.locks {
			l, _ := past.locks.get(key)
			if _, known := w.locks.known[key]; known || w.scanner.opts.Cluster.ownedByOther(key, w) {
				continue
			}
			w.locks.put(none, l, time.Unix(0, 0)) // due immediately
			w.locks.replaced[key] = past.replaced[key]
			w.scanner.opts.Cluster.record(w, l)
		}
	}
}

// markReplaced notes that another server has taken the place of the server on which the
// known locks were read.
func (w *Watcher) markReplaced() {
	was := w.replication
	for key := range w.locks.known {
		if w.locks.replaced[key] == nil {
			w.locks.replaced[key] = &was
		}
	}
	w.replication = replication{}
}
