package inspect

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"locktop/keyspace"
)

// Bounds of the observation and of its evidence.
const (
	maxObserved      = 256
	maxPossibleReads = 2048            // possible locks that a pass reads to observe some of them
	maxWeakReads     = 4096            // keys with a weak probe that a pass reads; most of them are not locks
	observeFor       = time.Minute     // without evidence; then another key is observed
	minEvidence      = 2               // a single event may be chance
	maxSameValue     = 16              // locks of one client; more keys with one value are copies in a cache
	maxLease         = 5 * time.Minute // longest TTL of a lock; a session is renewed as well, but lasts longer
)

// possibleLocks observes keys that are only possibly locks for a second sign: a new value each
// time the key comes back, a deadline that moves while the value stays, or one value in several
// keys. It is pure data.
type possibleLocks struct {
	shown    keyspace.Confidence // confidence of the locks that are wanted
	observed map[string]*observed
	resumeAt int64 // number of keys that a pass visits before it observes more
	read     int   // possible locks that this pass has read
	hidden   int   // those of them that are not shown
	before   int   // those of the passes before
	partial  bool  // the last pass has read only some of the possible locks
	capped   bool  // this pass has read as many keys with a weak probe as it may
	alike    *alike

	confirmed   confirmedKeys // possible locks that were locks
	recheckedAt time.Time     // last read of all that are observed
}

// observed is such a key, and how it has behaved.
type observed struct {
	candidate
	since     time.Time // when it was first seen
	newValues int       // number of times it had another value than before
	renewals  int       // number of times its deadline moved later
	returns   int       // number of times it came back after it was gone before its deadline
	goneAt    time.Time // when it was found gone; zero = it is present
}

func newPossibleLocks(shown keyspace.Confidence, keepAlike bool) *possibleLocks {
	p := &possibleLocks{shown: shown, observed: make(map[string]*observed), confirmed: make(confirmedKeys), alike: &alike{}}
	if shown < enough && !keepAlike {
		p.alike = newAlike()
	}
	return p
}

// atLeast returns the confidence that a key needs to be read after a number of visited keys,
// of which the pass has read some with a weak probe.
func (p *possibleLocks) atLeast(visited int64, weakReads int) keyspace.Confidence {
	p.alike.sample = len(p.observed) < maxObserved
	if weakReads >= maxWeakReads && !p.capped {
		p.capped, p.resumeAt = true, visited
	}
	if !p.full() && visited >= p.resumeAt && !p.capped {
		return keyspace.Possible
	}
	return p.shown
}

// full reports whether a pass should observe no more.
func (p *possibleLocks) full() bool {
	return len(p.observed) >= maxObserved || p.read >= maxPossibleReads
}

// shows reports whether a possible lock is shown, after a pass has visited a number of keys. It
// observes the key if a second sign can be expected.
func (p *possibleLocks) shows(c candidate, visited int64, now time.Time) bool {
	key, class, was := c.lock.Key, keyspace.AlikeClass(c.lock.Key), p.full()
	p.alike.add(class, 1)
	p.read++
	l := c.lock // a second sign can be expected if it expires soon, clients subscribe to it, or its name or fields suggest a lock, which comes back
	mayReturn := l.Kind == keyspace.Semaphore || l.Kind == keyspace.Latch || c.format.LockLike || !l.Expires.IsZero() && l.Expires.Sub(now) < maxLease
	if p.observed[key] == nil && len(p.observed) < maxObserved && mayReturn {
		c.lock = new(*c.lock) // the other one may be shown
		p.observed[key] = &observed{candidate: c, since: now}
	}
	if !was && p.full() && !p.capped {
		p.resumeAt = visited // the next pass resumes here
	}
	if c.lock.Confidence < p.shown {
		p.hidden++
		return false
	}
	return !p.alike.isCrowded(class)
}

// notShown returns how many possible locks are not shown, and whether there may be more: a pass reads a part of many.
func (p *possibleLocks) notShown() (n int, atLeast bool) {
	return max(p.hidden, p.before, 0), p.partial || p.resumeAt > 0 || p.capped
}

// enough is the confidence that needs no second sign.
const enough = keyspace.Likely

// countKnown counts the possible locks that a watcher knows, which a pass does not read.
func (p *possibleLocks) countKnown(known lockSet) {
	if p.alike.counts == nil {
		return
	}
	for key, c := range known {
		if c.lock.Confidence < enough {
			p.alike.add(keyspace.AlikeClass(key), 1)
		}
	}
}

