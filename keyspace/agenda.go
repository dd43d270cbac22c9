package keyspace

import (
	"container/heap"
	"time"
)

// agenda is the keys that are to be read again at a time of their own, by that
// time. The zero value is empty.
type agenda struct {
	entries appointments
	next    map[string]time.Time // of each key, the one that counts
}

// put makes a key due at a time, on the server's clock, instead of whatever it
// was due at before. The zero time makes it due never.
func (a *agenda) put(key string, at time.Time) {
	if a.next[key].Equal(at) {
		return
	}
	if at.IsZero() {
		delete(a.next, key)
		return
	}
	if a.next == nil {
		a.next = make(map[string]time.Time)
	}
	a.next[key] = at
	heap.Push(&a.entries, appointment{at, key})
	if len(a.entries) > 2*len(a.next)+64 {
		a.tidy()
	}
}

// due takes out the keys that are due by now.
func (a *agenda) due(now time.Time) []string {
	var keys []string
	for len(a.entries) > 0 && !a.entries[0].at.After(now) {
		e := heap.Pop(&a.entries).(appointment)
		if a.next[e.key].Equal(e.at) {
			delete(a.next, e.key)
			keys = append(keys, e.key)
		}
	}
	return keys
}

// first is when the next key is due; false if none is.
func (a *agenda) first() (time.Time, bool) {
	for len(a.entries) > 0 {
		e := a.entries[0]
		if a.next[e.key].Equal(e.at) {
			return e.at, true
		}
		heap.Pop(&a.entries)
	}
	return time.Time{}, false
}

// tidy drops the entries that do not count any more: those of locks that were
// renewed long before they were due.
func (a *agenda) tidy() {
	a.entries = a.entries[:0]
	for key, at := range a.next {
		a.entries = append(a.entries, appointment{at, key})
	}
	heap.Init(&a.entries)
}

// appointment is a key that may be due at a time.
type appointment struct {
	at  time.Time
	key string
}

// appointments is a heap, for container/heap.
type appointments []appointment

func (a appointments) Len() int           { return len(a) }
func (a appointments) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a appointments) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }
func (a *appointments) Push(x any)        { *a = append(*a, x.(appointment)) }

func (a *appointments) Pop() any {
	old := *a
	last := old[len(old)-1]
	*a = old[:len(old)-1]
	return last
}
