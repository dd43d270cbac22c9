package loadgen

import (
	"context"
	"slices"
	"sync"
	"time"
)

// oracle checks every critical section of a run. It runs in the process of the clients,
// so it knows when each client is inside. A hold begins after the acquire returns. It
// ends before the client sends the release, or at the end of the lease if that is
// earlier. A hold is therefore always within the time of exclusion that the lock
// promises, and every overlap that the oracle counts is real.
//
// All methods are safe for concurrent use. Clients contend only for the short
// bookkeeping of one key.
type oracle struct {
	sections []criticalSection // one per key
	patience time.Duration

	mu       sync.Mutex // guards found, evidence, wiped and suspects
	found    findings
	evidence map[EventKind][]Evidence
	wiped    keyLoss // newest loss of all keys at once
	suspects []suspect
	report   func(Evidence)
	handoff  func(time.Duration)
	inOrder  bool // the lock serves waiters in order of arrival
	numbered bool // the fence rises with every exclusive holder
}

// findings are the counts of an oracle.
type findings struct {
	overlap, work                           Overlap
	late                                    LateWorkStats
	fenced, corrupt, stuck, foreign         int64
	untold, lostAlone, overtaken, unordered int64
}

// suspect is a possible violation. A disturbance may explain it, and may become known
// later.
type suspect struct {
	Evidence
	client int       // affected client; everybody = the lock itself
	since  time.Time // an explanation must not have ended long before
}

// keyLoss is a fault that deletes locks while clients hold them.
type keyLoss struct {
	at   time.Time
	kind FaultKind
}

// validity is what the oracle reads of a lease. Valid decides. Deadline is the end of a
// lease that is no longer valid.
type validity interface {
	Valid() bool
	Deadline() time.Time
}

// participant is a client that enters a critical section.
type participant struct {
	client int // from 0
	token  string
	fence  int64
	shared bool // a reader: other readers may be inside
	flaw   string
	asked  time.Time
}

// attempt is the attempt of a client that waits for a key.
type attempt struct {
	client int
	asked  time.Time
	ctx    context.Context // ends when the client stops waiting
	queued time.Time       // time of the first refusal, when it begins to queue; zero before
}

// criticalSection is the critical section of one key, with the resource that the lock
// protects.
type criticalSection struct {
	mu       sync.Mutex
	name     string
	inside   []*occupancy // in order of entry
	waiting  int
	queue    []*attempt // waiters, if the order matters
	wanted   time.Time  // since when clients wait and no hold has ended
	freed    time.Time  // end of the newest hold that left
	entered  int64      // number of holds so far
	fence    int64      // largest fence that the resource has seen
	number   int64      // fence of the newest exclusive holder
	numberAt time.Time  // when that holder entered
	wiped    keyLoss    // newest loss of this key alone

	last   int // client of the newest hold
	streak int // its acquires in a row
	best   int // largest streak while others waited
	busy   time.Duration
}

// occupancy is one hold, from enter to leave.
type occupancy struct {
	participant
	lease   validity
	section *criticalSection
	number  int64
	began   time.Time
	fault   FaultKind  // that affects the holder; guarded by section.mu
	beside  *occupancy // an earlier hold that was inside at the same time; guarded by section.mu
	granted bool       // both leases were valid then; guarded by section.mu
	told    bool       // the pair was reported; guarded by section.mu
	hold    int64      // number in the history; 0 = not recorded
}

// newOracle returns an oracle for keys with these names. A key is stuck if no client
// has it for longer than patience while a client waits for it.
func newOracle(names []string, patience time.Duration) *oracle {
	o := &oracle{
		sections: make([]criticalSection, len(names)),
		patience: patience,
		evidence: make(map[EventKind][]Evidence),
		report:   func(Evidence) {},
		handoff:  func(time.Duration) {},
	}
	for i := range o.sections {
		o.sections[i].name = names[i]
	}
	return o
}

// waiterAdded records that a client waits for a key.
func (o *oracle) waiterAdded(key int, a *attempt) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 {
		s.wanted = a.asked
	}
	s.waiting++
	if o.inOrder {
		s.queue = append(s.queue, a)
	}
}