// endPass notes the end of a pass. If it could read all possible locks, the next pass observes
// from the beginning.
func (p *possibleLocks) endPass() {
	if p.partial = p.resumeAt > 0 || p.capped; p.partial {
		p.hidden, _ = p.notShown()
	}
	if !p.full() && !p.capped {
		p.resumeAt = 0
	}
	p.before, p.hidden, p.read, p.capped = p.hidden, 0, 0, false
	p.alike.endPass()
}

// update processes a read of the observed keys; those that are not in it are gone. It removes
// and returns the confirmed locks, and removes keys without evidence after observeFor.
func (p *possibleLocks) update(read []candidate, now time.Time) (locks []candidate) {
	there := make(map[*observed]bool, len(read))
	for _, c := range read {
		if k := p.observed[c.lock.Key]; k != nil {
			k.observe(c)
			there[k] = true
		}
	}
	for _, k := range p.observed {
		if !there[k] && k.goneAt.IsZero() {
			k.goneAt = now
		}
	}
	locks = p.takeConfirmed()
	for key, k := range p.observed {
		if now.Sub(k.since) > observeFor {
			delete(p.observed, key)
		}
	}
	return locks
}

// takeConfirmed removes and returns the observed keys that are locks.
func (p *possibleLocks) takeConfirmed() (locks []candidate) {
	for key, why := range p.evidence() {
		k := p.observed[key]
		if !k.goneAt.IsZero() {
			continue
		}
		if why != "" {
			k.lock = new(k.lock.WithEvidence(why))
		}
		locks = append(locks, k.candidate)
		p.hidden, p.before = p.hidden-1, p.before-1
		if k.secondSign() != "" {
			p.alike.use(key)
		}
		delete(p.observed, key)
	}
	return locks
}

// observe compares a read with the previous one.
func (o *observed) observe(now candidate) {
	was, is, goneAt := o.lock, now.lock, o.goneAt
	o.candidate, o.goneAt = now, time.Time{}
	if !goneAt.IsZero() && (was.Expires.IsZero() || goneAt.Before(was.Expires)) {
		o.returns++
	}
	switch {
	case len(was.Holders) != 1 || len(is.Holders) != 1:
	case was.Holders[0].ID != is.Holders[0].ID && (was.Holders[0].Label == "" || was.Holders[0].Label != is.Holders[0].Label):
		// The value of an object also changes when its owner notes in it that it lives; its label stays.
		o.newValues++
	case len(is.Holders[0].ID) < keyspace.MinTokenLen && is.ReadAt.After(was.Expires): // the next holder may have the same value
	case goneAt.IsZero() && !was.Expires.IsZero() && is.Expires.Sub(was.Expires) > keyspace.DeadlineJitter:
		o.renewals++
	}
}

// secondSign returns the evidence in the behaviour of a key; empty if there is too little.
func (o *observed) secondSign() string {
	lease := o.lock.Expires.Sub(o.since)
	short := !o.lock.Expires.IsZero() && lease < maxLease+observeFor
	switch {
	case o.renewals >= minEvidence && short:
		return fmt.Sprintf("its deadline moved later %d times while its value stayed the same", o.renewals)
	case o.newValues >= minEvidence && short:
		return fmt.Sprintf("it reappeared with another value %d times", o.newValues)
	case o.returns >= minEvidence && o.format.LockLike:
		return fmt.Sprintf("it was deleted and came back %d times", o.returns)
	default:
		return ""
	}
}

