package oracle

import (
	"cmp"
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
func (s *criticalSection) full(counts func(*Hold) bool) (all []*Hold) {
	for _, other := range s.inside {
		if counts(other) {
			if all = append(all, other); len(all) == s.limit {
				return all
			}
		}
	}
	return nil
}

// countWorkOverlap counts a hold that begins while another is inside, also after the end
// of a lease.
func (o *Oracle) countWorkOverlap(v *Hold) {
	others := v.section.full(v.conflicts)
	if others == nil {
		return
	}
	if v.overlapped == nil {
		v.overlapped = others
	}
	o.count(func(found *Violations) { found.WorkOverlap.Count++ })
}

// excludes reports whether v must not enter while other, which entered earlier, is
// inside.
func (v *Hold) excludes(other *Hold) bool { return v.conflicts(other) && other.valid() }

// conflicts reports whether v and other must not work at the same time.
func (v *Hold) conflicts(other *Hold) bool {
	return !(v.Shared && other.Shared)
}

func inOrder(a, b *Hold) (first, second *Hold) {
	if b.number < a.number {
		return b, a
	}
	return a, b
}

// before returns first and other holds that entered before second, as many as the limit
// at most, in order of entry.
func (s *criticalSection) before(first, second *Hold) []*Hold {
	all := []*Hold{first}
	for _, other := range s.inside {
		if len(all) < s.limit && other.number < second.number && other.conflicts(second) && other != first {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b *Hold) int { return cmp.Compare(a.number, b.number) })
	return all
}

// doubtful returns the overlap of earlier holds with second as a suspect.
func (o *Oracle) doubtful(earliest []*Hold, second *Hold) suspect {
	since := second.since // its reply may have been on its way while an earlier one was granted
	for _, v := range earliest {
		since = earlier(since, v.since)
	}
	return suspect{violation: Overlap, since: since, at: second.Began, client: Everybody, keys: []int{second.section.index}}
}

// countOverlap counts an overlap of a hold with earlier ones, as many as the limit.
// section.mu must be held.
func (o *Oracle) countOverlap(earlier []*Hold, second *Hold) {
	second.granted, second.overlapped = true, earlier
	for _, v := range earlier {
		o.confirm(v, second.Began)
	}
	s := o.doubtful(earlier, second)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found.Overlap.Count++
	if o.explained(s) {
		o.found.Overlap.Excused++
	} else {
		o.suspects = append(o.suspects, s)
	}
}

// overlapEnded reports holds that were inside at the same time, the last of which is
// second, when the first of them leaves. It reports each counted overlap once.
func (o *Oracle) overlapEnded(second *Hold, now time.Time) {
	if second.reported {
		return
	}
	second.reported = true
	first, others := second.overlapped[0], second.overlapped[1:]
	e := Evidence{
		Violation: WorkOverlap, Key: first.section.name, At: second.Began, Length: now.Sub(second.Began),
		First: first.side(now), Second: second.side(now), Cause: o.causeOf(second.overlapped, second),
	}
	end := earlier(first.end(now), second.end(now))
	for _, other := range others {
		e.Others = append(e.Others, other.side(now))
		end = earlier(end, other.end(now))
	}
	if second.granted {
		e.Violation, e.Length = Overlap, max(end.Sub(second.Began), 0)
	}
	o.keep(e)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// longestOverlap returns the longest time for which v and others, as many as the limit,
// were inside together, and the last of these to enter. The others are in order of
// entry. It stops when that many have valid leases: later ones were inside together
// with v for a shorter time.
func (v *Hold) longestOverlap(others []*Hold, now time.Time) (longest time.Duration, last *Hold) {
	limit := v.section.limit
	var ends []time.Time // the latest ends so far, as many as the limit, in descending order
	end, valid := v.end(now), 0
	for _, other := range others {
		if !v.conflicts(other) {
			continue
		}
		ended := other.end(now)
		i, _ := slices.BinarySearchFunc(ends, ended, func(a, b time.Time) int { return b.Compare(a) })
		ends = slices.Insert(ends, i, ended)
		ends = ends[:min(len(ends), limit)]
		if len(ends) == limit {
			if d := earlier(end, ends[limit-1]).Sub(later(v.Began, other.Began)); d > longest {
				longest, last = d, other
			}
		}
		if other.valid() {
			if valid++; valid == limit {
				break
			}
		}
	}
	return longest, last
}

// Unlocked records a successful release that the client decided on at decided. If
// as many holders as the limit entered before that and after the client, and are still
// inside, one of them has lost its lock to this release. If success is only claimed, the
// violation is counted when that holder turns out to have lost its lock: by [Oracle.Removed]
// or because another client enters.
func (o *Oracle) Unlocked(v *Hold, decided, now time.Time) {
	for v, s := range v.locked {
		o.unlocked(v, s, decided, now)
	}
}

func (o *Oracle) unlocked(v *Hold, s *criticalSection, decided, now time.Time) {
	taken := 0
	doubt := suspect{violation: ForeignUnlock, since: now, at: now, client: Everybody, keys: []int{s.index}}
	if v.nested() { // the entry that remained may have been the only one on the server
		doubt.since = v.since
	}
	for _, other := range s.inside {
		if other.number < v.number || !other.Began.Before(decided) || !v.excludes(other) {
			continue
		}
		doubt.since = earlier(doubt.since, other.since) // its lock may have been deleted, and its reply have come late
		if taken++; taken < s.limit {
			continue
		}
		if o.excused(doubt) {
			return
		}
		e := Evidence{
			Violation: ForeignUnlock, Key: s.name, At: now,
			First: v.side(now), Second: other.side(now), Cause: v.knownCause(),
		}
		if o.config.Claimed {
			other.removed = &e
		} else {
			o.keep(e)
		}
		return
	}
}

// Removed records that the lock of a holder was lost before the end of its lease. It
// counts the foreign unlock that explains this, if there was one.
func (o *Oracle) Removed(v *Hold, now time.Time) {
	for v := range v.locked {
		o.confirm(v, now)
	}
}

// confirm counts the foreign unlock that removed the lock of v before now, unless something
// else may have removed it. section.mu must be held.
func (o *Oracle) confirm(v *Hold, now time.Time) {
	e := v.removed
	v.removed = nil
	if e == nil {
		return
	}
	if !o.excused(suspect{violation: ForeignUnlock, since: v.since, at: now, client: v.Client, keys: []int{v.section.index}}) {
		o.keep(*e)
	}
}

// countStreak counts acquires in a row.
func (s *criticalSection) countStreak(client int) {
	if client != s.last {
		s.last, s.streak = client, 0
	}
	s.streak++
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
	over := !v.valid() && !now.Before(v.latest(now)) // certainly
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

// anyHold records that a hold of any keys begins, or that one ended at a time.
func (o *Oracle) anyHold(by int, ended time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.holds, o.ended = o.holds+by, later(o.ended, ended)
}

// lastHeld returns when a client held any key last.
func (o *Oracle) lastHeld(now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.holds > 0 {
		return now
	}
	return o.ended
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
	free := later(s.wanted, s.freed)
	if o.config.Sets {
		free = later(free, o.lastHeld(now))
	}
	if n := len(s.inside) - s.limit; n >= 0 { // the key was free when it had fewer holds than it admits
		ends := make([]time.Time, len(s.inside))
		for i, v := range s.inside {
			ends[i] = v.end(now)
		}
		slices.SortFunc(ends, time.Time.Compare)
		free = later(free, ends[n])
	}
	return now.Sub(free)
}
