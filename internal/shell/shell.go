// Package shell writes command lines that can be pasted into a shell.
package shell

import (
	"errors"
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
	case s != "" && s[0] != '=' && !strings.ContainsFunc(s, needsQuotes): // zsh replaces =name by the path of a command
		return s, true
	case !strings.ContainsFunc(s, unprintable):
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'", true
	}
	var out strings.Builder
	out.WriteString(`"$(printf '`)
	for i := range len(s) {
		// printf would take a leading - as an option. Within double quotes, shells
		// treat single quotes differently.
		if c := s[i]; needsQuotes(rune(c)) && c != ' ' || i == 0 && c == '-' || c == '%' {
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

// needsQuotes reports whether a shell may interpret c.
func needsQuotes(c rune) bool {
	alnum := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return !alnum && !strings.ContainsRune("-_./:=@%+,", c)
}

func unprintable(c rune) bool { return c < ' ' || c > '~' }

// Split splits a command line into words as a POSIX shell does, and interprets nothing
// but quotes and backslashes: variables, globs, pipes and $(…) stay as they are
// written. It returns an error if a quote has no end or the line ends with a backslash.
func Split(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord, escaped, quote := false, false, rune(0)
	for _, c := range line {
		switch {
		case escaped:
			if quote == '"' && !strings.ContainsRune("\"\\$`", c) {
				word.WriteByte('\\')
			}
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, inWord = true, true
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				word.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case strings.ContainsRune(" \t\r\n", c):
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
		default:
			word.WriteRune(c)
			inWord = true
		}
	}
	switch {
	case quote != 0:
		return nil, errors.New("a quote has no end")
	case escaped:
		return nil, errors.New("a backslash at the end")
	case inWord:
		words = append(words, word.String())
	}
	return words, nil
}
