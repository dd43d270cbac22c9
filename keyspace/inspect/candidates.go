package inspect

import (
	"fmt"
	"maps"
	"strings"
	"time"

	"locktop/keyspace"
)

// Bounds of candidates and of their evidence.
const (
	maxCandidates     = 256
	maxCandidateReads = 2048            // possible keys that a pass reads to find candidates
	maxWeakReads      = 4096            // keys with a weak probe that a pass reads; most of them are not locks
	candidateTTL      = time.Minute     // without evidence; then another key is watched
	minEvidence       = 2               // a single event may be chance
	maxSameValue      = 16              // locks of one client; more keys with one value are copies in a cache
	maxLease          = 5 * time.Minute // longest TTL of a lock; a session is renewed as well, but lasts longer
)

// candidates are keys that are only possibly locks. They are watched for a second sign:
// a new value each time the key comes back, a deadline that moves while the value
// stays, or one value in several keys. They are pure data.
type candidates struct {
	shown    keyspace.Confidence // confidence of the locks that are wanted
	known    map[string]*observed
	resumeAt int64 // number of keys that a pass visits before it collects candidates
	read     int   // possible keys that this pass has read
	capped   bool  // this pass has read as many keys with a weak probe as it may
	alike    *alike

	confirmed   confirmedKeys // candidates that were locks
	recheckedAt time.Time     // last read of all candidates
}

// observed is one such key, and how it has behaved.
type observed struct {
	candidate
	since     time.Time // when it was first seen
	present   bool      // at the last read
	newValues int       // number of times it had another value than before
	renewals  int       // number of times its deadline moved later
	returns   int       // number of times it came back after it was gone before its deadline
	goneAt    time.Time // when it was found gone; zero = it is present
}

func newCandidates(shown keyspace.Confidence, keepAlike bool) *candidates {
	cs := &candidates{shown: shown, known: make(map[string]*observed), confirmed: make(confirmedKeys)}
	if shown < enough && !keepAlike {
		cs.alike = newAlike()
	}
	return cs
}

// atLeast returns the confidence that a key needs to be read after a number of visited keys,
// of which the pass has read some with a weak probe.
func (cs *candidates) atLeast(visited int64, weakReads int) keyspace.Confidence {
	if weakReads >= maxWeakReads && !cs.capped {
		cs.capped, cs.resumeAt = true, visited
	}
	if !cs.full() && visited >= cs.resumeAt && !cs.capped {
		return keyspace.Possible
	}
	return cs.shown
}

// full reports whether a pass should stop collecting.
func (cs *candidates) full() bool {
	return len(cs.known) >= maxCandidates || cs.read >= maxCandidateReads
}

// split adds the candidates of a page and returns the locks that are wanted.
func (cs *candidates) split(all []candidate, visited int64, now time.Time) (locks []candidate) {
	was := cs.full()
	for _, d := range all {
		if d.lock.Confidence >= enough {
			locks = append(locks, d)
			continue
		}
		class := keyspace.AlikeClass(d.lock.Key)
		if cs.alike.add(class, 1); d.lock.Confidence >= cs.shown && !cs.alike.isCrowded(class) {
			locks = append(locks, d)
		}
		cs.read++
		if cs.known[d.lock.Key] == nil && len(cs.known) < maxCandidates && canConfirm(d, now) {
			d.lock = new(*d.lock) // the other one may be shown
			cs.known[d.lock.Key] = &observed{candidate: d, since: now, present: true}
		}
	}
	if cs.alike != nil {
		cs.alike.sample = len(cs.known) < maxCandidates
	}
	if !was && cs.full() && !cs.capped {
		cs.resumeAt = visited // the next pass resumes here
	}
	return locks
}

// enough is the confidence that needs no second sign.
const enough = keyspace.Likely

// canConfirm reports whether a second sign can be expected: the lock expires soon, clients
// subscribe to it, or its name or fields suggest a lock, which comes back.
func canConfirm(d candidate, now time.Time) bool {
	if l := d.lock; l.Kind == keyspace.Semaphore || l.Kind == keyspace.Latch || d.format.LockLike {
		return true
	}
	return !d.lock.Expires.IsZero() && d.lock.Expires.Sub(now) < maxLease
}

