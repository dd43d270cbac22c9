package inspect

import (
	"slices"
	"time"

	"locktop/keyspace"
)

// lockSet is the locks found so far, by key.
type lockSet map[string]detection

// add adds detections; a key that was found before is replaced.
func (s lockSet) add(all []detection) {
	for _, f := range all {
		s[f.lock.Key] = f
	}
}

// locks returns the locks in the order of a snapshot, without those that are companions
// of another lock.
func (s lockSet) locks() []keyspace.Lock {
	claimed := make(map[string]bool)
	for key, f := range s {
		for _, c := range f.companions {
			if c.Key != key {
				claimed[c.Key] = true
			}
		}
	}
	locks := make([]keyspace.Lock, 0, len(s))
	for key, f := range s {
		if !claimed[key] {
			locks = append(locks, f.lock)
		}
	}
	slices.SortFunc(locks, func(a, b keyspace.Lock) int { return a.ID().Compare(b.ID()) })
	return locks
}

// locksOf returns the locks of detections.
func locksOf(all []detection) []keyspace.Lock {
	locks := make([]keyspace.Lock, len(all))
	for i, f := range all {
		locks[i] = f.lock
	}
	return locks
}

// lockTable is the locks that a watcher knows, and what it knows of their keys.
type lockTable struct {
	known        lockSet
	sorted       []keyspace.Lock   // the known locks as in a snapshot; nil = to be computed
	companions   map[string]string // companion → its lock
	deadlines    deadlineQueue
	denied       map[string]bool // known locks that may not be read any more
	deniedBefore int             // number of denied keys after the last cycle
	ignored      map[string]time.Time
}

func newLockTable() lockTable {
	return lockTable{
		known: make(lockSet), companions: make(map[string]string),
		denied: make(map[string]bool), ignored: make(map[string]time.Time),
	}
}

// inOrder returns the known locks as in a snapshot.
func (t *lockTable) inOrder() []keyspace.Lock {
	if t.sorted == nil {
		t.sorted = t.known.locks()
	}
	return t.sorted
}

// put stores a lock that was read, and when it must be read again. was is its last
// state, empty if the lock is new.
func (t *lockTable) put(was, now detection, again time.Time) {
	key := now.lock.Key
	t.known[key], t.sorted = now, nil
	t.mapCompanions(was, now)
	t.deadlines.set(key, again)
}

// remove removes a lock.
func (t *lockTable) remove(key string) {
	was := t.known[key]
	delete(t.known, key)
	t.sorted = nil
	t.mapCompanions(was, detection{})
	t.deadlines.set(key, time.Time{})
}

// mapCompanions updates the map from companions to their lock.
func (t *lockTable) mapCompanions(was, now detection) {
	for _, c := range was.companions {
		delete(t.companions, c.Key)
	}
	for _, c := range now.companions {
		if c.Key != now.lock.Key {
			t.companions[c.Key] = now.lock.Key
		}
	}
}
