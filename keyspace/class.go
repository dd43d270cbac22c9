package keyspace

import (
	"strings"
	"unicode"
	"unicode/utf8"
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