// queued records that the lock refused a waiting client, which then begins to queue.
func (o *oracle) queued(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := s.attemptOf(client); i >= 0 && s.queue[i].queued.IsZero() {
		s.queue[i].queued = now
	}
}

func (s *criticalSection) attemptOf(client int) int {
	return slices.IndexFunc(s.queue, func(a *attempt) bool { return a.client == client })
}

// unqueue records that a client stops waiting.
func (s *criticalSection) unqueue(client int) {
	s.waiting--
	if i := s.attemptOf(client); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// waiterGone records that a client stops waiting without a hold.
func (o *oracle) waiterGone(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 1 {
		o.endDrought(s, now)
	}
	s.unqueue(client)
}

// enter records that a waiting client enters the critical section of a key at now. The
// caller must read now after the acquire returned.
func (o *oracle) enter(key int, who participant, lease validity, now time.Time) *occupancy {
	s := &o.sections[key]
	v := &occupancy{participant: who, lease: lease, section: s, began: now}
	s.mu.Lock()
	defer s.mu.Unlock()
	o.endDrought(s, now)
	if len(s.inside) == 0 && s.freed.After(s.wanted) {
		o.handoff(now.Sub(s.freed))
	}
	if i := slices.IndexFunc(s.inside, v.excludes); i >= 0 {
		o.grantedBeside(s.inside[i], v)
	}
	o.worksBeside(v)
	s.unqueue(who.client)
	o.overtook(v)
	s.wanted = now
	s.run(who.client)
	s.entered++
	v.number = s.entered
	if !who.shared {
		o.numberOf(v)
		s.fence = max(s.fence, who.fence)
	}
	s.inside = append(s.inside, v)
	return v
}

// queueWithin is how long after its first refusal a client of a fair lock may take to
// join the queue, because it subscribes first.
const queueWithin = 2 * time.Second

// overtook checks whether the lock served the holder before a client that was in the
// queue when the holder asked.
func (o *oracle) overtook(v *occupancy) {
	for _, a := range v.section.queue {
		if !a.queued.IsZero() && a.queued.Add(queueWithin).Before(v.asked) && a.ctx.Err() == nil {
			o.suspect(suspect{Evidence{
				Violation: WasOvertaken, Key: v.section.name, At: v.began, Length: v.began.Sub(a.queued),
				First: Side{Client: a.client + 1, From: a.asked, To: v.began}, Second: v.side(v.began),
			}, a.client, a.asked})
			return
		}
	}
}

// numberOf checks that the fence of a holder is larger than the fence before. It skips
// a holder whose lease is over: its fence may be old.
func (o *oracle) numberOf(v *occupancy) {
	s := v.section
	if !o.numbered || !v.going() {
		return
	}
	if s.entered > 1 && v.fence <= s.number {
		o.suspect(suspect{Evidence{
			Violation: NumberFell, Key: s.name, At: v.began, First: Side{Fence: s.number}, Second: v.side(v.began),
		}, everybody, s.numberAt})
	}
	s.number, s.numberAt = v.fence, v.began
}

// suspect keeps a possible violation until settle.
func (o *oracle) suspect(s suspect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspects = append(o.suspects, s)
}

// settle counts the suspects up to until that no disturbance explains.
func (o *oracle) settle(until time.Time, explained func(client int, since, at time.Time) bool) {
	o.mu.Lock()
	n := 0
	for n < len(o.suspects) && !o.suspects[n].At.After(until) {
		n++
	}
	ripe := o.suspects[:n]
	o.suspects = slices.Clone(o.suspects[n:])
	o.mu.Unlock()
	for _, s := range ripe {
		if explained(s.client, s.since, s.At) {
			continue
		}
		o.mu.Lock()
		switch s.Violation {
		case WasOvertaken:
			o.found.overtaken++
		case NumberFell:
			o.found.unordered++
		default:
			o.found.lostAlone++
		}
		o.mu.Unlock()
		o.keep(s.Evidence)
	}
}

// untold counts a lease that is over without its holder being notified.
func (o *oracle) untold(v *occupancy, now time.Time) {
	o.mu.Lock()
	o.found.untold++
	o.mu.Unlock()
	o.keep(Evidence{
		Violation: WasUntold, Key: v.section.name, At: now, Length: max(now.Sub(v.lease.Deadline()), 0), First: v.side(now),
	})
}

// lost suspects the loss of a renewed lease before its holder was done.
func (o *oracle) lost(v *occupancy, now time.Time) {
	o.suspect(suspect{Evidence{
		Violation: LostAlone, Key: v.section.name, At: now, Length: now.Sub(v.began), First: v.side(now),
	}, v.client, v.began})
}

// worksBeside counts a hold that begins while another is inside, whatever their leases
// say.
func (o *oracle) worksBeside(v *occupancy) {
	i := slices.IndexFunc(v.section.inside, v.conflicts)
	if i < 0 {
		return
	}
	if v.beside == nil {
		v.beside = v.section.inside[i]
	}
	o.mu.Lock()
	o.found.work.Count++
	o.mu.Unlock()
}

// run counts acquires in a row.
func (s *criticalSection) run(client int) {
	if client == s.last {
		s.streak++
	} else {
		s.last, s.streak = client, 1
	}
	if s.waiting > 0 {
		s.best = max(s.best, s.streak)
	}
}

// excludes reports whether v must not enter while other, which entered earlier, is
// inside.
func (v *occupancy) excludes(other *occupancy) bool { return v.conflicts(other) && other.going() }

// conflicts reports whether v and other must not work at the same time.
func (v *occupancy) conflicts(other *occupancy) bool { return !(v.shared && other.shared) }

// endDrought counts a stuck key, if no client had the key for longer than patience.
func (o *oracle) endDrought(s *criticalSection, now time.Time) {
	if dry := s.unheldFor(now); dry > o.patience {
		o.mu.Lock()
		o.found.stuck++
		o.mu.Unlock()
		o.keep(Evidence{Violation: StuckKey, Key: s.name, At: now, Length: dry})
	}
}

// unheldFor returns for how long the key has had waiters and no holder.
func (s *criticalSection) unheldFor(now time.Time) time.Duration {
	if s.waiting == 0 {
		return 0
	}
	free := s.wanted
	if s.freed.After(free) {
		free = s.freed
	}
	for _, v := range s.inside {
		if end := v.end(now); end.After(free) {
			free = end
		}
	}
	return now.Sub(free)
}

// write records that a client writes to the protected resource, and reports whether the
// resource accepts the write. A polite client checks its lease first and does not write
// without one. Then write returns false and counts no violation.
func (o *oracle) write(v *occupancy, polite bool, now time.Time) bool {
	s := v.section
	s.mu.Lock()
	defer s.mu.Unlock()
	valid := v.going()
	if polite && !valid {
		return false
	}
	if !valid {
		o.lateWork(v, now)
	}
	switch {
	case v.shared:
	case v.fence > 0 && v.fence < s.fence:
		o.stale(v, FencedWrite, now)
		return false
	case !valid && s.entered > v.number:
		o.stale(v, WriteAccepted, now)
	}
	return true
}

func (o *oracle) lateWork(v *occupancy, now time.Time) {
	late := max(now.Sub(v.lease.Deadline()), 0)
	o.mu.Lock()
	o.found.late.Count++
	o.found.late.Total += late
	o.found.late.Longest = max(o.found.late.Longest, late)
	o.mu.Unlock()
	o.keep(Evidence{
		Violation: LateWork, Key: v.section.name, At: now, Length: late,
		First: v.side(now), Cause: v.blame(),
	})
}

// stale counts a write that comes after a later holder entered.
func (o *oracle) stale(v *occupancy, how EventKind, now time.Time) {
	o.mu.Lock()
	if how == FencedWrite {
		o.found.fenced++
	} else {
		o.found.corrupt++
	}
	o.mu.Unlock()
	e := Evidence{Violation: how, Key: v.section.name, At: now, First: v.side(now), Cause: v.blame()}
	for _, other := range v.section.inside {
		if other.number > v.number {
			e.Second = other.side(now)
		}
	}
	o.keep(e)
}

// leave records that a client leaves. The caller must call it before the release.
func (o *oracle) leave(v *occupancy, now time.Time) {
	s := v.section
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.inside, v)
	s.inside = slices.Delete(s.inside, i, i+1)
	end := v.end(now)
	if end.After(s.freed) {
		s.freed = end
	}
	s.busy += max(end.Sub(v.began), 0)
	if together, other := v.longestOverlap(s.inside, now); together > 0 {
		first, second := inOrder(v, other)
		if !second.granted {
			o.grantedBeside(first, second) // at the entry of second, the lease of first was over; it became valid again
		}
		o.mu.Lock()
		o.found.overlap.Total += together
		o.found.overlap.Longest = max(o.found.overlap.Longest, together)
		o.mu.Unlock()
	}
	if i := slices.IndexFunc(s.inside, v.conflicts); i >= 0 {
		_, second := inOrder(v, s.inside[i])
		together := now.Sub(second.began)
		o.mu.Lock()
		o.found.work.Total += together
		o.found.work.Longest = max(o.found.work.Longest, together)
		o.mu.Unlock()
	}
	for _, other := range s.inside {
		if other.beside == v {
			o.pairEnded(v, other, now)
		}
	}
	if v.beside != nil {
		o.pairEnded(v.beside, v, now)
	}
}

