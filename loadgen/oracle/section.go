package oracle

import (
	"slices"
	"sync"
	"time"
)

// criticalSection is the critical section of one key, with the resource that the lock
// protects.
type criticalSection struct {
	mu          sync.Mutex
	name        string
	index       int     // the key
	limit       int     // how many may be inside at once
	inside      []*Hold // in order of entry
	waiting     int
	waits       []wait    // those since the newest hold began, one of each client
	queue       []*Hold   // waiters, if the order matters
	wanted      time.Time // since when clients wait and no hold has ended
	freed       time.Time // end of the newest hold that left
	entered     int64     // number of holds so far
	fence       int64     // largest fence that the resource has seen
	number      int64     // fence of the newest exclusive holder
	numberSince time.Time // when that holder may have acquired the lock
	forgot      bool      // a fault made a holder forget to release it
	stuck       []span

	last   int // client of the newest hold
	streak int // its acquires in a row
	best   int // largest streak while others waited
	busy   time.Duration
	behind []span // of clients that left without a release: the key stays locked; to is zero if nothing ends that
}

// lockedBehind returns how long the key was locked by clients that left without a release.
func (s *criticalSection) lockedBehind(now time.Time) (all time.Duration) {
	for _, b := range s.behind {
		if b.to.IsZero() || now.Before(b.to) {
			b.to = now
		}
		all += max(b.to.Sub(b.from), 0)
	}
	return all
}

// full returns the first holds inside for which counts is true, as many as the limit.
// It returns nil if there are fewer, so that another one may enter.
func (s *criticalSection) full(counts func(*Hold) bool) []*Hold {
	n := 0
	for last, other := range s.inside {
		if !counts(other) {
			continue
		}
		if n++; n == s.limit {
			all := make([]*Hold, 0, n)
			for _, other := range s.inside[:last+1] {
				if counts(other) {
					all = append(all, other)
				}
			}
			return all
		}
	}
	return nil
}

// countStreak counts acquires in a row.
func (s *criticalSection) countStreak(client int) {
	if client == s.last {
		s.streak++
	} else {
		s.last, s.streak = client, 1
	}
	if s.waiting > 0 {
		s.best = max(s.best, s.streak)
	}
}

// Queued records that the lock refused a waiting client, or that a client process was asked again: then it
// begins to queue.
func (o *Oracle) Queued(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.queue, func(v *Hold) bool { return v.Client == client }); i >= 0 && (o.config.Claimed || s.queue[i].queued.IsZero()) {
		s.queue[i].queued = now
	}
}

// wait is the wait of a client; to is zero while it lasts.
type wait struct {
	client   int
	from, to time.Time
}

// asksAgain is how soon after it gave up a client asks again, as part of one wait.
const asksAgain = 100 * time.Millisecond

// asked records that a client waits.
func (s *criticalSection) asked(client int, at time.Time) {
	s.waiting++
	for i := range s.waits {
		if w := &s.waits[i]; w.client == client {
			if !w.to.IsZero() && at.Sub(w.to) > asksAgain {
				w.from = at
			}
			w.to = time.Time{}
			return
		}
	}
	s.waits = append(s.waits, wait{client: client, from: at})
}

