// Package shell writes command lines that can be pasted into a shell.
package shell

import (
	"fmt"
	"strings"
)

// MaxWord is the greatest length of an argument for Word, in bytes. Linux rejects
// arguments of 128 KiB.
const MaxWord = 100_000

// Word returns s as one word of a POSIX shell, so that the command gets exactly the
// bytes of s. The word is printable ASCII without a newline, so a terminal can show
// it. It has no "!" outside of single quotes, which an interactive shell would
// replace from its history.
//
// If s has bytes outside of printable ASCII, the word is "$(printf '…')" with octal
// escapes. If no word exists, ok is false and word is empty: s has a NUL byte, ends
// with a newline, which $(…) drops, or is longer than MaxWord.
func Word(s string) (word string, ok bool) {
	switch {
	case len(s) > MaxWord || strings.Contains(s, "\x00") || strings.HasSuffix(s, "\n"):
		return "", false
	case s != "" && s[0] != '=' && !has(s, needsQuotes): // zsh replaces =name by the path of a command
		return s, true
	case !has(s, unprintable):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'", true
	}
	var out strings.Builder
	out.WriteString(`"$(printf '`)
	for i := range len(s) {
		// printf would take a leading - as an option. Within double quotes, shells
		// treat single quotes differently.
		if c := s[i]; needsQuotes(c) && c != ' ' || i == 0 && c == '-' || c == '%' {
			fmt.Fprintf(&out, `\%03o`, c)
		} else {
			out.WriteByte(c)
		}
	}
	out.WriteString(`')"`)
	return out.String(), true
}

// Line returns a command with its arguments as one line. If a word cannot be written,
// ok is false and line is empty.
func Line(words ...string) (line string, ok bool) {
	all := make([]string, len(words))
	for i, w := range words {
		if all[i], ok = Word(w); !ok {
			return "", false
		}
	}
	return strings.Join(all, " "), true
}

// RedisWord quotes s as one word of a command on the stdin of redis-cli.
func RedisWord(s string) string {
	var out strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out.WriteString(`\` + string(c))
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, `\x%02x`, c)
		default:
			out.WriteByte(c)
		}
	}
	return `"` + out.String() + `"`
}

func has(s string, bad func(byte) bool) bool {
	for i := range len(s) {
		if bad(s[i]) {
			return true
		}
	}
	return false
}

// needsQuotes reports whether a shell may interpret c.
func needsQuotes(c byte) bool {
	alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return !alnum && !strings.ContainsRune("-_./:=@%+,", rune(c))
}

func unprintable(c byte) bool { return c < ' ' || c > '~' }
