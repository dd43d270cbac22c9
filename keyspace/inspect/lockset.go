package inspect

import (
	"slices"

	"locktop/keyspace"
)

// lockSet is the locks found so far, by key.
type lockSet map[string]detection

// add adds detections; a key that was found before is replaced.
func (s lockSet) add(all []detection) {
	for _, f := range all {
		s[f.lock.Key] = f
	}
}

// locks returns the locks in the order of a snapshot, without those that are companions
// of another lock.
func (s lockSet) locks() []keyspace.Lock {
	claimed := make(map[string]bool)
	for key, f := range s {
		for _, c := range f.companions {
			if c.Key != key {
				claimed[c.Key] = true
			}
		}
	}
	locks := make([]keyspace.Lock, 0, len(s))
	for key, f := range s {
		if !claimed[key] {
			locks = append(locks, f.lock)
		}
	}
	slices.SortFunc(locks, func(a, b keyspace.Lock) int { return a.ID().Compare(b.ID()) })
	return locks
}

// locksOf returns the locks of detections.
func locksOf(all []detection) []keyspace.Lock {
	locks := make([]keyspace.Lock, len(all))
	for i, f := range all {
		locks[i] = f.lock
	}
	return locks
}
