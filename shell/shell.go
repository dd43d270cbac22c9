// Package shell writes command lines that can be pasted into a shell.
package shell

import (
	"fmt"
	"strings"
)

// MaxWord is the length in bytes of the longest argument that Word accepts.
// Linux refuses an argument of 128 KiB.
const MaxWord = 100_000

// Word returns s as one word of a POSIX shell: whatever bytes s has, the command
// gets exactly them as its argument. The word is printable ASCII without a
// newline, so that it is safe to show in a terminal, and holds no "!" outside of
// single quotes, so that an interactive shell does not replace it from its
// history.
//
// A word that has other bytes than printable ASCII becomes "$(printf '…')" with
// octal escapes. ok is false, and the word empty, if no such word exists: s has
// a NUL byte, ends with a newline, which $(…) would drop, or is longer than
// MaxWord.
func Word(s string) (word string, ok bool) {
	switch {
	case len(s) > MaxWord || strings.Contains(s, "\x00") || strings.HasSuffix(s, "\n"):
		return "", false
	case s != "" && s[0] != '=' && !has(s, needsQuotes): // zsh replaces =name by a path
		return s, true
	case !has(s, unprintable):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'", true
	}
	var out strings.Builder
	out.WriteString(`"$(printf '`)
	for i := range len(s) {
		// A first - would be taken for an option. Within double quotes, shells
		// disagree about what single quotes protect.
		if c := s[i]; needsQuotes(c) && c != ' ' || i == 0 && c == '-' || c == '%' {
			fmt.Fprintf(&out, `\%03o`, c)
		} else {
			out.WriteByte(c)
		}
	}
	out.WriteString(`')"`)
	return out.String(), true
}

// Line returns a command with its arguments as one line. ok is false, and the
// line empty, if one of the words cannot be written.
func Line(words ...string) (line string, ok bool) {
	all := make([]string, len(words))
	for i, w := range words {
		if all[i], ok = Word(w); !ok {
			return "", false
		}
	}
	return strings.Join(all, " "), true
}

func has(s string, bad func(byte) bool) bool {
	for i := range len(s) {
		if bad(s[i]) {
			return true
		}
	}
	return false
}

// needsQuotes reports whether c may mean something to a shell.
func needsQuotes(c byte) bool {
	alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return !alnum && !strings.ContainsRune("-_./:=@%+,", rune(c))
}

func unprintable(c byte) bool { return c < ' ' || c > '~' }
