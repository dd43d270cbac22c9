package inspect

import (
	"cmp"
	"container/heap"
	"iter"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
)

// lockSet is the locks found so far, by key.
type lockSet map[string]foundLock

// foundLock is a lock in a lockSet.
type foundLock struct {
	lock *keyspace.Lock // never changed; snapshots share it
	readInfo
}

// add adds detections; a key that was found before is replaced.
func (s lockSet) add(all []detection) {
	for _, d := range all {
		s.put(d)
	}
}

// put adds a detection, or replaces the one with its key.
func (s lockSet) put(d detection) { s[d.lock.Key] = foundLock{new(d.lock), d.readInfo} }

// get returns the detection with this key, if there is one.
func (s lockSet) get(key string) (detection, bool) {
	found, ok := s[key]
	if !ok {
		return detection{}, false
	}
	return detection{*found.lock, found.readInfo}, true
}

// dropAlike removes the possible locks of crowded classes, and returns their keys.
func (s lockSet) dropAlike(classes map[string]bool) (keys []string) {
	if len(classes) == 0 {
		return nil
	}
	for key, d := range s {
		if d.lock.Confidence < enough && classes[keyspace.AlikeClass(key)] {
			keys = append(keys, key)
			delete(s, key)
		}
	}
	return keys
}

// locks returns the locks in the order of a snapshot, without those that are companions
// of another lock.
func (s lockSet) locks() []*keyspace.Lock {
	claimed := make(map[string]bool)
	for key, d := range s {
		for _, c := range d.companions {
			if c.Key != key {
				claimed[c.Key] = true
			}
		}
	}
	locks := make([]*keyspace.Lock, 0, len(s))
	for key, d := range s {
		if !claimed[key] {
			locks = append(locks, d.lock)
		}
	}
	slices.SortFunc(locks, compareIDs)
	return locks
}

// compareIDs orders locks like [keyspace.ID.Compare], without copies.
func compareIDs(a, b *keyspace.Lock) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key))
}

// lockTable is the locks that a watcher knows, and what it knows of their keys.
type lockTable struct {
	known        lockSet
	sorted       []*keyspace.Lock  // the known locks as in the last snapshot; nil = there was none
	changed      map[string]bool   // keys whose lock is not as in sorted
	companions   map[string]string // companion → its lock
	deadlines    deadlineQueue
	denied       map[string]bool // known locks that may not be read any more
	deniedBefore int             // number of denied keys after the last cycle
	ignored      map[string]time.Time
	replaced     map[string]*replication // known locks that were not read since another server took the place of theirs, with that one
}

func newLockTable() lockTable {
	return lockTable{
		known: make(lockSet), changed: make(map[string]bool), companions: make(map[string]string),
		denied: make(map[string]bool), ignored: make(map[string]time.Time), replaced: make(map[string]*replication),
	}
}

// inOrder returns the known locks as in a snapshot.
func (t *lockTable) inOrder() []*keyspace.Lock {
	switch {
	case t.sorted == nil:
		t.sorted = t.known.locks()
	case len(t.changed) > 0:
		t.sorted = t.merge()
	}
	clear(t.changed)
	return t.sorted
}

// mark notes that the lock under a key is not as in the last snapshot, or is no longer one.
// Without regular snapshots the next one sorts all locks again.
func (t *lockTable) mark(key string) {
	if t.sorted == nil {
		return
	}
	t.changed[key] = true
	if len(t.changed) > 2*len(t.known)+maxIgnored {
		t.sorted = nil
		clear(t.changed)
	}
}

// merge returns the known locks in order: those that have not changed since the last
// snapshot, and the changed ones. With 200,000 locks, sorting all would take 100 ms.
func (t *lockTable) merge() []*keyspace.Lock {
	var news []*keyspace.Lock
	for key := range t.changed {
		if d, known := t.known[key]; known && t.companions[key] == "" {
			news = append(news, d.lock)
		}
	}
	slices.SortFunc(news, compareIDs)
	all := make([]*keyspace.Lock, 0, len(t.known))
	for _, l := range t.sorted {
		if t.changed[l.Key] {
			continue
		}
		for len(news) > 0 && compareIDs(news[0], l) < 0 {
			all, news = append(all, news[0]), news[1:]
		}
		all = append(all, l)
	}
	return append(all, news...)
}