func inOrder(a, b *occupancy) (first, second *occupancy) {
	if b.number < a.number {
		return b, a
	}
	return a, b
}

// unlocked records a successful release that the client decided on at decided. A holder
// that entered before that and is still inside has lost its lock to this release.
func (o *oracle) unlocked(v *occupancy, decided, now time.Time) {
	s := v.section
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range s.inside {
		if other.number < v.number || !other.began.Before(decided) || !v.excludes(other) {
			continue
		}
		o.mu.Lock()
		o.found.foreign++
		o.mu.Unlock()
		o.keep(Evidence{
			Violation: ForeignUnlock, Key: s.name, At: now,
			First: v.side(now), Second: other.side(now), Cause: v.blame(),
		})
		return
	}
}

// applyFault records a fault that affects a client inside a hold.
func (o *oracle) applyFault(v *occupancy, kind FaultKind) {
	v.section.mu.Lock()
	defer v.section.mu.Unlock()
	v.fault = kind
}

// wipe records that a fault deletes a key, or all keys if key is negative. The caller
// must call it before the fault begins.
func (o *oracle) wipe(key int, kind FaultKind, now time.Time) {
	if key < 0 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.wiped = keyLoss{now, kind}
		return
	}
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wiped = keyLoss{now, kind}
}

func (o *oracle) wipedAt() keyLoss {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.wiped
}