// evidence returns the second sign of the observed keys that have one, by key.
func (p *possibleLocks) evidence() map[string]string {
	why := make(map[string]string)
	byToken := make(map[string][]*observed)
	for key, k := range p.observed {
		if sign := k.secondSign(); sign != "" || k.lock.Confidence >= enough {
			why[key] = sign
		}
		if k.goneAt.IsZero() && len(k.lock.Holders) == 1 && len(k.lock.Holders[0].ID) >= keyspace.MinTokenLen && !k.lock.Expires.IsZero() {
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
func (o *observed) sameValueCount(several []*observed) int {
	n := 0
	for _, k := range several {
		together := k.lock.Expires.Sub(o.lock.Expires).Abs() <= keyspace.DeadlineJitter
		alike := keyFamily(k.lock.Key) == keyFamily(o.lock.Key) && keyFamily(o.lock.Key) != ""
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

// confirmedKeys maps the keys of possible locks that were confirmed to the evidence. Such a key
// is a lock as soon as it comes back.
type confirmedKeys map[string]string

// recheckPossible reads the observed keys again.
func (w *Watcher) recheckPossible(ctx context.Context) error {
	now := time.Now()
	if now.Sub(w.possible.recheckedAt) < checkEvery || !w.scanner.opts.Budget.allow(now) || len(w.possible.observed) == 0 {
		return nil
	}
	w.possible.recheckedAt = now
	w.reader.atLeast = keyspace.Possible
	all := make([]candidate, 0, len(w.possible.observed))
	for key, k := range w.possible.observed {
		all = append(all, candidate{name: key, typ: k.typ})
	}
	read, err := w.reader.detect(ctx, all)
	w.reader.atLeast = w.possible.shown
	if err != nil {
		return err
	}
	w.noteRead(now)
	w.locks.touch(maps.Keys(w.possible.observed), w.reader.conn.now)
	for _, l := range w.possible.update(read, w.reader.conn.now) {
		if len(w.possible.confirmed) >= 10_000 {
			clear(w.possible.confirmed)
		}
		w.possible.confirmed[l.lock.Key] = l.lock.Evidence[len(l.lock.Evidence)-1]
		was, known := w.locks.known.get(l.lock.Key)
		switch {
		case !known:
			var ours bool
			if was, known, ours = w.adopt(l); !ours {
				continue
			}
		case was.lock.Confidence >= enough:
			continue
		}
		d := w.newDiffer()
		d.Watched = false // it existed before
		w.updateLock(was, l, known, &d)
	}
	return nil
}

// Bounds of the counts of possible locks by class.
const (
	maxClasses  = 1 << 14 // classes of which possible locks are counted; a class has at most 120 bytes
	alikeSample = 64      // of the keys of a crowded class, one of so many is read, others in each pass
)

// alike counts the possible locks of each class. A class of which there are many is crowded:
// its keys are not shown, and not even read, unless one was seen to behave as a lock. Crowded
// classes are sampled, so that their behaviour is seen. The zero value counts nothing.
type alike struct {
	counts  map[string]int  // possible locks of this pass
	crowded map[string]int  // crowded classes, with the number of keys in the last pass
	fresh   map[string]bool // classes that are crowded since the last call of takeFresh
	used    map[string]bool // classes of which a key has behaved as a lock
	passes  int
	sample  bool // more keys can be observed
}

func newAlike() *alike {
	return &alike{counts: make(map[string]int), crowded: make(map[string]int), fresh: make(map[string]bool), used: make(map[string]bool)}
}

// isCrowded reports whether the possible locks of the class of a key are not shown.
func (a *alike) isCrowded(class string) bool {
	_, crowded := a.crowded[class]
	return crowded
}

// add counts keys of a class.
func (a *alike) add(class string, n int) {
	if a.counts == nil || a.used[class] || a.counts[class] == 0 && len(a.counts) >= maxClasses {
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
	every := max(alikeSample, a.crowded[class]/maxObserved*alikeSample)
	return !a.sample || number%every != a.passes%every
}

// use notes that a key has behaved as a lock: those of its class are shown again.
func (a *alike) use(key string) {
	if a.counts == nil {
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
	if len(a.fresh) == 0 {
		return nil
	}
	fresh := a.fresh
	a.fresh = make(map[string]bool)
	return fresh
}

// endPass ends the count of a pass. A class stays crowded until its keys are much fewer.
func (a *alike) endPass() {
	maps.DeleteFunc(a.crowded, func(class string, _ int) bool { return a.counts[class] <= keyspace.MaxAlike/2 })
	for class := range a.crowded {
		a.crowded[class] = a.counts[class]
	}
	clear(a.counts)
	a.passes++
}

// dropAlike removes the known locks of classes of which there are too many to be locks.
func (w *Watcher) dropAlike() {
	classes := w.possible.alike.takeFresh()
	if len(classes) == 0 {
		return
	}
	for _, key := range w.locks.known.possibleIn(classes) {
		was := *w.locks.known[key]
		w.locks.remove(key)
		w.scanner.opts.Cluster.forget(w, was)
	}
	w.tracking.coverage.prefixes, w.tracking.coverage.stale = make(prefixes), true // the next connection covers the known locks only
	w.tracking.coverage.relearn(w.locks.known)
}
