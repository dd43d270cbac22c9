package tui

import (
	"time"

	"locktop/keyspace"
)

// maxEvents is the number of events that an eventLog keeps when it discards old ones.
const maxEvents = 5000

// eventLog keeps the newest events of the locks, oldest first. The zero value is empty.
type eventLog struct {
	events []keyspace.Event
	total  int                   // including discarded events
	about  map[keyspace.ID][]int // numbers of the events of each lock
}

func (j *eventLog) add(events []keyspace.Event) {
	j.events = append(j.events, events...)
	j.index(len(j.events) - len(events))
	if len(j.events) > 2*maxEvents {
		j.events = append([]keyspace.Event(nil), j.events[len(j.events)-maxEvents:]...)
		j.about, j.total = nil, j.total-len(j.events)
		j.index(0)
	}
}

// index numbers the events from index from on, and records their locks.
func (j *eventLog) index(from int) {
	if j.about == nil {
		j.about = make(map[keyspace.ID][]int)
	}
	for i := from; i < len(j.events); i++ {
		id := j.events[i].Lock.ID()
		j.about[id] = append(j.about[id], j.total)
		j.total++
	}
}

// latest returns the indexes of the newest events of a lock, newest first, at most most. It
// considers only the first n events.
func (j *eventLog) latest(id keyspace.ID, n, most int) []int {
	var places []int
	numbers := j.about[id]
	for i := len(numbers) - 1; i >= 0 && len(places) < most; i-- {
		if at := numbers[i] - j.number(0); at < n {
			places = append(places, at)
		}
	}
	return places
}

// until returns the events that are not newer than t.
func (j *eventLog) until(t time.Time) []keyspace.Event {
	n := len(j.events)
	for n > 0 && j.events[n-1].At.After(t) {
		n--
	}
	return j.events[:n]
}

// number returns the number of the event at index i, counted from the first event ever. Indexes
// into the result of until are valid.
func (j *eventLog) number(i int) int { return j.total - len(j.events) + i }
