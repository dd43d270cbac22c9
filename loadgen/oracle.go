package loadgen

import (
	"context"
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
	sections []criticalSection // one per key
	patience time.Duration

	mu       sync.Mutex // locked only when something is wrong, and to read
	found    findings
	evidence map[EventKind][]Evidence
	wiped    keyLoss // the newest of all keys at once
	suspects []suspect
	report   func(Evidence)
	handoff  func(time.Duration)
	inOrder  bool // waiters are served in the order in which they came
	numbered bool // every holder that excludes others has a larger number than the one before
}

// findings are what an oracle has counted.
type findings struct {
	overlap, work                           Overlap
	late                                    LateWorkStats
	fenced, corrupt, stuck, foreign         int64
	untold, lostAlone, overtaken, unordered int64
}

// suspect is something that a lock must not do unless something else brought it
// about. That may be known a little later only.
type suspect struct {
	Evidence
	client int       // that it was done to; everybody: to the lock itself
	since  time.Time // what explains it was not over long before
}

// keyLoss is a fault that takes locks away from their holders.
type keyLoss struct {
	at   time.Time
	kind FaultKind
}

// validity is what the oracle asks of a lease. Valid is the judge, Deadline the
// time at which a lease that is no longer valid was over.
type validity interface {
	Valid() bool
	Deadline() time.Time
}

// participant is who enters a section.
type participant struct {
	client int // from 0
	token  string
	fence  int64
	shared bool // only reads: others who only read may be inside
	flaw   string
	asked  time.Time
}

// attempt is that of a client which waits for a key.
type attempt struct {
	client int
	asked  time.Time
	ctx    context.Context // ends when the client waits no longer
	queued time.Time       // when it was refused, and began to queue; zero before
}

// criticalSection is the critical section of one key, and what it protects.
type criticalSection struct {
	mu       sync.Mutex
	name     string
	inside   []*occupancy // in the order they came
	waiting  int
	queue    []*attempt // of those who wait, where their order matters
	wanted   time.Time  // since when somebody has been waiting without a hold ending
	freed    time.Time  // when the last visit that left was over
	entered  int64      // visits so far
	fence    int64      // the largest number that the resource has seen
	number   int64      // of the newest holder that excludes others
	numberAt time.Time  // when that one came
	wiped    keyLoss    // the newest of this key alone

	last   int // client of the newest visit
	streak int // how often in a row
	best   int // most of them, while others waited
	busy   time.Duration
}

// occupancy is one hold, from enter to leave.
type occupancy struct {
	participant
	lease   validity
	section *criticalSection
	number  int64
	began   time.Time
	fault   FaultKind  // what struck the holder; guarded by section.mu
	beside  *occupancy // the one whose time it came in; guarded by section.mu
	granted bool       // beside had a lease then, as this one has; guarded by section.mu
	told    bool       // the two were reported; guarded by section.mu
	hold    int64      // in the history; 0 = not kept there
}

// newOracle watches keys of these names. Nobody having one for longer than
// patience, though somebody wants it, is worth a word.
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

// waiterAdded notes that a client waits for a key.
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

// queued notes that a client was refused, and begins to queue, if it still waits.
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

// unqueue notes that a client waits no longer.
func (s *criticalSection) unqueue(client int) {
	s.waiting--
	if i := s.attemptOf(client); i >= 0 {
		s.queue = slices.Delete(s.queue, i, i+1)
	}
}

// waiterGone notes that a client waits no longer, and has nothing.
func (o *oracle) waiterGone(key, client int, now time.Time) {
	s := &o.sections[key]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 1 {
		o.endDrought(s, now)
	}
	s.unqueue(client)
}

// enter notes that a client, which waited, is inside a key's section from now
// on, which must have been read after the acquisition returned.
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
// stand in the queue: it has to listen first. Until then it is in flight.
const queueWithin = 2 * time.Second

// overtook notes whether the holder was served before a client that stood in the
// queue when the holder had not asked yet.
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

// numberOf notes whether the number of a holder is larger than that of the one
// before. A holder whose lease is over may have got its number long ago.
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

// suspect keeps what may turn out to be a violation.
func (o *oracle) suspect(s suspect) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.suspects = append(o.suspects, s)
}

// settle counts what is suspected up to a moment, unless it is explained.
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

// untold notes that a holder's lease is over, and that it was not told.
func (o *oracle) untold(v *occupancy, now time.Time) {
	o.mu.Lock()
	o.found.untold++
	o.mu.Unlock()
	o.keep(Evidence{
		Violation: WasUntold, Key: v.section.name, At: now, Length: max(now.Sub(v.lease.Deadline()), 0), First: v.side(now),
	})
}

