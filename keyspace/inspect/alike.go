package inspect

import (
	"maps"

	"locktop/keyspace"
)

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
