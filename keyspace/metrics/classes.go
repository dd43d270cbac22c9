package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"locktop/keyspace"
)

// Limits of classes. Each class is a series, which Prometheus keeps.
const (
	maxClasses   = 200
	maxClassName = 120 // bytes
)

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

// separators end the parts of a key.
const separators = ":/.|-_#{}@, "

// classOf returns the class of a key: the key with * for each part that looks like an
// ID, and for a UUID. It is valid UTF-8 of at most maxClassName bytes.
func classOf(key string) string {
	var class strings.Builder
	inID := false
	for rest := strings.ToValidUTF8(key, "\uFFFD"); rest != "" && class.Len() <= maxClassName; {
		gap, part, after := nextPart(rest)
		rest = after
		if inID && gap == "-" && (hasDigit(part) || isHex(part)) {
			continue // the next group of a UUID
		}
		class.WriteString(gap)
		if inID = hasDigit(part) || len(part) >= minHex && isHex(part); inID {
			part = "*"
		}
		class.WriteString(part)
	}
	return cut(class.String())
}

// minHex is the length from which a word of hexadecimal digits is an ID: words of a
// language are shorter.
const minHex = 8

// nextPart returns the separators at the begin of a key, the part after them, and the
// rest.
func nextPart(key string) (gap, part, rest string) {
	part = strings.TrimLeft(key, separators)
	gap = key[:len(key)-len(part)]
	if end := strings.IndexAny(part, separators); end >= 0 {
		return gap, part[:end], part[end:]
	}
	return gap, part, ""
}

func hasDigit(s string) bool { return strings.ContainsFunc(s, unicode.IsDigit) }

// isHex reports whether s has only hexadecimal digits, at least one.
func isHex(s string) bool { return s != "" && strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// cut shortens a class to maxClassName bytes.
func cut(class string) string {
	if len(class) <= maxClassName {
		return class
	}
	n := maxClassName - len("…")
	for !utf8.RuneStart(class[n]) {
		n--
	}
	return class[:n] + "…"
}
