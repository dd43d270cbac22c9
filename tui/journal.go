package tui

import (
	"time"

	"locktop/keyspace"
)

// journalKept is how many events are remembered.
const journalKept = 5000

// journal is what happened to the locks, oldest first. The zero value is empty.
type journal struct {
	events []keyspace.Event
	total  int // also those that are forgotten
}

func (j *journal) add(events []keyspace.Event) {
	j.total += len(events)
	j.events = append(j.events, events...)
	if len(j.events) > 2*journalKept {
		j.events = append([]keyspace.Event(nil), j.events[len(j.events)-journalKept:]...)
	}
}

// until returns the events that are not newer than t.
func (j *journal) until(t time.Time) []keyspace.Event {
	n := len(j.events)
	for n > 0 && j.events[n-1].At.After(t) {
		n--
	}
	return j.events[:n]
}

// number is the event's place among all there ever were, for those in the
// result of until.
func (j *journal) number(i int) int { return j.total - len(j.events) + i }