// countKnown counts the possible locks that a watcher knows, which a pass does not read.
func (cs *candidates) countKnown(known lockSet) {
	if cs.alike == nil {
		return
	}
	for key, d := range known {
		if d.lock.Confidence < enough {
			cs.alike.add(keyspace.AlikeClass(key), 1)
		}
	}
}

// endPass notes the end of a pass. If it could read all that may be a candidate, the next
// pass collects from the beginning.
func (cs *candidates) endPass() {
	if !cs.full() && !cs.capped {
		cs.resumeAt = 0
	}
	cs.read, cs.capped = 0, false
	cs.alike.endPass()
}

// update processes a read of the candidates; keys that are not in it are gone. It
// removes and returns the confirmed locks, and removes candidates without evidence
// after candidateTTL.
func (cs *candidates) update(read []candidate, now time.Time) (locks []candidate) {
	for _, k := range cs.known {
		k.present = false
	}
	for _, d := range read {
		if k := cs.known[d.lock.Key]; k != nil {
			k.observe(d)
		}
	}
	for _, k := range cs.known {
		if !k.present && k.goneAt.IsZero() {
			k.goneAt = now
		}
	}
	locks = cs.takeConfirmed()
	for key, k := range cs.known {
		if now.Sub(k.since) > candidateTTL {
			delete(cs.known, key)
		}
	}
	return locks
}

// takeConfirmed removes and returns the candidates that are locks.
func (cs *candidates) takeConfirmed() (locks []candidate) {
	for key, why := range cs.evidence() {
		if k := cs.known[key]; k.present {
			locks = append(locks, promote(k.candidate, why))
			if k.secondSign() != "" {
				cs.alike.use(key)
			}
			delete(cs.known, key)
		}
	}
	return locks
}

// observe compares a read with the previous one.
func (c *observed) observe(d candidate) {
	was, is, goneAt := c.lock, d.lock, c.goneAt
	c.candidate, c.present, c.goneAt = d, true, time.Time{}
	if !goneAt.IsZero() && (was.Expires.IsZero() || goneAt.Before(was.Expires)) {
		c.returns++
	}
	switch {
	case len(was.Holders) != 1 || len(is.Holders) != 1:
	case was.Holders[0].ID != is.Holders[0].ID && (was.Holders[0].Label == "" || was.Holders[0].Label != is.Holders[0].Label):
		// The value of an object also changes when its owner notes in it that it lives; its label stays.
		c.newValues++
	case goneAt.IsZero() && !was.Expires.IsZero() && is.Expires.Sub(was.Expires) > keyspace.DeadlineJitter:
		c.renewals++
	}
}

// secondSign returns the evidence in the behaviour of a candidate; empty if there is too
// little.
func (c *observed) secondSign() string {
	lease := c.lock.Expires.Sub(c.since)
	short := !c.lock.Expires.IsZero() && lease < maxLease+candidateTTL
	switch {
	case c.renewals >= minEvidence && short:
		return fmt.Sprintf("its deadline moved later %d times while its value stayed the same", c.renewals)
	case c.newValues >= minEvidence && short:
		return fmt.Sprintf("it reappeared with another value %d times", c.newValues)
	case c.returns >= minEvidence && c.format.LockLike:
		return fmt.Sprintf("it was deleted and came back %d times", c.returns)
	default:
		return ""
	}
}

// evidence returns the second sign of the candidates that have one, by key.
func (cs *candidates) evidence() map[string]string {
	why := make(map[string]string)
	byToken := make(map[string][]*observed)
	for key, k := range cs.known {
		if sign := k.secondSign(); sign != "" || k.lock.Confidence >= enough {
			why[key] = sign
		}
		if k.present && len(k.lock.Holders) == 1 && len(k.lock.Holders[0].ID) >= keyspace.MinTokenLen && !k.lock.Expires.IsZero() {
			byToken[k.lock.Holders[0].ID] = append(byToken[k.lock.Holders[0].ID], k)
		}
	}
	for _, several := range byToken {
		for _, k := range several {
			if n := k.sameValueCount(several); n > 1 && n <= maxSameValue && why[k.lock.Key] == "" {
				why[k.lock.Key] = fmt.Sprintf("%d keys have the same value", n)
			}
		}
	}
	return why
}

