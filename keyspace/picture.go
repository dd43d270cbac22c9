package keyspace

import (
	"cmp"
	"slices"
	"strings"
)

// picture is the locks found so far, by key.
type picture map[string]found

// add takes in what was found; a key found again replaces what it was.
func (p picture) add(all []found) {
	for _, f := range all {
		p[f.lock.Key] = f
	}
}

// locks returns them in the order of a snapshot, without those that another
// one claims as its companion.
func (p picture) locks() []Lock {
	claimed := make(map[string]bool)
	for key, f := range p {
		for _, c := range f.claims {
			if c.Key != key {
				claimed[c.Key] = true
			}
		}
	}
	locks := make([]Lock, 0, len(p))
	for key, f := range p {
		if !claimed[key] {
			locks = append(locks, f.lock)
		}
	}
	slices.SortFunc(locks, func(a, b Lock) int { return a.ID().compare(b.ID()) })
	return locks
}

// compare orders locks by node, database and key.
func (a ID) compare(b ID) int {
	return cmp.Or(strings.Compare(a.Node, b.Node), cmp.Compare(a.DB, b.DB), strings.Compare(a.Key, b.Key))
}

// picked returns the locks among what was found.
func picked(all []found) []Lock {
	locks := make([]Lock, len(all))
	for i, f := range all {
		locks[i] = f.lock
	}
	return locks
}
