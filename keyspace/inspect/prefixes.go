package inspect

import (
	"slices"
	"strings"
	"time"
	"unicode"

	"locktop/keyspace"
)

// separators end the parts of a key name.
const separators = ":/.|-_#}"

// prefixes are the tracked beginnings of key names, by the first part of the name. Each
// is as long as what its keys have in common, so that few other keys are reported.
type prefixes map[string]string

// learn makes the prefixes cover a key, and reports whether they have changed. A key
// that would exceed maxPrefixes is not covered.
func (p prefixes) learn(key string) bool {
	part := firstPart(key)
	known, ok := p[part]
	switch {
	case part == "", ok && strings.HasPrefix(key, known):
		return false // an empty prefix would cover every key
	case !ok && len(p) >= 32:
		return false // the server compares every written key with each prefix
	case ok:
		p[part] = wholeParts(shared(known, key), part)
	default:
		p[part] = wholeParts(key, part)
	}
	return true
}

// withoutCovered returns the prefixes that no shorter one covers, sorted: a server accepts no
// overlapping prefixes.
func withoutCovered(all []string) []string {
	slices.Sort(all)
	var kept []string
	for _, prefix := range all {
		if n := len(kept); n == 0 || !strings.HasPrefix(prefix, kept[n-1]) {
			kept = append(kept, prefix)
		}
	}
	return kept
}

// firstPart returns a key up to and including its first separator. A separator as the
// first byte does not count.
func firstPart(key string) string {
	i := strings.IndexAny(key[min(1, len(key)):], separators)
	if i < 0 {
		return key
	}
	return key[:i+2]
}

// wholeParts cuts a common beginning after its last separator, but keeps the first
// part.
func wholeParts(s, part string) string {
	i := strings.LastIndexAny(s, separators)
	return s[:max(i+1, min(len(part), len(s)))]
}

// shared returns the common beginning of two strings.
func shared(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}

// Bounds of patterns.
const (
	minPatternParts = 16   // number of different first parts from which a pattern is learnt
	maxPatterns     = 1024 // patterns that are counted at the same time
)

// patterns are key names that differ in their first part, such as "<random>:lock". No
// prefix covers them.
type patterns struct {
	firsts map[string]map[string]bool // by pattern: its first parts so far
	learnt map[string]bool
}

// learn adds the name of a lock. If that completes a pattern, it returns the first
// parts of its names.
func (p *patterns) learn(key string) map[string]bool {
	pattern := patternOf(key)
	if pattern == "" || p.learnt[pattern] {
		return nil
	}
	firsts := p.firsts[pattern]
	if firsts == nil {
		if len(p.firsts) >= maxPatterns {
			clear(p.firsts)
		}
		firsts = make(map[string]bool)
		p.firsts[pattern] = firsts
	}
	firsts[firstPart(key)] = true
	if len(firsts) < minPatternParts {
		return nil
	}
	delete(p.firsts, pattern)
	p.learnt[pattern] = true
	return firsts
}

// cover reports whether a name has a learnt pattern.
func (p *patterns) cover(key string) bool { return len(p.learnt) > 0 && p.learnt[patternOf(key)] }

// patternOf returns a name with an asterisk for its first part, and the class of the others; empty if no
// word is left.
func patternOf(key string) string {
	class := keyspace.ClassOf(key[len(firstPart(key)):])
	if !strings.ContainsFunc(class, unicode.IsLetter) {
		return ""
	}
	return "*" + class
}

// Bounds of tracking all keys.
const (
	maxAllKeysRate = 2000        // changes per second of all keys; above it only prefixes are tracked
	allKeysPause   = time.Minute // and all keys not before this time has passed
)

// coverage is the key names whose changes the next connection reports.
type coverage struct {
	prefixes    prefixes
	patterns    patterns        // of names that no prefix covers
	uncovered   map[string]bool // known locks without a prefix
	stale       bool            // the connection does not have all prefixes
	allKeys     bool            // all keys are tracked, because of patterns
	allKeysFrom time.Time       // all keys are not tracked before
	rateStart   time.Time       // begin of the interval in which
	rateCount   int             // so many changes were received
}

func newCoverage() coverage {
	return coverage{
		prefixes: make(prefixes), uncovered: make(map[string]bool),
		patterns: patterns{firsts: make(map[string]map[string]bool), learnt: make(map[string]bool)},
	}
}

// learn makes the next connection cover a lock and its companions.
func (c *coverage) learn(l *candidate) {
	changed := c.learnName(l.lock.Key)
	for _, beside := range l.companions {
		changed = c.learnName(beside.Key) || changed
	}
	c.stale = c.stale || changed
	delete(c.uncovered, l.lock.Key)
	if !c.covers(l.lock.Key) || slices.ContainsFunc(l.companions, func(beside keyspace.Companion) bool { return !c.covers(beside.Key) }) {
		c.uncovered[l.lock.Key] = true
	}
}

// learnName makes the next connection cover a key, and reports whether its prefixes
// changed. A name with a known pattern needs no prefix.
func (c *coverage) learnName(key string) bool {
	for first := range c.patterns.learn(key) {
		delete(c.prefixes, first) // which leaves room for others
	}
	return !c.patterns.cover(key) && c.prefixes.learn(key)
}

// covers reports whether the next connection covers a key: by a prefix, or by a pattern
// while all keys are tracked.
func (c *coverage) covers(key string) bool {
	prefix, ok := c.prefixes[firstPart(key)]
	return ok && strings.HasPrefix(key, prefix) || c.allKeys && c.patterns.cover(key)
}

// updateAllKeys decides whether the next connection tracks all keys: if names have a
// pattern that no prefix covers, unless too many keys are written.
func (c *coverage) updateAllKeys(known lockSet, now time.Time) {
	if now.Sub(c.rateStart) > time.Second {
		if c.allKeys && !c.rateStart.IsZero() && float64(c.rateCount) > maxAllKeysRate*now.Sub(c.rateStart).Seconds() {
			c.allKeysFrom = now.Add(allKeysPause)
		}
		c.rateStart, c.rateCount = now, 0
	}
	if every := len(c.patterns.learnt) > 0 && now.After(c.allKeysFrom); every != c.allKeys {
		c.allKeys, c.stale = every, true
		c.rateStart, c.rateCount = now, 0
		c.relearn(known)
	}
}

// relearn makes the next connection cover the known locks.
func (c *coverage) relearn(known lockSet) {
	clear(c.uncovered)
	for _, l := range known {
		c.learn(l)
	}
}
