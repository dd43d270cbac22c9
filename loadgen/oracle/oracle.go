package oracle

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"
)

// Oracle checks every critical section of a run. It runs in the process of the clients,
// so it knows when each client is inside. A hold begins after the acquire returns. It
// ends before the client sends the release, or at the end of the lease if that is
// earlier. A hold is therefore always within the time of exclusion that the lock
// promises, and every overlap that the oracle counts is real.
//
// All methods are safe for concurrent use. Clients contend only for the short
// bookkeeping of one key.
type Oracle struct {
	sections []criticalSection // one per key
	config   Config

	mu           sync.Mutex // guards what follows
	found        Violations // without evidence and explanations
	evidence     map[Violation][]Evidence
	troubles     []Trouble // in order of their begin, or of when they became known
	suspects     []suspect
	explanations map[[2]string]*explanation // by violation and cause
	holds        int                        // of sets, now
	ended        time.Time                  // end of the newest of them
}

// Config describes the keys and the lock that an oracle checks. A nil function is not
// called.
type Config struct {
	Keys     []string            // names
	Limit    int                 // how many holders may be inside a key at once; 0 = 1
	Sets     bool                // one hold has several keys: a key may be free while its waiters wait for another one
	TTL      time.Duration       // of a lease; 0 = not known
	Servers  int                 // of a quorum; 0 = one
	Patience time.Duration       // a key is stuck if no client has it for longer than this while a client waits for it
	InOrder  bool                // the lock serves waiters in order of arrival
	Numbered bool                // the fence rises with every exclusive holder
	Claimed  bool                // a release without an error is what the client says, and may have removed nothing
	Report   func(Evidence)      // called for every violation
	Handoff  func(time.Duration) // called with the time between a release and the next acquire, if a client waited
}

// Lease is what the oracle reads of a lease. Valid decides. Deadline is the end of a
// lease that is no longer valid. These may be a little early, to be safe.
type Lease interface {
	Valid() bool
	Deadline() time.Time
	Latest() time.Time // the latest time at which a lease with this deadline may end
}

// Hold is one hold of a client, from [Oracle.Ask] to [Oracle.Leave].
type Hold struct {
	Client int    // from 0
	Shared bool   // a reader: other readers may be inside
	Flaw   string // known flaw of the lock, "" if there is none
	Asked  time.Time
	Ctx    context.Context // ends when the client stops waiting

	// The client sets these before Enter.
	Token string
	Fence int64
	First time.Time // when the lease of the first of several entries began, zero if there is only one; a later entry may have made the lock anew
	Lease Lease

	Began time.Time // set by Enter

	next *Hold // the same hold of its next key, nil after the last one

	queued time.Time // time of the first refusal, when it begins to queue; zero before
	since  time.Time // the lock was acquired then, or later

	section    *criticalSection
	number     int64
	fault      string    // that affects the holder; guarded by section.mu
	overlapped []*Hold   // earlier holds, as many as the limit, that were inside at the same time; guarded by section.mu
	granted    bool      // all leases were valid then; guarded by section.mu
	reported   bool      // the overlap was reported; guarded by section.mu
	left       bool      // the client has left; guarded by section.mu
	removed    *Evidence // a foreign unlock that may have removed this lock; guarded by section.mu
}

// New returns an oracle.
func New(c Config) *Oracle {
	o := &Oracle{sections: make([]criticalSection, len(c.Keys)), config: c, evidence: make(map[Violation][]Evidence), explanations: make(map[[2]string]*explanation)}
	o.found.Overtaken.Unknown, o.found.FenceOrder.Unknown = !c.InOrder || c.Claimed, !c.Numbered || c.Limit > 1
	for i := range o.sections {
		o.sections[i].name, o.sections[i].index, o.sections[i].limit = c.Keys[i], i, max(c.Limit, 1)
	}
	return o
}

// locked yields the sections, each with its mutex held.
func (o *Oracle) locked(yield func(*criticalSection) bool) {
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		more := yield(s)
		s.mu.Unlock()
		if !more {
			return
		}
	}
}

// Ask records that a client waits for keys. The result stands for the hold of all of them.
func (o *Oracle) Ask(hold Hold, keys ...int) (v *Hold) {
	for _, key := range slices.Backward(keys) {
		one := hold
		one.next, one.section = v, &o.sections[key]
		v = &one
	}
	for v, s := range v.locked {
		if s.waiting == 0 {
			s.wanted = v.Asked
		}
		s.asked(v.Client, v.Asked)
		if o.config.InOrder {
			s.queue = append(s.queue, v)
		}
	}
	return v
}

