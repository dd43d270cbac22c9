package inspect

import (
	"container/heap"
	"time"

	"locktop/keyspace"
)

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