// unqueue records that a client stops waiting.
func (s *criticalSection) unqueue(v *Hold, now time.Time) {
	s.waiting--
	for i := range s.waits {
		if s.waits[i].client == v.Client {
			s.waits[i].to = now
		}
	}
	if i := slices.Index(s.queue, v); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// queueWithin is how long after its first refusal, or after a stall, a client of a fair lock
// may take to join the queue, because it subscribes first.
const queueWithin = 2 * time.Second

// checkOvertaken checks whether the lock served the holder before a client that was in the
// queue when the holder asked.
func (o *Oracle) checkOvertaken(v *Hold) {
	joined := v.Asked.Add(-queueWithin) // a client that could join then was in the queue
	for _, a := range v.section.queue {
		if o.config.Claimed && v.Asked.Sub(a.Asked).Abs() > queueWithin {
			o.count(func(found *Violations) { found.Overtaken.Unknown = false })
		}
		if !a.queued.IsZero() && a.queued.Before(joined) && a.Ctx.Err() == nil {
			o.suspect(suspect{client: a.Client, keys: []int{v.section.index}, since: a.Asked, joined: joined, evidence: &Evidence{
				Violation: Overtaken, Key: v.section.name, At: v.Began, Length: v.Began.Sub(a.queued),
				First: Side{Client: a.Client + 1, From: a.Asked, To: v.Began}, Second: v.side(v.Began),
			}})
			return
		}
	}
}

// checkFence checks that the fence of a holder is larger than the fence before. It skips
// a holder whose lease is over: its fence may be old. Holders that are inside together
// have no order.
func (o *Oracle) checkFence(v *Hold) {
	s := v.section
	if !o.config.Numbered || s.limit > 1 || !v.valid() {
		return
	}
	if s.entered > 1 && v.Fence <= s.number {
		o.suspect(suspect{client: Everybody, keys: []int{s.index}, since: earlier(s.numberSince, v.since), evidence: &Evidence{
			Violation: FenceOrder, Key: s.name, At: v.Began, First: Side{Fence: s.number}, Second: v.side(v.Began),
		}})
	}
	s.number, s.numberSince = v.Fence, v.since
}

// Write records that a client writes to the protected resources of its keys, and reports
// whether they accept the write. A polite client checks its lease first and does not
// write without one. Then write returns false and counts no violation.
func (o *Oracle) Write(v *Hold, polite bool, now time.Time) (accepted bool) {
	if polite && !v.valid() {
		return false
	}
	over := v.over(now)
	if over {
		o.lateWork(v, now)
	}
	accepted = true
	for v, s := range v.locked {
		switch {
		case v.Shared:
		case v.Fence > 0 && v.Fence < s.fence && s.limit == 1:
			o.stale(v, StaleWriteRefused, now)
			accepted = false
		case over && (s.limit > 1 && len(s.inside) > s.limit || s.limit == 1 && s.entered > v.number): // another client has entered in its place
			o.stale(v, StaleWriteAccepted, now)
		}
	}
	return accepted
}

func (o *Oracle) lateWork(v *Hold, now time.Time) {
	v.section.mu.Lock()
	defer v.section.mu.Unlock()
	late := now.Sub(v.latest(now))
	o.count(func(found *Violations) { found.LateWork.lasted(late) })
	o.keep(Evidence{
		Violation: LateWork, Key: v.section.name, At: now, Length: late,
		First: v.side(now), Cause: v.knownCause(),
	})
}

// stale counts a write that comes after a later holder entered.
func (o *Oracle) stale(v *Hold, how Violation, now time.Time) {
	e := Evidence{Violation: how, Key: v.section.name, At: now, First: v.side(now), Cause: v.knownCause()}
	for _, other := range v.section.inside {
		if other.number > v.number {
			e.Second = other.side(now)
		}
	}
	o.keep(e)
}

// anyHold knows since when no client holds any key. Safe for concurrent use.
type anyHold struct {
	mu    sync.Mutex
	holds int
	ended time.Time // end of the newest hold
}

// changed records that a hold begins, or that one ended at a time.
func (a *anyHold) changed(by int, ended time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holds += by
	if ended.After(a.ended) {
		a.ended = ended
	}
}

// lastHeld returns when a client held any key last.
func (a *anyHold) lastHeld(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.holds > 0 {
		return now
	}
	return a.ended
}

// span is a time, longer than the patience, in which clients waited for a key that no
// client had.
type span struct {
	from, to time.Time
	waits    []wait // of these clients
}

// stuckSpans returns the times in which keys were stuck, also those that are stuck now. It leaves out
// keys that a client has forgotten to release.
func (o *Oracle) stuckSpans(now time.Time) []span {
	var all []span
	for s := range o.locked {
		if s.forgot {
			continue
		}
		all = append(all, s.stuck...)
		if unheld := o.unheldFor(s, now); unheld > o.config.Patience {
			all = append(all, span{now.Add(-unheld), now, slices.Clone(s.waits)})
		}
	}
	return all
}

// calm returns the longest time of a span in which no trouble can have kept a waiting client from a
// free key: none of all clients, and none of its own. A crash cannot: what the client held is free after the TTL.
func (o *Oracle) calm(s span) time.Duration {
	o.mu.Lock()
	all := slices.Clone(o.troubles)
	o.mu.Unlock()
	all = slices.DeleteFunc(all, func(t Trouble) bool {
		return slices.Contains([]Cause{Crash, Flush, Steal}, t.Cause) || t.From.After(s.to)
	})
	slices.SortFunc(all, func(a, b Trouble) int { return a.From.Compare(b.From) })
	longest := s.calm(all)
	for _, w := range s.waits {
		own := slices.DeleteFunc(slices.Clone(all), func(t Trouble) bool { return t.Client != Everybody && t.Client != w.client })
		part := span{from: s.from, to: s.to}
		if w.from.After(s.from) {
			part.from = w.from
		}
		if !w.to.IsZero() {
			part.to = w.to
		}
		longest = max(longest, part.calm(own))
	}
	return longest
}

// calm returns the longest time of a span without one of the troubles, which are in the order of their begins.
func (s span) calm(troubles []Trouble) time.Duration {
	longest := time.Duration(0)
	for _, one := range troubles {
		longest = max(longest, one.From.Sub(s.from))
		if one.lasting {
			return longest
		}
		if one.To.After(s.from) {
			s.from = one.To
		}
	}
	return max(longest, s.to.Sub(s.from))
}

// Forgotten records that a fault makes the client of a hold forget to release it, so that
// the keys stay locked.
func (o *Oracle) Forgotten(v *Hold) {
	for _, s := range v.locked {
		s.forgot = true
	}
}

// checkStuck counts a stuck key, if no client had the key for longer than patience.
func (o *Oracle) checkStuck(s *criticalSection, now time.Time) {
	if unheld := o.unheldFor(s, now); unheld > o.config.Patience {
		s.stuck = append(s.stuck, span{now.Add(-unheld), now, slices.Clone(s.waits)})
		o.keep(Evidence{Violation: StuckKey, Key: s.name, At: now, Length: unheld})
	}
}

// unheldFor returns for how long the key has had waiters and fewer holders than it
// admits.
func (o *Oracle) unheldFor(s *criticalSection, now time.Time) time.Duration {
	if s.waiting == 0 {
		return 0
	}
	free := s.wanted
	if s.freed.After(free) {
		free = s.freed
	}
	if o.config.Sets {
		if held := o.anyHold.lastHeld(now); held.After(free) {
			free = held
		}
	}
	if n := len(s.inside) - s.limit; n >= 0 { // the key was free when it had fewer holds than it admits
		ends := make([]time.Time, len(s.inside))
		for i, v := range s.inside {
			ends[i] = v.end(now)
		}
		slices.SortFunc(ends, time.Time.Compare)
		if ends[n].After(free) {
			free = ends[n]
		}
	}
	return now.Sub(free)
}