// causeOf names the known cause why second entered while first was inside, "" if there
// is none. Wiped reports whether the fault deleted the key, so that no lock could have
// prevented it.
func (s *criticalSection) causeOf(first, second *occupancy, all keyLoss) (cause string, wiped bool) {
	for _, w := range []keyLoss{s.wiped, all} {
		if w.kind != "" && !w.at.Before(first.began) && w.at.Before(second.began) {
			return string(w.kind), true
		}
	}
	for _, v := range []*occupancy{first, second} {
		if cause := v.blame(); cause != "" {
			return cause, false
		}
	}
	return "", false
}

// blame names the fault and the flaw of a holder. section.mu must be held.
func (v *occupancy) blame() string {
	switch {
	case v.fault != "" && v.flaw != "":
		return string(v.fault) + ", " + v.flaw
	case v.fault != "":
		return string(v.fault)
	}
	return v.flaw
}

// grantedBeside counts an overlap of a hold with a later one. section.mu must be held.
func (o *oracle) grantedBeside(first, second *occupancy) {
	second.granted, second.beside = true, first
	_, excused := second.section.causeOf(first, second, o.wipedAt())
	o.mu.Lock()
	defer o.mu.Unlock()
	o.found.overlap.Count++
	if excused {
		o.found.overlap.Excused++
	}
}

