package inspect

import "strings"

// Bounds of patterns.
const (
	minPatternParts = 16   // number of different first parts from which a pattern is learnt
	maxPatterns     = 1024 // patterns that are counted at once
)

// patterns are key names that differ in their first part, such as "<random>:lock". No
// prefix covers them. The zero value is empty.
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

// cover reports whether a name has a learnt pattern.
func (p *patterns) cover(key string) bool { return len(p.learnt) > 0 && p.learnt[patternOf(key)] }

// patternOf returns a name with an asterisk for its first part and for every part that
// contains a digit; empty if no other part is left.
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