// sameValueCount counts the keys with the same value that also have the same deadline
// or the same first name part: a client that takes several locks at the same time, or that uses
// one value for all its locks.
func (c *observed) sameValueCount(several []*observed) int {
	n := 0
	for _, o := range several {
		together := o.lock.Expires.Sub(c.lock.Expires).Abs() <= keyspace.DeadlineJitter
		alike := keyFamily(o.lock.Key) == keyFamily(c.lock.Key) && keyFamily(c.lock.Key) != ""
		if together || alike {
			n++
		}
	}
	return n
}

// keyFamily returns the part of a name before the first separator, which is common to
// the keys of one application.
func keyFamily(key string) string {
	i := strings.IndexAny(key, ":./")
	return key[:max(0, i)]
}

// promote returns the candidate with the evidence why and at least the confidence
// Likely.
func promote(d candidate, why string) candidate {
	if why != "" {
		d.lock = new(d.lock.WithEvidence(why))
	}
	return d
}

// confirmedKeys maps the keys of confirmed candidates to their evidence. Such a key is
// a lock as soon as it comes back.
type confirmedKeys map[string]string

// Bounds of the counts of possible locks by class.
const (
	maxClasses  = 1 << 14 // classes of which possible locks are counted; a class has at most 120 bytes
	alikeSample = 64      // of the keys of a crowded class, one of so many is read, others in each pass
)

// alike counts the possible locks of each class. A class of which there are many is crowded:
// its keys are not shown, and not even read, unless one was seen to behave as a lock. Crowded
// classes are sampled, so that their behaviour is seen. A nil alike counts nothing.
type alike struct {
	counts  map[string]int  // possible locks of this pass
	crowded map[string]int  // crowded classes, with the number of keys in the last pass
	fresh   map[string]bool // classes that are crowded since the last call of takeFresh
	used    map[string]bool // classes of which a key has behaved as a lock
	passes  int
	sample  bool // more candidates can be watched
}

func newAlike() *alike {
	return &alike{counts: make(map[string]int), crowded: make(map[string]int), fresh: make(map[string]bool), used: make(map[string]bool)}
}

// isCrowded reports whether the possible locks of the class of a key are not shown.
func (a *alike) isCrowded(class string) bool {
	if a == nil {
		return false
	}
	_, crowded := a.crowded[class]
	return crowded
}

// add counts keys of a class.
func (a *alike) add(class string, n int) {
	if a == nil || a.used[class] || a.counts[class] == 0 && len(a.counts) >= maxClasses {
		return
	}
	a.counts[class] += n
	if a.counts[class] > keyspace.MaxAlike {
		if !a.isCrowded(class) {
			a.fresh[class] = true
		}
		a.crowded[class] = max(a.crowded[class], a.counts[class])
	}
}

// skips reports whether a key of a class need not be read, which is the key with this number of
// the class in this pass.
func (a *alike) skips(class string, number int) bool {
	if !a.isCrowded(class) {
		return false
	}
	every := max(alikeSample, a.crowded[class]/maxCandidates*alikeSample)
	return !a.sample || number%every != a.passes%every
}

// use notes that a key has behaved as a lock: those of its class are shown again.
func (a *alike) use(key string) {
	if a == nil {
		return
	}
	if len(a.used) >= maxClasses {
		clear(a.used)
	}
	class := keyspace.AlikeClass(key)
	a.used[class] = true
	delete(a.crowded, class)
	delete(a.counts, class)
	delete(a.fresh, class)
}

// takeFresh returns the classes that are crowded since the last call.
func (a *alike) takeFresh() map[string]bool {
	if a == nil || len(a.fresh) == 0 {
		return nil
	}
	fresh := a.fresh
	a.fresh = make(map[string]bool)
	return fresh
}

// endPass ends the count of a pass. A class stays crowded until its keys are much fewer.
func (a *alike) endPass() {
	if a == nil {
		return
	}
	maps.DeleteFunc(a.crowded, func(class string, _ int) bool { return a.counts[class] <= keyspace.MaxAlike/2 })
	for class := range a.crowded {
		a.crowded[class] = a.counts[class]
	}
	clear(a.counts)
	a.passes++
}

// problems says which keys are not shown.
func (a *alike) problems() []string {
	if a == nil || len(a.crowded) == 0 {
		return nil
	}
	return []string{keyspace.AlikeProblem(a.crowded)}
}
