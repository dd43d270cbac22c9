package keyspace

import "strings"

// Bounds of what patterns keep.
const (
	minPatternParts = 16   // first parts of names that have a pattern in common, before it is learnt
	maxPatterns     = 1024 // that are counted at once
)

// patterns are shapes of names that differ from their first part on, as
// "<random>:lock" does: no prefixes cover such names. The zero value is empty.
type patterns struct {
	firsts map[string]map[string]bool // by pattern, the first parts that were seen with it
	learnt map[string]bool
}

// learn takes in the name of a lock. If that makes its pattern known, it returns the
// first parts of the names that it was learnt from.
func (p *patterns) learn(key string) map[string]bool {
	pattern := patternOf(key)
	if pattern == "" || p.learnt[pattern] {
		return nil
	}
	firsts := p.firsts[pattern]
	if firsts == nil {
		if p.firsts == nil || len(p.firsts) >= maxPatterns {
			p.firsts = make(map[string]map[string]bool)
		}
		firsts = make(map[string]bool)
		p.firsts[pattern] = firsts
	}
	firsts[firstPart(key)] = true
	if len(firsts) < minPatternParts {
		return nil
	}
	delete(p.firsts, pattern)
	addTo(&p.learnt, pattern)
	return firsts
}

// cover reports whether a name has a pattern that was learnt.
func (p *patterns) cover(key string) bool { return len(p.learnt) > 0 && p.learnt[patternOf(key)] }

// patternOf is a name with an asterisk for its first part and for every other part
// that has a digit in it; empty if no part is left.
func patternOf(key string) string {
	first := firstPart(key)
	var b strings.Builder
	b.WriteByte('*')
	some := false
	for rest := key[len(first):]; rest != ""; {
		n := strings.IndexAny(rest, separators)
		if n < 0 {
			n = len(rest)
		}
		if part := rest[:n]; strings.ContainsAny(part, "0123456789") {
			b.WriteByte('*')
		} else {
			b.WriteString(part)
			some = some || part != ""
		}
		if n < len(rest) {
			b.WriteByte(rest[n])
			n++
		}
		rest = rest[n:]
	}
	if !some {
		return ""
	}
	return b.String()
}
