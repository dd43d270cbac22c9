package incident

import (
	"sort"
	"time"

	"locktop/keyspace"
)

// series is how many clients wait, over time.
type series struct {
	at     []time.Time
	n      []int
	since  time.Time     // of the last change
	total  time.Duration // of all clients, until since
	anyFor time.Duration // in which a client waited, until since
	most   int
}

// maxChanges bounds a series: then each second change is dropped.
const maxChanges = 4096

// set records that n clients wait from a time on.
func (s *series) set(at time.Time, n int) {
	if d := at.Sub(s.since); d > 0 && s.now() > 0 {
		s.total += d * time.Duration(s.now())
		s.anyFor += d
	}
	s.since = keyspace.Later(s.since, at)
	s.most = max(s.most, n)
	last := len(s.at) - 1
	switch {
	case last >= 0 && s.n[last] == n || last < 0 && n == 0:
		return
	case last >= 0 && !at.After(s.at[last]):
		s.n[last] = n
		return
	}
	if len(s.at) >= maxChanges {
		for i := range maxChanges / 2 {
			s.at[i], s.n[i] = s.at[2*i], s.n[2*i]
		}
		s.at, s.n = s.at[:maxChanges/2], s.n[:maxChanges/2]
	}
	s.at, s.n = append(s.at, at), append(s.n, n)
}

// now returns how many clients wait at last.
func (s *series) now() int {
	if len(s.n) == 0 {
		return 0
	}
	return s.n[len(s.n)-1]
}

// over returns the time that all clients waited in a span, the largest number of them, and
// how long at least one waited.
func (s *series) over(from, to time.Time) (blocked time.Duration, most int, any time.Duration) {
	i := sort.Search(len(s.at), func(i int) bool { return s.at[i].After(from) })
	for i = max(0, i-1); i < len(s.at) && s.at[i].Before(to); i++ {
		begin, end := keyspace.Later(s.at[i], from), to
		if i+1 < len(s.at) && s.at[i+1].Before(to) {
			end = s.at[i+1]
		}
		if d := end.Sub(begin); d > 0 && s.n[i] > 0 {
			blocked += d * time.Duration(s.n[i])
			any += d
			most = max(most, s.n[i])
		}
	}
	return blocked, most, any
}

// lastUntil returns until when a client waited at last, at most until a time.
func (s *series) lastUntil(until time.Time) time.Time {
	i := sort.Search(len(s.at), func(i int) bool { return !s.at[i].Before(until) }) - 1
	if i > 0 && s.n[i] == 0 {
		return s.at[i]
	}
	return until
}

// forget drops what is before a time.
func (s *series) forget(before time.Time) {
	const often = 512 // not each time
	if len(s.at) <= often {
		return
	}
	i := sort.Search(len(s.at), func(i int) bool { return s.at[i].After(before) }) - 1
	if i > often {
		s.at, s.n = append([]time.Time(nil), s.at[i:]...), append([]int(nil), s.n[i:]...)
	}
}