// GiveUp records that a client stops waiting without a hold.
func (o *Oracle) GiveUp(v *Hold, now time.Time) {
	for v, s := range v.locked {
		if s.waiting == 1 {
			o.checkStuck(s, now)
		}
		s.unqueue(v, now)
	}
}

// Enter records that a waiting client enters the critical sections of its keys at now. The caller must
// read now after the acquire returned.
func (o *Oracle) Enter(hold *Hold, now time.Time) {
	handoff := notFreed
	for v, s := range hold.locked {
		v.Token, v.Fence, v.First, v.Lease, v.Began = hold.Token, hold.Fence, hold.First, hold.Lease, now
		if v.since = now; v.nested() {
			v.since = earlier(now, v.First)
		}
		if o.config.TTL > 0 { // the reply may have been on its way since the lease began
			v.since = earlier(v.since, v.Lease.Deadline().Add(-o.config.TTL))
		}
		handoff = min(handoff, o.enter(v, s)) // a set is free when its last key is
	}
	if handoff != notFreed && o.config.Handoff != nil {
		o.config.Handoff(handoff)
	}
	if o.config.Sets {
		o.anyHold(1, time.Time{})
	}
}

// notFreed is the result of enter if no release freed the key for a waiter.
const notFreed = time.Duration(math.MaxInt64)

// enter records a hold of one key. It returns the time since the release that freed the
// key, if the client waited then.
func (o *Oracle) enter(v *Hold, s *criticalSection) (handoff time.Duration) {
	now := v.Began
	o.checkStuck(s, now)
	handoff = notFreed
	if len(s.inside) < s.limit && s.freed.After(s.wanted) {
		handoff = now.Sub(s.freed)
	}
	if !v.valid() { // a reply may arrive after the end of its lease
		o.count(func(found *Violations) { found.Unjudged++ })
	} else if holders := s.full(v.excludes); holders != nil {
		o.countOverlap(holders, v)
	}
	o.countWorkOverlap(v)
	s.unqueue(v, now)
	s.waits = slices.DeleteFunc(s.waits, func(w wait) bool { return !w.to.IsZero() })
	o.checkOvertaken(v)
	s.wanted = now
	s.countStreak(v.Client)
	s.entered++
	v.number = s.entered
	if !v.Shared {
		o.checkFence(v)
		s.fence = max(s.fence, v.Fence)
	}
	s.inside = append(s.inside, v)
	if s.limit == 1 && !v.Shared { // nobody else has the key now
		s.busy, s.behind = s.busy+s.lockedBehind(now), nil
	}
	return handoff
}

// Unnotified suspects that a lease is over without its holder being notified.
func (o *Oracle) Unnotified(v *Hold, now time.Time) {
	over := earlier(v.Lease.Deadline(), now)
	o.suspect(suspect{client: v.Client, keys: v.keys(), since: over, evidence: &Evidence{
		Violation: Unnotified, Key: v.section.name, At: now, Length: now.Sub(over), First: v.side(now),
	}})
}

// Lost suspects the loss of a renewed lease before its holder was done.
func (o *Oracle) Lost(v *Hold, now time.Time) {
	since := v.since
	if renewed := v.Lease.Deadline().Add(-o.config.TTL); !v.nested() && o.config.TTL > 0 && renewed.After(since) && renewed.Before(now) {
		since = renewed // the lock was certainly there
	}
	o.suspect(suspect{client: v.Client, keys: v.keys(), since: since, evidence: &Evidence{
		Violation: UnexplainedLoss, Key: v.section.name, At: now, Length: now.Sub(v.Began), First: v.side(now),
	}})
}

// keys returns the keys of the hold.
func (v *Hold) keys() (all []int) {
	for ; v != nil; v = v.next {
		all = append(all, v.section.index)
	}
	return all
}

// nested reports whether the hold has several entries.
func (v *Hold) nested() bool { return !v.First.IsZero() }

// locked yields the hold of each key, with the mutex of its section held.
func (v *Hold) locked(yield func(*Hold, *criticalSection) bool) {
	for more := true; v != nil && more; v = v.next {
		v.section.mu.Lock()
		more = yield(v, v.section)
		v.section.mu.Unlock()
	}
}

