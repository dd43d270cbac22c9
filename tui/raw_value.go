package tui

import (
	"context"
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// rawValue is what the servers have stored of one lock: the one that is looked at
// closely. It is asked for again every second.
type rawValue struct {
	store  Store // nil: nobody knows
	id     keyspace.ID
	items  []RawEntry
	err    error
	asked  time.Time // our clock; zero: never, of this lock
	asking bool
	landed bool // there is an answer for this lock
}

// storedFor is how long an answer is good.
const storedFor = time.Second

// ask asks for what is stored of a lock, unless that is known or under way.
func (v *rawValue) ask(ctx context.Context, l keyspace.Lock, now time.Time) tea.Cmd {
	if v.store == nil || v.asking {
		return nil
	}
	if id := l.ID(); id != v.id {
		*v = rawValue{store: v.store, id: id}
	}
	if !v.asked.IsZero() && now.Sub(v.asked) < storedFor {
		return nil
	}
	v.asked, v.asking = now, true
	return readStored(ctx, v.store, l)
}

// answered takes an answer in. One that comes late, for another lock, is
// forgotten.
func (v *rawValue) answered(msg storedMsg) {
	v.asking = false
	if msg.id == v.id {
		v.items, v.err, v.landed = msg.items, msg.err, true
	}
}

// Bounds of what is shown of a value.
const (
	storedBytes   = 512
	storedMembers = 12
)

// rawBlock draws the keys of a lock as the servers have them now.
func (s *state) rawBlock(id keyspace.ID, w int) []string {
	v := &s.raw
	if v.store == nil || v.id != id || !v.landed || s.hidden.on || s.paused != nil && s.paused.rewound {
		return nil
	}
	lines := []string{s.ruleOf(w, "stored as", "now")}
	switch {
	case v.err != nil:
		return append(lines, s.item(w, "", s.theme.warn, shortError(v.err)))
	case len(v.items) == 0:
		return append(lines, s.item(w, "", s.theme.dim, "nothing: the key is gone"))
	}
	for i := range v.items {
		lines = append(lines, s.storedKey(&v.items[i], w)...)
	}
	return lines
}

// storedKey draws one key: its type, what is left of its time, where it is, and
// as much of its value as there is room for.
func (s *state) storedKey(k *RawEntry, w int) []string {
	e := &k.Entry
	ttl := "no TTL"
	if !e.Expires.IsZero() {
		ttl = "TTL " + humanize.Left(e.Expires.Sub(s.clock()))
	}
	lines := s.wrapAnywhere(w, margin, s.theme.strong, s.sentence(widget.Plain(e.Key), widget.Plain(e.Type), ttl, s.redactAddr(k.Node)))
	if e.Type == "string" {
		lines = append(lines, s.wrapAnywhere(w, margin+2, s.theme.text, truncate(e.Value))...)
		return append(lines, s.moreLine(w, e.Len-int64(min(len(e.Value), storedBytes)), "byte")...)
	}
	shown := min(len(e.Members), storedMembers)
	for _, m := range e.Members[:shown] {
		lines = append(lines, s.wrapAnywhere(w, margin+2, s.theme.text, member(e.Type, m))...)
	}
	return append(lines, s.moreLine(w, e.Len-int64(shown), "element")...)
}

// member is an element of a collection, as a line.
func member(typ string, m keyspace.Member) string {
	switch typ {
	case "hash":
		return truncate(m.Name) + " = " + truncate(m.Value)
	case "zset":
		return fmt.Sprintf("%s at %.0f", truncate(m.Name), m.Score)
	default:
		return truncate(m.Name)
	}
}

// truncate is a value as far as it is shown.
func truncate(s string) string { return widget.Plain(s[:min(len(s), storedBytes)]) }

// moreLine says how much is not shown.
func (s *state) moreLine(w int, more int64, what string) []string {
	if more <= 0 {
		return nil
	}
	return []string{widget.NewLine(w).Skip(widget.Style{}, margin+2).Put(s.theme.dim, "and "+humanize.Plural(more, "more "+what)).String()}
}

// wrapAnywhere draws a text that must be readable to its end: in as many lines as it
// takes, broken anywhere.
func (s *state) wrapAnywhere(w, indent int, st widget.Style, text string) []string {
	var lines []string
	for _, part := range widget.Break(text, max(1, w-indent-1)) {
		lines = append(lines, widget.NewLine(w).Skip(widget.Style{}, min(indent, w)).Put(st, part).String())
	}
	return lines
}
