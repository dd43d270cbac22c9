package keyspace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"locktop/internal/humanize"
)

// maxClassName is the maximum length of the name of a class, in bytes.
const maxClassName = 120

// separators end the parts of a key.
const separators = ":/.|-_#{}@, "

// ClassOf returns the class of a key: the key with * for each part that looks like an
// ID, and for a UUID. It is valid UTF-8 of at most maxClassName bytes.
func ClassOf(key string) string {
	var class strings.Builder
	inID := false
	for rest := strings.ToValidUTF8(key, "\uFFFD"); rest != "" && class.Len() <= maxClassName; {
		gap, part, after := nextPart(rest)
		rest = after
		if inID && gap == "-" && (hasDigit(part) || isHex(part)) {
			continue // the next group of a UUID
		}
		class.WriteString(gap)
		if inID = hasDigit(part) || len(part) >= 8 && isHex(part); inID { // words of a language are shorter
			part = "*"
		}
		class.WriteString(part)
	}
	if class.Len() <= maxClassName {
		return class.String()
	}
	n := maxClassName - len("…")
	for !utf8.RuneStart(class.String()[n]) {
		n--
	}
	return class.String()[:n] + "…"
}

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

// MaxAlike is the number of possible locks of one class that are shown. Real locks without
// any evidence in their behaviour are few; session IDs, digests and counters are thousands.
const MaxAlike = 200

// AlikeClass returns the class by which possible locks are counted: that of the key, or, if no
// part of the key is an ID, that of the keys that differ in the last part only. A key without
// separators is a class of its own.
func AlikeClass(key string) string {
	class := ClassOf(key)
	last := strings.LastIndexAny(class, separators)
	if last < 0 || strings.Contains(class, "*") {
		return class
	}
	return class[:last+1] + "*"
}

// AlikeProblems says in one clause which classes of possible locks are not shown, from their
// numbers of keys; nil if there are none.
func AlikeProblems(classes map[string]int) []string {
	if len(classes) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(classes), func(a, b string) int {
		return cmp.Or(cmp.Compare(classes[b], classes[a]), strings.Compare(a, b))
	})
	const named = 3
	var some []string
	keys := 0
	for i, name := range names {
		keys += classes[name]
		if i < named {
			some = append(some, name)
		}
	}
	if more := len(names) - named; more > 0 {
		some = append(some, fmt.Sprintf("%d more", more))
	}
	return []string{fmt.Sprintf("%s may be locks, but too many are alike (%s) and none was seen in use: they are not shown, unless --lock names them",
		humanize.Plural(keys, "key"), strings.Join(some, ", "))}
}

// MatchGlob reports whether a key matches a glob as Redis defines it: ? is one byte, *
// any number of bytes, [a-c] a byte of the set, [^a-c] any other byte, and \ escapes
// the next byte.
func MatchGlob(glob, name string) bool {
	star, retry := -1, 0 // the last * in the glob, and where in the name to continue after it
	g, n := 0, 0
	for n < len(name) {
		if g < len(glob) && glob[g] == '*' {
			star, retry = g, n
			g++
			continue
		}
		if width, ok := matchByte(glob[g:], name[n]); ok {
			g, n = g+width, n+1
			continue
		}
		if star < 0 {
			return false
		}
		retry++
		g, n = star+1, retry
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

// matchByte reports whether c matches the first element of a glob, which is not a star,
// and returns the length of that element.
func matchByte(glob string, c byte) (width int, ok bool) {
	switch {
	case glob == "":
		return 0, false
	case glob[0] == '?':
		return 1, true
	case glob[0] == '[':
		return matchClass(glob, c)
	case glob[0] == '\\' && len(glob) > 1:
		return 2, glob[1] == c
	default:
		return 1, glob[0] == c
	}
}

// matchClass is matchByte for an element in brackets. An unclosed bracket ends with the
// glob.
func matchClass(glob string, c byte) (width int, ok bool) {
	i := 1
	not := i < len(glob) && glob[i] == '^'
	if not {
		i++
	}
	for ; i < len(glob) && glob[i] != ']'; i++ {
		low := glob[i]
		if low == '\\' && i+1 < len(glob) {
			i++
			ok = ok || glob[i] == c
			continue
		}
		high := low
		if i+2 < len(glob) && glob[i+1] == '-' {
			high = glob[i+2]
			i += 2
		}
		ok = ok || min(low, high) <= c && c <= max(low, high)
	}
	return min(i+1, len(glob)), ok != not
}
