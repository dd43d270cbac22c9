package external

import (
	"fmt"
	"strings"
	"sync"
	"unicode"
)

// longestQuote is how many bytes of a line an error quotes.
const longestQuote = 100

// quoted returns the beginning of a line in quotes.
func quoted(line []byte) string {
	rest := ""
	if len(line) > longestQuote {
		line, rest = line[:longestQuote], "…"
	}
	return fmt.Sprintf("%q%s", line, rest)
}

// printable replaces what a terminal does not print.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Bounds of the quoted stderr.
const (
	stderrBytes = 4096 // kept
	stderrLines = 3    // quoted
)

// tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-stderrBytes):]...)
	if extra := len(t.text) - stderrBytes; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

// lines returns the last lines in one line of printable text.
func (t *tail) lines() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last []string
	for line := range strings.Lines(string(t.text)) {
		if line = strings.TrimSpace(line); line != "" {
			last = append(last, printable(line))
		}
	}
	return strings.Join(last[max(0, len(last)-stderrLines):], " | ")
}
