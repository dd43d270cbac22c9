package shell

import (
	"errors"
	"strings"
)

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
