package cli

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// owner is who holds a lock, in the width of a table cell: the first holder's
// name and how many more there are.
func owner(l keyspace.Lock) string {
	if len(l.Holders) == 0 {
		return ""
	}
	name := nameOf(l.Holders[0])
	if more := len(l.Holders) - 1; more > 0 {
		name += fmt.Sprintf(" +%s", humanize.Count(more))
	}
	return name
}

// keyWidth is the width of the longest key that lines for people show whole.
const keyWidth = 200

// keyEnd is how much of each end of a longer key they show, in bytes.
const keyEnd = 60

// shortKey is a key in a line for people. Of a long one it is both ends, with its
// length and a digest, by which two keys with the same ends differ. JSON and CSV
// have all of it.
func shortKey(key string) string {
	if len(key) <= keyWidth {
		if s := widget.Plain(key); len(s) <= keyWidth || widget.Width(s) <= keyWidth {
			return s
		}
	}
	head, tail := key[:min(keyEnd, len(key))], key[max(0, len(key)-keyEnd):]
	for range utf8.UTFMax { // not a part of a character, if it is text
		if r, n := utf8.DecodeLastRuneInString(head); r == utf8.RuneError && n == 1 && len(head) > 1 {
			head = head[:len(head)-1]
		}
		if !utf8.RuneStart(tail[0]) && len(tail) > 1 {
			tail = tail[1:]
		}
	}
	sum := sha256.Sum256([]byte(key))
	return fmt.Sprintf("%s…%s [%d bytes, sha256 %x]", widget.Plain(head), widget.Plain(tail), len(key), sum[:4])
}

// named is a lock in a line for people; where several databases are looked at, with
// its own.
func named(id keyspace.ID, databases bool) string {
	if databases {
		return fmt.Sprintf("%s (database %d)", shortKey(id.Key), id.DB)
	}
	return shortKey(id.Key)
}

// nameWidth is enough of a name to tell it from others. JSON has all of it.
const nameWidth = 100

// nameOf is what to call a holder in a line for people.
func nameOf(h keyspace.Holder) string {
	name := widget.Plain(h.Name())
	if widget.Width(name) > nameWidth {
		return widget.Fit(name, nameWidth)
	}
	return name
}

// findingIDs are the names of what is wrong.
func findingIDs(found []keyspace.Finding) string {
	var ids []string
	for _, f := range found {
		ids = append(ids, f.ID)
	}
	return strings.Join(ids, " ")
}

// left is the time a lock has left, in few cells.
func left(l keyspace.Lock, at time.Time) string {
	d, ok := l.TTL(at)
	if !ok {
		return "never"
	}
	return humanize.Left(d)
}

// heldSpan is for how long a lock has been held; "?" if its token does not tell.
func heldSpan(l keyspace.Lock, at time.Time) string {
	switch age := l.Age(at); {
	case len(l.Holders) == 0:
		return "-"
	case age == 0:
		return "?"
	default:
		return humanize.Duration(age)
	}
}
