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

	mu  sync.Mutex // locked only when something is wrong, and to read
	sum Overlap
}

// validity is what the oracle asks of a lease. Valid is the judge, Deadline the
// time at which a lease that is no longer valid was over.
type validity interface {
	Valid() bool
	Deadline() time.Time
}

// section is the critical section of one key.
type section struct {
	mu     sync.Mutex
	inside []*visit // in the order they came
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
		o.granted()
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
	if together := v.longest(s.inside, now); together > 0 {
		o.ended(together)
	}
}

// granted counts an overlap that begins.
func (o *oracle) granted() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Count++
}

// ended notes how long an overlap was.
func (o *oracle) ended(together time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sum.Longest = max(o.sum.Longest, together)
}

// overlap sums up what was seen so far.
func (o *oracle) overlap() Overlap {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sum
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