// pairEnded reports two holds that were inside at the same time, when the first of them
// leaves. It reports each counted pair once.
func (o *oracle) pairEnded(first, second *occupancy, now time.Time) {
	if second.told {
		return
	}
	second.told = true
	cause, _ := first.section.causeOf(first, second, o.wipedAt())
	e := Evidence{
		Violation: WorkOverlapped, Key: first.section.name, At: second.began, Length: now.Sub(second.began),
		First: first.side(now), Second: second.side(now), Cause: cause,
	}
	if second.granted {
		e.Violation, e.Length = Overlapped, max(earlier(first.end(now), second.end(now)).Sub(second.began), 0)
	}
	o.keep(e)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// keep stores the first violations of each kind, and reports all of them.
func (o *oracle) keep(e Evidence) {
	o.mu.Lock()
	if len(o.evidence[e.Violation]) < maxEvidence {
		o.evidence[e.Violation] = append(o.evidence[e.Violation], e)
	}
	o.mu.Unlock()
	o.report(e)
}

// fill sets the fields of m that come from the oracle.
func (o *oracle) fill(m *Metrics, now time.Time) {
	var busy time.Duration
	wanted, dry := 0, int64(0)
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		m.Fairness.Streak = max(m.Fairness.Streak, s.best)
		if s.unheldFor(now) > o.patience {
			dry++
		}
		if s.entered > 0 {
			wanted++
			busy += s.busy
			for _, v := range s.inside {
				busy += max(v.end(now).Sub(v.began), 0)
			}
		}
		s.mu.Unlock()
	}
	if wanted > 0 && m.Elapsed > 0 {
		m.Utilisation = min(busy.Seconds()/m.Elapsed.Seconds()/float64(wanted), 1)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.found
	m.Overlap, m.WorkOverlap, m.LateWork = f.overlap, f.work, f.late
	m.Fenced, m.AcceptedStaleWrites, m.ForeignUnlocks = f.fenced, f.corrupt, f.foreign
	m.Untold, m.LostAlone, m.Overtaken, m.NumberFell = f.untold, f.lostAlone, f.overtaken, f.unordered
	m.Stuck = f.stuck + dry
	for _, kind := range violationKinds() {
		m.Evidence = append(m.Evidence, o.evidence[kind]...)
	}
}

// restart resets the utilisation and the longest streak.
func (o *oracle) restart() {
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		s.busy, s.best = 0, 0
		s.mu.Unlock()
	}
}

// held returns a key that a client holds now; ok is false if there is none.
func (o *oracle) held() (key int, ok bool) {
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		busy := slices.ContainsFunc(s.inside, (*occupancy).going)
		s.mu.Unlock()
		if busy {
			return i, true
		}
	}
	return 0, false
}

// touched returns the names of the keys that any client has ever asked for.
func (o *oracle) touched() []string {
	var names []string
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		if !s.wanted.IsZero() {
			names = append(names, s.name)
		}
		s.mu.Unlock()
	}
	return names
}

// going reports whether the lease of the hold is valid.
func (v *occupancy) going() bool { return v.lease.Valid() }

// end returns the end of the hold, if it leaves now.
func (v *occupancy) end(now time.Time) time.Time {
	if deadline := v.lease.Deadline(); !v.going() && deadline.Before(now) {
		return deadline
	}
	return now
}

// side returns the hold as evidence, if it leaves now.
func (v *occupancy) side(now time.Time) Side {
	return Side{
		Client: v.client + 1, Token: v.token, Fence: v.fence, Reader: v.shared,
		From: v.began, To: now, Deadline: v.lease.Deadline(),
	}
}

// longestOverlap returns the longest time for which v and another hold were inside
// together, and that hold. The others are in order of entry. It stops at the first one
// that v excludes and whose lease is valid: later ones were inside together with v for
// a shorter time.
func (v *occupancy) longestOverlap(others []*occupancy, now time.Time) (time.Duration, *occupancy) {
	var longest time.Duration
	var with *occupancy
	end := v.end(now)
	for _, other := range others {
		if v.shared && other.shared {
			continue
		}
		together := end
		if e := other.end(now); e.Before(end) {
			together = e
		}
		began := v.began
		if other.began.After(began) {
			began = other.began
		}
		if d := together.Sub(began); d > longest {
			longest, with = d, other
		}
		if other.going() {
			break
		}
	}
	return longest, with
}
