package keyspace

import (
	"slices"
	"strings"
)

// maxPrefixes bounds what a server is asked to watch: it compares every key
// that anybody writes with each of them.
const maxPrefixes = 32

// separators end the parts of a key.
const separators = ":/.|-_#}"

// prefixes are the beginnings of keys that a server is asked to watch, by the
// first part of the keys. Each is as long as what its keys have in common, so
// that little else is reported.
type prefixes map[string]string

// learn makes the prefixes cover a key too, and reports whether they have
// changed. A key that would take one more than may be is not covered.
func (p prefixes) learn(key string) bool {
	part := firstPart(key)
	known, ok := p[part]
	switch {
	case part == "", ok && strings.HasPrefix(key, known):
		return false // what begins with nothing would be every key there is
	case !ok && len(p) >= maxPrefixes:
		return false
	case ok:
		p[part] = wholeParts(shared(known, key), part)
	default:
		p[part] = wholeParts(key, part)
	}
	return true
}

// cover reports whether the prefixes cover a key.
func (p prefixes) cover(key string) bool {
	known, ok := p[firstPart(key)]
	return ok && strings.HasPrefix(key, known)
}

// disjoint lists the prefixes, without those that another one covers: a server
// accepts no others.
func (p prefixes) disjoint() []string {
	var all []string
	for _, prefix := range p {
		all = append(all, prefix)
	}
	slices.Sort(all)
	return slices.CompactFunc(all, func(short, long string) bool { return strings.HasPrefix(long, short) })
}

// firstPart is a key up to its first separator: what its owner calls it. A
// brace at the beginning belongs to what follows.
func firstPart(key string) string {
	i := strings.IndexAny(key[min(1, len(key)):], separators)
	if i < 0 {
		return key
	}
	return key[:i+2]
}

// wholeParts cuts a beginning of keys back behind its last separator, but not
// further than to their first part.
func wholeParts(s, part string) string {
	i := strings.LastIndexAny(s, separators)
	return s[:max(i+1, min(len(part), len(s)))]
}

// shared is what two strings begin with, both.
func shared(a, b string) string {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return a[:n]
}
