package keyspace

import (
	"fmt"
	"strings"
	"time"
)

// What is watched for a second sign, and what counts as one.
const (
	maxCandidates     = 256
	maxCandidateReads = 2048            // possible keys that a walk reads to find them
	candidateTTL      = time.Minute     // without a sign, before another key is watched instead
	minEvidence       = 2               // what happens once may be chance
	maxLease          = 5 * time.Minute // of a lock: a session that is used is renewed, too
)

// candidates are keys that are just possibly locks, and are watched for a second
// sign: a value that is another each time the key comes back, a deadline that is
// moved on while the value stays, one value in several keys. They are pure data.
type candidates struct {
	threshold Confidence // what needs no second sign
	known     map[string]*candidate
	resumeAt  int64 // keys that a walk visits before it takes hunches
	read      int   // possible keys that this walk has read
}

// candidate is such a key.
type candidate struct {
	detection
	since     time.Time // when it was seen first
	present   bool      // at the last look
	newValues int       // how often it came with another value
	renewals  int       // how often its deadline was moved on
}

func newCandidates(enough Confidence) *candidates {
	return &candidates{threshold: enough, known: make(map[string]*candidate)}
}

// possibleFormats is how sure a key must be to be read at all, where a walk has got to.
func (cs *candidates) atLeast(visited int64) Confidence {
	if !cs.full() && visited >= cs.resumeAt {
		return min(Possible, cs.threshold)
	}
	return cs.threshold
}

// full reports whether a walk need not look for more.
func (cs *candidates) full() bool {
	return len(cs.known) >= maxCandidates || cs.read >= maxCandidateReads
}

// split keeps the hunches among what a walk has found, where it has got to, and
// returns the rest.
func (cs *candidates) split(all []detection, visited int64, now time.Time) (locks []detection) {
	was := cs.full()
	for _, f := range all {
		if f.lock.Confidence >= cs.threshold {
			locks = append(locks, f)
			continue
		}
		cs.read++
		if cs.known[f.lock.Key] == nil && len(cs.known) < maxCandidates && canConfirm(f.lock, now) {
			cs.known[f.lock.Key] = &candidate{detection: f, since: now, present: true}
		}
	}
	if !was && cs.full() {
		cs.resumeAt = visited // the next round begins where this one ends
	}
	return locks
}

// canConfirm reports whether a lock could give a second sign at all: one that is
// over soon, or that others listen for.
func canConfirm(l Lock, now time.Time) bool {
	if l.Kind == Semaphore || l.Kind == Latch {
		return true
	}
	return !l.Expires.IsZero() && l.Expires.Sub(now) < maxLease
}

// endPass notes that a walk is over. If there was room to its end, the next one
// takes hunches from the beginning.
func (cs *candidates) endPass() {
	if !cs.full() {
		cs.resumeAt = 0
	}
	cs.read = 0
}

// refs lists the keys to look at.
func (cs *candidates) refs() []keyRef {
	refs := make([]keyRef, 0, len(cs.known))
	for key, k := range cs.known {
		refs = append(refs, keyRef{key: key, typ: k.typ, sizeKnown: true})
	}
	return refs
}

// update takes in another look at the hunches: those that it does not have are
// gone. It returns those that are locks after all, and forgets them, and those
// that have given no sign for long.
func (cs *candidates) update(read []detection, now time.Time) (locks []detection) {
	for _, k := range cs.known {
		k.present = false
	}
	for _, f := range read {
		if k := cs.known[f.lock.Key]; k != nil {
			k.observe(f)
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

// takeConfirmed returns those that are locks after all, and forgets them.
func (cs *candidates) takeConfirmed() (locks []detection) {
	for key, why := range cs.evidence() {
		if k := cs.known[key]; k.present {
			locks = append(locks, promote(k.detection, why))
			delete(cs.known, key)
		}
	}
	return locks
}

// observe compares a look with the one before it, however long ago.
func (c *candidate) observe(f detection) {
	was, is := c.lock, f.lock
	c.detection, c.present = f, true
	switch {
	case len(was.Holders) != 1 || len(is.Holders) != 1:
	case was.Holders[0].ID != is.Holders[0].ID:
		c.newValues++
	case movedLater(was.Expires, is.Expires, jitter):
		c.renewals++
	}
}

// evidence says of the hunches that have given a second sign what it was.
func (cs *candidates) evidence() map[string]string {
	why := make(map[string]string)
	byToken := make(map[string][]*candidate)
	for key, k := range cs.known {
		lease := k.lock.Expires.Sub(k.since)
		short := !k.lock.Expires.IsZero() && lease < maxLease+candidateTTL
		switch {
		case k.lock.Confidence >= cs.threshold:
			why[key] = ""
		case k.renewals >= minEvidence && short:
			why[key] = fmt.Sprintf("its deadline was moved on %d times while its value stayed", k.renewals)
		case k.newValues >= minEvidence && short:
			why[key] = fmt.Sprintf("it came back with another value %d times", k.newValues)
		}
		if k.present && len(k.lock.Holders) == 1 && len(k.lock.Holders[0].ID) >= minTokenLen && !k.lock.Expires.IsZero() {
			byToken[k.lock.Holders[0].ID] = append(byToken[k.lock.Holders[0].ID], k)
		}
	}
	for _, several := range byToken {
		for _, k := range several {
			if n := k.sameValueCount(several); n > 1 && why[k.lock.Key] == "" {
				why[k.lock.Key] = fmt.Sprintf("%d keys have the same value", n)
			}
		}
	}
	return why
}

// minTokenLen is the length of a value that two keys do not share by chance.
const minTokenLen = 16

// sameValueCount counts the keys among several with the same value that were taken by the
// same stroke or are called alike: as when somebody takes several locks, or has
// one value for all its locks.
func (c *candidate) sameValueCount(several []*candidate) int {
	n := 0
	for _, o := range several {
		together := o.lock.Expires.Sub(c.lock.Expires).Abs() <= jitter
		alike := keyFamily(o.lock.Key) == keyFamily(c.lock.Key) && keyFamily(c.lock.Key) != ""
		if together || alike {
			n++
		}
	}
	return n
}

// keyFamily is what keys of one application begin with: all up to the first
// separator.
func keyFamily(key string) string {
	i := strings.IndexAny(key, ":./")
	return key[:max(0, i)]
}

// promote is a lock that has given a second sign.
func promote(f detection, why string) detection {
	if why == "" {
		return f
	}
	f.lock.Confidence = max(f.lock.Confidence, Likely)
	f.lock.Why = append(f.lock.Why[:len(f.lock.Why):len(f.lock.Why)], why)
	return f
}

// confirmedKeys is the keys whose second sign was seen, and what it was: they are locks
// from then on, as soon as they come back.
type confirmedKeys map[string]string

// maxConfirmed bounds what is remembered.
const maxConfirmed = 10_000

// add takes in a hunch that has come true.
func (t confirmedKeys) add(l Lock) {
	if len(t) >= maxConfirmed {
		clear(t)
	}
	t[l.Key] = l.Why[len(l.Why)-1]
}