// lost notes that a lease that is kept alive was over before its holder was done.
func (o *oracle) lost(v *occupancy, now time.Time) {
	o.suspect(suspect{Evidence{
		Violation: LostAlone, Key: v.section.name, At: now, Length: now.Sub(v.began), First: v.side(now),
	}, v.client, v.began})
}

// worksBeside counts a visit during which another goes on, whatever their leases
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

// run counts acquisitions in a row.
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

// excludes reports whether another, who came before, must not be inside.
func (v *occupancy) excludes(other *occupancy) bool { return v.conflicts(other) && other.going() }

// conflicts reports whether the work of two must not be done at once.
func (v *occupancy) conflicts(other *occupancy) bool { return !(v.shared && other.shared) }

// endDrought counts the end of a time in which nobody could take the key.
func (o *oracle) endDrought(s *criticalSection, now time.Time) {
	if dry := s.unheldFor(now); dry > o.patience {
		o.mu.Lock()
		o.found.stuck++
		o.mu.Unlock()
		o.keep(Evidence{Violation: StuckKey, Key: s.name, At: now, Length: dry})
	}
}

// unheldFor returns for how long nobody has had the key though somebody waits.
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

// write notes that a client writes to what the lock protects, and reports
// whether the write was let in. A polite client looks at its lease first, and
// does not write without one: then the answer is false, and nothing is wrong.
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

// stale counts a write that came after a later holder had entered.
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

// leave notes that a client is out. It must be called before the release.
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
			o.grantedBeside(first, second) // the lease of the first was over when the second came, and came to life again
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

// unlocked notes that a release was answered with success that was decided upon
// at a moment. Whoever came before that, and is inside still, has lost the lock
// to it.
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

// applyFault notes that a fault struck who is inside.
func (o *oracle) applyFault(v *occupancy, kind FaultKind) {
	v.section.mu.Lock()
	defer v.section.mu.Unlock()
	v.fault = kind
}

// wipe notes that a fault took a key away from whoever held it; of all keys if
// key is negative. It must be called before the fault strikes.
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

// causeOf names what let second in while first was inside, "" if nothing is
// known to have; wiped reports whether the lock had no chance.
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

// blame names what is known to be wrong with a holder. Its section's mutex must
// be held.
func (v *occupancy) blame() string {
	switch {
	case v.fault != "" && v.flaw != "":
		return string(v.fault) + ", " + v.flaw
	case v.fault != "":
		return string(v.fault)
	}
	return v.flaw
}

// grantedBeside counts an overlap of one visit with another that came later. The
// mutex of their section must be held.
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

// pairEnded reports two that were inside at once, when the first of them leaves:
// once for each that came later, as often as is counted.
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

// keep remembers the first violations of each kind, and passes all of them on.
func (o *oracle) keep(e Evidence) {
	o.mu.Lock()
	if len(o.evidence[e.Violation]) < maxEvidence {
		o.evidence[e.Violation] = append(o.evidence[e.Violation], e)
	}
	o.mu.Unlock()
	o.report(e)
}

// fill fills in what the oracle knows.
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

// restart begins to measure how busy the keys are.
func (o *oracle) restart() {
	for i := range o.sections {
		s := &o.sections[i]
		s.mu.Lock()
		s.busy, s.best = 0, 0
		s.mu.Unlock()
	}
}

// held returns a key that somebody is inside of; ok is false if there is none.
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

// touched returns the names of the keys that anybody ever wanted.
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

// going reports whether the hold counts: its lease is not over.
func (v *occupancy) going() bool { return v.lease.Valid() }

// end returns when the hold ended, if it is left now.
func (v *occupancy) end(now time.Time) time.Time {
	if deadline := v.lease.Deadline(); !v.going() && deadline.Before(now) {
		return deadline
	}
	return now
}

// side is the visit as evidence, if it is left now.
func (v *occupancy) side(now time.Time) Side {
	return Side{
		Client: v.client + 1, Token: v.token, Fence: v.fence, Reader: v.shared,
		From: v.began, To: now, Deadline: v.lease.Deadline(),
	}
}

// longestOverlap returns the longest time that v was inside together with one of the
// others, who are in the order they came, and with whom. It looks at no more of
// them than the first that v excludes and whose lease is good: those who came
// later were with v for a shorter time.
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
