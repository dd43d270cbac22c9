package keyspace

import (
	"fmt"
	"strings"
	"time"
)

// What is watched for a second sign, and what counts as one.
const (
	hunchesMost = 256
	glimpseMost = 2048            // possible keys that a walk reads to find them
	hunchFor    = time.Minute     // without a sign, before another key is watched instead
	signsMost   = 2               // what happens once may be chance
	leaseMost   = 5 * time.Minute // of a lock: a session that is used is renewed, too
)

// hunches are keys that are just possibly locks, and are watched for a second
// sign: a value that is another each time the key comes back, a deadline that is
// moved on while the value stays, one value in several keys. They are pure data.
type hunches struct {
	enough Confidence // what needs no second sign
	known  map[string]*hunch
	from   int64 // keys that a walk visits before it takes hunches
	read   int   // possible keys that this walk has read
}

// hunch is such a key.
type hunch struct {
	found
	since    time.Time // when it was seen first
	there    bool      // at the last look
	returned int       // how often it came with another value
	renewed  int       // how often its deadline was moved on
}

func newHunches(enough Confidence) *hunches {
	return &hunches{enough: enough, known: make(map[string]*hunch)}
}

// atLeast is how sure a key must be to be read at all, where a walk has got to.
func (h *hunches) atLeast(visited int64) Confidence {
	if !h.full() && visited >= h.from {
		return min(Possible, h.enough)
	}
	return h.enough
}

// full reports whether a walk need not look for more.
func (h *hunches) full() bool { return len(h.known) >= hunchesMost || h.read >= glimpseMost }

// sort keeps the hunches among what a walk has found, where it has got to, and
// returns the rest.
func (h *hunches) sort(all []found, visited int64, now time.Time) (locks []found) {
	was := h.full()
	for _, f := range all {
		if f.lock.Confidence >= h.enough {
			locks = append(locks, f)
			continue
		}
		h.read++
		if h.known[f.lock.Key] == nil && len(h.known) < hunchesMost && telling(f.lock, now) {
			h.known[f.lock.Key] = &hunch{found: f, since: now, there: true}
		}
	}
	if !was && h.full() {
		h.from = visited // the next round begins where this one ends
	}
	return locks
}

// telling reports whether a lock could give a second sign at all: one that is
// over soon, or that others listen for.
func telling(l Lock, now time.Time) bool {
	if l.Kind == Semaphore || l.Kind == Latch {
		return true
	}
	return !l.Expires.IsZero() && l.Expires.Sub(now) < leaseMost
}

// ended notes that a walk is over. If there was room to its end, the next one
// takes hunches from the beginning.
func (h *hunches) ended() {
	if !h.full() {
		h.from = 0
	}
	h.read = 0
}

// refs lists the keys to look at.
func (h *hunches) refs() []ref {
	refs := make([]ref, 0, len(h.known))
	for key, k := range h.known {
		refs = append(refs, ref{key: key, typ: k.typ, again: true})
	}
	return refs
}

// look takes in another look at the hunches: those that it does not have are
// gone. It returns those that are locks after all, and forgets them, and those
// that have given no sign for long.
func (h *hunches) look(read []found, now time.Time) (locks []found) {
	for _, k := range h.known {
		k.there = false
	}
	for _, f := range read {
		if k := h.known[f.lock.Key]; k != nil {
			k.see(f)
		}
	}
	locks = h.comeTrue()
	for key, k := range h.known {
		if now.Sub(k.since) > hunchFor {
			delete(h.known, key)
		}
	}
	return locks
}

// comeTrue returns those that are locks after all, and forgets them.
func (h *hunches) comeTrue() (locks []found) {
	for key, why := range h.signs() {
		if k := h.known[key]; k.there {
			locks = append(locks, raised(k.found, why))
			delete(h.known, key)
		}
	}
	return locks
}

// see compares a look with the one before it, however long ago.
func (k *hunch) see(f found) {
	was, is := k.lock, f.lock
	k.found, k.there = f, true
	switch {
	case len(was.Holders) != 1 || len(is.Holders) != 1:
	case was.Holders[0].ID != is.Holders[0].ID:
		k.returned++
	case later(was.Expires, is.Expires, jitter):
		k.renewed++
	}
}

// signs says of the hunches that have given a second sign what it was.
func (h *hunches) signs() map[string]string {
	why := make(map[string]string)
	byToken := make(map[string][]*hunch)
	for key, k := range h.known {
		lease := k.lock.Expires.Sub(k.since)
		short := !k.lock.Expires.IsZero() && lease < leaseMost+hunchFor
		switch {
		case k.lock.Confidence >= h.enough:
			why[key] = ""
		case k.renewed >= signsMost && short:
			why[key] = fmt.Sprintf("its deadline was moved on %d times while its value stayed", k.renewed)
		case k.returned >= signsMost && short:
			why[key] = fmt.Sprintf("it came back with another value %d times", k.returned)
		}
		if k.there && len(k.lock.Holders) == 1 && len(k.lock.Holders[0].ID) >= tokenLeast && !k.lock.Expires.IsZero() {
			byToken[k.lock.Holders[0].ID] = append(byToken[k.lock.Holders[0].ID], k)
		}
	}
	for _, several := range byToken {
		for _, k := range several {
			if n := k.kin(several); n > 1 && why[k.lock.Key] == "" {
				why[k.lock.Key] = fmt.Sprintf("%d keys have the same value", n)
			}
		}
	}
	return why
}

// tokenLeast is the length of a value that two keys do not share by chance.
const tokenLeast = 16

// kin counts the keys among several with the same value that were taken by the
// same stroke or are called alike: as when somebody takes several locks, or has
// one value for all its locks.
func (k *hunch) kin(several []*hunch) int {
	n := 0
	for _, o := range several {
		together := o.lock.Expires.Sub(k.lock.Expires).Abs() <= jitter
		alike := family(o.lock.Key) == family(k.lock.Key) && family(k.lock.Key) != ""
		if together || alike {
			n++
		}
	}
	return n
}

// family is what keys of one application begin with: all up to the first
// separator.
func family(key string) string {
	i := strings.IndexAny(key, ":./")
	return key[:max(0, i)]
}

// raised is a lock that has given a second sign.
func raised(f found, why string) found {
	if why == "" {
		return f
	}
	f.lock.Confidence = max(f.lock.Confidence, Likely)
	f.lock.Why = append(f.lock.Why[:len(f.lock.Why):len(f.lock.Why)], why)
	return f
}

// trust is the keys whose second sign was seen, and what it was: they are locks
// from then on, as soon as they come back.
type trust map[string]string

// trustMost bounds what is remembered.
const trustMost = 10_000

// put takes in a hunch that has come true.
func (t trust) put(l Lock) {
	if len(t) >= trustMost {
		clear(t)
	}
	t[l.Key] = l.Why[len(l.Why)-1]
}
