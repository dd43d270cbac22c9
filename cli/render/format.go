// Package render writes locks, events and findings as text: tables, CSV, JSON, and sentences.
// It escapes every character from Redis that a terminal may interpret.
package render

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// View is a snapshot with its findings.
type View struct {
	keyspace.Snapshot
	Findings  map[keyspace.ID][]keyspace.Finding
	Databases bool // the locks are in more than one database
}

// NewView returns a view of a snapshot. Lines for people name the database if databases is true.
func NewView(snap keyspace.Snapshot, databases bool) View {
	byLock := map[keyspace.ID][]keyspace.Finding{}
	for _, f := range keyspace.Findings(snap) {
		byLock[f.Lock] = append(byLock[f.Lock], f)
	}
	return View{snap, byLock, databases}
}

// WithFindings returns the number of locks with findings.
func (v View) WithFindings() int {
	n := 0
	for _, l := range v.Locks {
		if len(v.Findings[l.ID()]) > 0 {
			n++
		}
	}
	return n
}

// Remedy returns the remedy of a finding with the commands and flags for it.
func Remedy(f keyspace.Finding) string {
	return strings.NewReplacer("{deadline}", "locktop release KEY --write --give-ttl 30s", "{release}", "locktop release KEY --write",
		"{wake}", "locktop inspect KEY shows the command", "{limit}", "--overdue 'KEY=2h'", "{match}", "--match 'PATTERN'", "{cluster}", "--cluster").Replace(f.Remedy)
}

// owner returns the first holder's name and the number of other holders, in the
// width of a table cell.
func owner(l keyspace.Lock) string {
	if len(l.Holders) == 0 {
		return ""
	}
	name := HolderName(l.Holders[0])
	if more := len(l.Holders) - 1; more > 0 {
		name += fmt.Sprintf(" +%s", humanize.Count(more))
	}
	return name
}

// KeyWidth is the greatest width of a key that lines for people show in full.
const KeyWidth = 200

// KeyEnd is the length of each end of a longer key, in bytes.
const KeyEnd = 60

// ShortKey returns a key for a line for people. Of a long key it keeps both ends and
// adds the length and a digest, so that two keys with the same ends differ. JSON and
// CSV have the full key.
func ShortKey(key string) string {
	if len(key) <= KeyWidth {
		if s := widget.Plain(key); len(s) <= KeyWidth || widget.Width(s) <= KeyWidth {
			return s
		}
	}
	head, tail := key[:min(KeyEnd, len(key))], key[max(0, len(key)-KeyEnd):]
	for range utf8.UTFMax { // do not cut a UTF-8 character
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

// LockName returns the name of a lock for a line for people, with its database if
// databases is true.
func LockName(id keyspace.ID, databases bool) string {
	if databases {
		return fmt.Sprintf("%s (database %d)", ShortKey(id.Key), id.DB)
	}
	return ShortKey(id.Key)
}

// nameWidth is the greatest width of a name in lines for people. JSON has the full
// name.
const nameWidth = 100

// HolderName returns the name of a holder for a line for people.
func HolderName(h keyspace.Holder) string {
	name := widget.Plain(h.Name())
	if widget.Width(name) > nameWidth {
		return widget.Fit(name, nameWidth)
	}
	return name
}

// findingIDs returns the IDs of the findings, joined in one line.
func findingIDs(found []keyspace.Finding) string {
	return strings.Join(Each(found, func(f keyspace.Finding) string { return f.ID }), " ")
}

// Left returns the remaining TTL of a lock as a short text.
func Left(l keyspace.Lock, at time.Time) string {
	d, ok := l.TTL(at)
	if !ok {
		return "never"
	}
	if l.State(at) == keyspace.Lapsed {
		return "-" + humanize.Left(-d)
	}
	return humanize.Left(d)
}

// heldSpan returns how long the lock has been held, "?" if that is not known.
func heldSpan(l keyspace.Lock, at time.Time) string {
	switch age := l.Age(at); {
	case len(l.Holders) == 0:
		return "-"
	case age.Wide():
		return "≤" + humanize.Duration(age.Most)
	case age.Duration == 0:
		return "?"
	case age.AtLeast:
		return "≥" + humanize.Duration(age.Duration)
	default:
		return humanize.Duration(age.Duration)
	}
}
