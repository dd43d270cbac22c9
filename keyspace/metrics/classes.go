package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"locktop/keyspace"
)

// maxClasses limits the classes. Each class is a series, which Prometheus keeps.
const maxClasses = 200

// otherClass counts the locks of the classes without a series of their own, and those of
// a class with this name.
const otherClass = "other"

// classID identifies the locks of one class in one database.
type classID struct {
	db   int
	name string
}

// noClass is the class of a finding of a server, and of all findings without Options.Classes.
var noClass = classID{db: AllDatabases}

// classGauges are the numbers of a class at one moment.
type classGauges struct{ locks, waiters int }

// classes are the classes with a series of their own; nil if classes are not counted.
type classes map[classID]bool

// admit gives classes that are new a series of their own, the largest first, as long as
// there are not too many. A class keeps its series: one that comes and goes would make
// sums by class wrong.
func (c classes) admit(now map[classID]classGauges) {
	if c == nil {
		return
	}
	fresh := slices.Collect(maps.Keys(now))
	fresh = slices.DeleteFunc(fresh, func(id classID) bool { return c[id] })
	slices.SortFunc(fresh, func(a, b classID) int {
		return cmp.Or(cmp.Compare(now[b].locks, now[a].locks), a.compare(b))
	})
	for _, id := range fresh[:min(len(fresh), max(0, maxClasses-len(c)))] {
		c[id] = true
	}
}

// series returns the class in whose series a class is counted: itself, or other.
func (c classes) series(id classID) classID {
	if id == noClass || c[id] {
		return id
	}
	return classID{id.db, otherClass}
}

// findings counts findings by their kind, and by the class of their lock.
type findings map[keyspace.FindingKind]map[classID]int

func (f findings) add(kind keyspace.FindingKind, class classID, n int) {
	if f[kind] == nil {
		f[kind] = make(map[classID]int)
	}
	f[kind][class] += n
}

// take replaces the numbers by those of a reading. A class that had a finding keeps its
// series of this kind.
func (f findings) take(now findings, c classes) {
	for _, byClass := range f {
		for class := range byClass {
			byClass[class] = 0
		}
	}
	for kind, byClass := range now {
		for class, n := range byClass {
			f.add(kind, c.series(class), n)
		}
	}
}

func (id classID) compare(other classID) int {
	return cmp.Or(cmp.Compare(id.db, other.db), strings.Compare(id.name, other.name))
}