// Leave records that a client leaves. The caller must call it before the release.
func (o *Oracle) Leave(v *Hold, now time.Time) {
	if o.config.Sets {
		o.anyHold(-1, v.end(now))
	}
	for v, s := range v.locked {
		i := slices.Index(s.inside, v)
		s.inside = slices.Delete(s.inside, i, i+1)
		v.left = true
		end := v.end(now)
		s.freed = later(s.freed, end)
		s.busy += max(end.Sub(v.Began), 0)
		if together, last := v.longestOverlap(s.inside, now); together > 0 {
			if first, second := inOrder(v, last); !second.granted {
				o.countOverlap(s.before(first, second), second) // at the entry of second, the lease of an earlier one was over; it became valid again
			}
			o.count(func(found *Violations) { found.Overlap.lasted(together) })
		}
		if others := s.full(v.conflicts); others != nil {
			_, second := inOrder(v, others[len(others)-1])
			together := now.Sub(second.Began)
			o.count(func(found *Violations) { found.WorkOverlap.lasted(together) })
		}
		for _, other := range s.inside {
			if slices.Contains(other.overlapped, v) {
				o.overlapEnded(other, now)
			}
		}
		if v.overlapped != nil {
			o.overlapEnded(v, now)
		}
	}
}

// Faulted records a fault that affects a client inside a hold.
func (o *Oracle) Faulted(v *Hold, fault string) {
	for v := range v.locked {
		v.fault = fault
	}
}

// Violations returns the violations so far. A key that is stuck now counts.
func (o *Oracle) Violations(now time.Time) Violations {
	unheld, unexplained := int64(0), int64(0)
	for _, one := range o.stuckSpans(now) {
		if o.calm(one) > o.config.Patience { // no trouble can have kept clients from a free key for so long
			unexplained++
		}
	}
	for s := range o.locked {
		if o.unheldFor(s, now) > o.config.Patience {
			unheld++
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	v := o.found
	v.StuckKey.Count += unheld
	v.StuckKey.Excused = max(v.StuckKey.Count-unexplained, 0)
	for _, kind := range Kinds() {
		v.Evidence = append(v.Evidence, o.evidence[kind.ID]...)
	}
	for _, e := range o.explanations {
		v.Explained = append(v.Explained, e.Explained)
	}
	sortExplained(v.Explained)
	return v
}

// LeftBehind records that a client has left at a moment without a release: the keys stay locked until the
// end of its lease, or with forever until the end of the run.
func (o *Oracle) LeftBehind(v *Hold, at time.Time, forever bool) {
	until := v.Lease.Deadline()
	if forever {
		until = time.Time{}
	}
	for _, s := range v.locked {
		s.behind = append(s.behind, span{from: at, to: until})
	}
}

// Usage returns the mean share of elapsed in which a key was locked, by as many holders as
// it admits, over the keys that clients asked for, and the most acquires of one key in a row by one client while
// others waited.
func (o *Oracle) Usage(elapsed time.Duration, now time.Time) (held float64, streak int) {
	var busy time.Duration
	wanted := 0
	for s := range o.locked {
		streak = max(streak, s.best)
		if s.entered > 0 {
			wanted++
			busy += s.busy + s.lockedBehind(now)
			for _, v := range s.inside {
				busy += max(v.end(now).Sub(v.Began), 0)
			}
		}
	}
	if wanted > 0 && elapsed > 0 {
		held = min(busy.Seconds()/elapsed.Seconds()/float64(wanted*max(o.config.Limit, 1)), 1)
	}
	return held, streak
}

// Restart resets the utilisation and the longest streak.
func (o *Oracle) Restart() {
	for s := range o.locked {
		s.busy, s.best, s.behind = 0, 0, nil
	}
}

// Held returns a key that a client holds now; ok is false if there is none.
func (o *Oracle) Held() (key int, ok bool) {
	for s := range o.locked {
		if slices.ContainsFunc(s.inside, (*Hold).valid) {
			return key, true
		}
		key++
	}
	return 0, false
}

// Touched returns the names of the keys that any client has ever asked for.
func (o *Oracle) Touched() []string {
	var names []string
	for s := range o.locked {
		if !s.wanted.IsZero() {
			names = append(names, s.name)
		}
	}
	return names
}

// valid reports whether the lease of the hold is valid.
func (v *Hold) valid() bool { return v.Lease.Valid() }

// latest returns the latest end of a lease that is no longer valid. A lease that ended
// before its deadline was reported lost.
func (v *Hold) latest(now time.Time) time.Time {
	if deadline := v.Lease.Deadline(); now.Before(deadline) {
		return now
	}
	return v.Lease.Latest()
}

// end returns the end of the hold, if it leaves now.
func (v *Hold) end(now time.Time) time.Time {
	if deadline := v.Lease.Deadline(); !v.valid() && deadline.Before(now) {
		return deadline
	}
	return now
}

// side returns the hold as evidence at the time now. The caller holds section.mu, or is the
// client of the hold.
func (v *Hold) side(now time.Time) Side {
	return Side{
		Client: v.Client + 1, Token: v.Token, Fence: v.Fence, Reader: v.Shared,
		From: v.Began, To: now, Inside: !v.left, Deadline: v.Lease.Deadline(),
	}
}