// put stores a lock that was read, and when it must be read again. was is its last
// state, empty if the lock is new.
func (t *lockTable) put(was, now detection, again time.Time) {
	key := now.lock.Key
	t.known.put(now)
	t.mark(key)
	t.mapCompanions(was, now)
	t.deadlines.set(key, again)
}

// touch notes that keys were read by a time of the server.
func (t *lockTable) touch(keys iter.Seq[string], now time.Time) {
	for key := range keys {
		if k, known := t.known[key]; known {
			k.touched = now.UnixMilli()
			t.known[key] = k
		}
	}
}

// remove removes a lock.
func (t *lockTable) remove(key string) {
	was, _ := t.known.get(key)
	delete(t.known, key)
	delete(t.replaced, key)
	t.mark(key)
	t.mapCompanions(was, detection{})
	t.deadlines.set(key, time.Time{})
}

// mapCompanions updates the map from companions to their lock.
func (t *lockTable) mapCompanions(was, now detection) {
	for _, c := range was.companions {
		delete(t.companions, c.Key)
		t.mark(c.Key) // a known lock is one in the snapshot only if it is no companion
	}
	for _, c := range now.companions {
		if c.Key != now.lock.Key {
			t.companions[c.Key] = now.lock.Key
			t.mark(c.Key)
		}
	}
}

// deadlineQueue is a priority queue of keys to read again, by time. The zero value is
// empty.
type deadlineQueue struct {
	entries deadlineHeap
	current map[string]time.Time // by key: the entry that counts
}

// set sets the time of a key, on the server's clock, in place of an earlier one. The
// zero time removes the key.
func (q *deadlineQueue) set(key string, at time.Time) {
	if q.current[key].Equal(at) {
		return
	}
	if at.IsZero() {
		delete(q.current, key)
		return
	}
	if q.current == nil {
		q.current = make(map[string]time.Time)
	}
	q.current[key] = at
	heap.Push(&q.entries, deadlineEntry{at, key})
	if len(q.entries) > 2*len(q.current)+64 {
		q.compact()
	}
}

// popDue removes and returns the keys that are due at now.
func (q *deadlineQueue) popDue(now time.Time) []string {
	var keys []string
	for len(q.entries) > 0 && !q.entries[0].at.After(now) {
		e := heap.Pop(&q.entries).(deadlineEntry)
		if q.current[e.key].Equal(e.at) {
			delete(q.current, e.key)
			keys = append(keys, e.key)
		}
	}
	return keys
}

// first returns when the next key is due; false if there is none.
func (q *deadlineQueue) first() (time.Time, bool) {
	for len(q.entries) > 0 {
		e := q.entries[0]
		if q.current[e.key].Equal(e.at) {
			return e.at, true
		}
		heap.Pop(&q.entries)
	}
	return time.Time{}, false
}

// compact removes entries that were replaced, such as those of renewed locks.
func (q *deadlineQueue) compact() {
	q.entries = q.entries[:0]
	for key, at := range q.current {
		q.entries = append(q.entries, deadlineEntry{at, key})
	}
	heap.Init(&q.entries)
}

// deadlineEntry is a key with its time.
type deadlineEntry struct {
	at  time.Time
	key string
}

// deadlineHeap implements container/heap.
type deadlineHeap []deadlineEntry

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h deadlineHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *deadlineHeap) Push(x any)        { *h = append(*h, x.(deadlineEntry)) }

func (h *deadlineHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

// nextDeadline returns when a lock must be read again: at the first of its deadlines,
// on the server's clock.
func (w *Watcher) nextDeadline(l keyspace.Lock) time.Time {
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
		if waiter.Expires.After(w.reader.conn.now) {
			sooner(waiter.Expires)
		}
	}
	if w.onOtherNode(l) { // changes on another node are not reported to this watcher
		sooner(w.reader.conn.now.Add(pollEvery))
	}
	if first.IsZero() {
		return first
	}
	soonest := w.reader.conn.now.Add(recheckAfter)
	if first = first.Add(time.Millisecond); first.Before(soonest) {
		return soonest
	}
	return first
}
