// Package render writes locks, events and findings as text: tables, CSV, JSON, and sentences.
// It escapes every character from Redis that a terminal may interpret.
package render

import (
	"crypto/sha256"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
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

// Plain prints one sentence per lock and line, without columns and symbols, for
// screen readers and grep.
func Plain(w io.Writer, p View) error {
	var out strings.Builder
	for _, l := range p.Locks {
		fmt.Fprintln(&out, sentence(*l, p))
	}
	return Written(w, out.String())
}

// Written writes a text.
func Written(w io.Writer, text string) error {
	_, err := io.WriteString(w, text)
	return err
}

// sentence describes a lock with everything that the table has.
func sentence(l keyspace.Lock, p View) string {
	parts := []string{
		fmt.Sprintf("%s is %s", LockName(l.ID(), p.Databases), HeldBy(l, p.At)),
		fmt.Sprintf("%s %s", l.Format, l.Kind),
		Deadline(l, p.At),
	}
	if n := l.WaiterCount(); n > 0 {
		parts = append(parts, fmt.Sprintf("%s waiting", humanize.Count(n)))
	} else if text := l.AskedText(p.At); text != "" {
		parts = append(parts, text)
	}
	for _, f := range p.Findings[l.ID()] {
		parts = append(parts, fmt.Sprintf("%s: %s", f.Severity, widget.Plain(f.Text)))
	}
	return strings.Join(parts, ", ")
}

// maxNames is the greatest number of holders in a sentence.
const maxNames = 10

// HeldBy names the holders, with the count of a hold that is greater than one.
func HeldBy(l keyspace.Lock, at time.Time) string {
	if len(l.Holders) == 0 {
		return "free"
	}
	var names []string
	for _, h := range l.Holders {
		if len(names) == maxNames {
			names = append(names, fmt.Sprintf("%s others", humanize.Count(len(l.Holders)-maxNames)))
			break
		}
		name := HolderName(h)
		if h.Depth > 1 {
			name += fmt.Sprintf(" %s", humanize.Times(h.Depth))
		}
		names = append(names, name)
	}
	held := "held"
	switch l.State(at) {
	case keyspace.ReadHeld:
		held = "read"
	case keyspace.WriteHeld:
		held = "written"
	case keyspace.Partial:
		held = "held in part"
	}
	return held + " by " + strings.Join(names, " and ")
}

// Deadline says when l expires, seen at a time.
func Deadline(l keyspace.Lock, at time.Time) string {
	d, ok := l.TTL(at)
	switch {
	case ok && l.State(at) == keyspace.Lapsed:
		return "expired " + humanize.Left(-d) + " ago"
	case ok:
		return "expires in " + humanize.Left(d)
	}
	return "never expires"
}

// EventSentence describes an event in words, with the findings of its lock. It names the database if
// databases is true.
func EventSentence(e keyspace.Event, found []keyspace.Finding, databases bool) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s %s %s", e.At.Local().Format("15:04:05.000"), e.Kind, LockName(e.Lock.ID(), databases))
	if e.Holder.ID != "" {
		by := "by"
		switch {
		case e.Kind == keyspace.Stolen || e.Kind == keyspace.Replaced:
			by = "from"
		case e.Kind.Ends() && !e.Announced && e.Kind != keyspace.HandedOver: // whose doing it was is not known
			by = "of"
		}
		fmt.Fprintf(&s, " %s %s", by, HolderName(e.Holder))
	}
	if e.Waiter.ID != "" {
		fmt.Fprintf(&s, " waiter %s", ShortKey(e.Waiter.ID))
	}
	if e.Holder.Mode != "" {
		fmt.Fprintf(&s, " to %s", e.Holder.Mode)
	}
	if e.Holder.Depth > 1 {
		fmt.Fprintf(&s, " %s", humanize.Times(e.Holder.Depth))
	}
	if e.Held > 0 {
		fmt.Fprintf(&s, ", held for %s", keyspace.Age{Duration: e.Held, AtLeast: e.Holder.Late > 0})
	}
	if may := e.MayHave(); may != "" {
		fmt.Fprintf(&s, ", %s", may)
	}
	if next, taken := e.TakenBy(); taken {
		verb := "taken by"
		if e.Kind == keyspace.Replaced {
			verb = "then" // there may have been a release
		}
		fmt.Fprintf(&s, ", %s %s", verb, HolderName(next))
	}
	if !e.Kind.Ends() {
		fmt.Fprintf(&s, ", %s", Deadline(e.Lock, e.At))
	}
	if n := e.Lock.WaiterCount(); n > 0 {
		fmt.Fprintf(&s, ", %s waiting", humanize.Count(n))
	} else if e.Lock.Asked(e.At) {
		fmt.Fprintf(&s, ", %s", e.Lock.AskedText(e.At))
	}
	if e.Lock.Fence > 0 {
		fmt.Fprintf(&s, ", fence %d", e.Lock.Fence)
	}
	if n := len(e.Lock.Votes); n > 0 && !e.Kind.Ends() {
		fmt.Fprintf(&s, ", on %d of %d servers", e.Lock.HolderVotes(), n)
	}
	fmt.Fprintf(&s, ", %s", e.Lock.Format)
	if !e.Kind.Ends() {
		for _, f := range found {
			fmt.Fprintf(&s, ", %s: %s", f.Severity, widget.Plain(f.Text))
		}
	}
	return s.String()
}

// CSV prints a header and one lock per row. Several holders share a cell,
// separated by spaces.
func CSV(w io.Writer, p View) error {
	out := csv.NewWriter(w)
	rows := [][]string{{"key", "kind", "format", "confidence", "mode", "state", "holders", "depth",
		"waiter_count", "ttl_ms", "fence", "node", "db", "findings", "held_ms"}}
	for _, l := range p.Locks {
		j := LockOf(*l, p.At, nil)
		rows = append(rows, []string{
			cell(l.Key), string(j.Kind), j.Format, j.Confidence, string(j.Mode), string(j.State), cell(strings.Join(Each(l.Holders, func(h keyspace.Holder) string { return h.ID }), " ")), strconv.Itoa(l.Depth()),
			known(j.WaiterCount), strconv.FormatInt(j.TTLMS, 10), strings.TrimPrefix(strconv.FormatInt(j.Fence, 10), "0"),
			cell(l.Node), strconv.Itoa(l.DB), findingIDs(p.Findings[l.ID()]), known(j.HeldMS),
		})
	}
	return out.WriteAll(rows) // WriteAll flushes
}

// known returns a number, or an empty cell if it is not known.
func known[N int | int64](n *N) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}

// cell makes text from Redis safe in a spreadsheet: visible characters only, and
// no formula. It puts a ' before a cell that begins like a formula or with a '.
func cell(s string) string {
	s = widget.Plain(s)
	if s != "" && strings.ContainsRune("=+-@\t'", rune(s[0])) {
		return "'" + s
	}
	return s
}
