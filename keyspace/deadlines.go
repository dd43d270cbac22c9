package keyspace

import (
	"container/heap"
	"time"
)

// deadlineQueue is the keys that are to be read again at a time of their own, by that
// time. The zero value is empty.
type deadlineQueue struct {
	entries deadlineHeap
	current map[string]time.Time // of each key, the one that counts
}

// set makes a key due at a time, on the server's clock, instead of whatever it
// was due at before. The zero time makes it due never.
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

// popDue takes out the keys that are due by now.
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

// first is when the next key is due; false if none is.
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

// compact drops the entries that do not count any more: those of locks that were
// renewed long before they were due.
func (q *deadlineQueue) compact() {
	q.entries = q.entries[:0]
	for key, at := range q.current {
		q.entries = append(q.entries, deadlineEntry{at, key})
	}
	heap.Init(&q.entries)
}

// deadlineEntry is a key that may be due at a time.
type deadlineEntry struct {
	at  time.Time
	key string
}

// deadlineHeap is a heap, for container/heap.
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
