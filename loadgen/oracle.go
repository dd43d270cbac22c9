package loadgen

import (
	"slices"
	"sync"
	"time"
)

// oracle watches the critical sections of a run from inside the process, where
// it knows what no server knows: when each client really was in and out. A hold
// begins for it after the acquisition returned, and ends before the release is
// sent or when the lease is over, whichever comes first; so a hold lies strictly
// inside the time for which the lock promised exclusion, and what the oracle
// calls an overlap is one.
//
// All methods may be called from any goroutine. Clients meet only in the short
// bookkeeping of one key.
type oracle struct {
	sections []section // one per key
}

// validity is what the oracle asks of a lease. Valid is the judge, Deadline the
// time at which a lease that is no longer valid was over.
type validity interface {
	Valid() bool
	Deadline() time.Time
}

// section is the critical section of one key.
type section struct {
	mu      sync.Mutex
	inside  []*visit // in the order they came
	overlap Overlap
}

// visit is one hold, from enter to leave.
type visit struct {
	lease   validity
	section *section
	began   time.Time
}

func newOracle(keys int) *oracle { return &oracle{sections: make([]section, keys)} }

// enter notes that a client is inside a key's section from now on, which must
// have been read after the acquisition returned.
func (o *oracle) enter(key int, lease validity, now time.Time) *visit {
	s := &o.sections[key]
	v := &visit{lease: lease, section: s, began: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	if slices.ContainsFunc(s.inside, (*visit).going) {
		s.overlap.Count++
	}
	s.inside = append(s.inside, v)
	return v
}

// leave notes that a client is out. It must be called before the release.
func (o *oracle) leave(v *visit, now time.Time) {
	s := v.section
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.inside, v)
	s.inside = slices.Delete(s.inside, i, i+1)
	s.overlap.Longest = max(s.overlap.Longest, v.longest(s.inside, now))
}

// overlap sums up what was seen so far, overlaps that are going on included.
func (o *oracle) overlap(now time.Time) Overlap {
	var sum Overlap
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		sum.Count += s.overlap.Count
		sum.Longest = max(sum.Longest, s.overlap.Longest, s.ongoing(now))
		s.mu.Unlock()
	}
	return sum
}

// ongoing returns for how long two clients have been inside until now.
func (s *section) ongoing(now time.Time) time.Duration {
	var longest time.Duration
	for i, v := range s.inside {
		longest = max(longest, v.longest(s.inside[:i], now))
	}
	return longest
}

// going reports whether the hold counts: its lease is not over.
func (v *visit) going() bool { return v.lease.Valid() }

// end returns when the hold ended, if it is left now.
func (v *visit) end(now time.Time) time.Time {
	if deadline := v.lease.Deadline(); !v.going() && deadline.Before(now) {
		return deadline
	}
	return now
}

// longest returns the longest time that v was inside together with one of the
// others, who are in the order they came. It looks at no more of them than the
// first whose lease is good: those who came later were with v for a shorter time.
func (v *visit) longest(others []*visit, now time.Time) time.Duration {
	var longest time.Duration
	end := v.end(now)
	for _, other := range others {
		together := end
		if e := other.end(now); e.Before(end) {
			together = e
		}
		began := v.began
		if other.began.After(began) {
			began = other.began
		}
		longest = max(longest, together.Sub(began))
		if other.going() {
			break
		}
	}
	return longest
}
