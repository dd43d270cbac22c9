package tui

import (
	"context"
	"fmt"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// rawValue is the raw value of the selected lock. It is refreshed every storedFor, and
// sooner if the lock has changed since.
type rawValue struct {
	store    Store         // nil if raw values are unavailable
	lock     keyspace.Lock // as it was at the last request
	items    []RawEntry
	err      error
	asked    time.Time // local time of the last request for this lock; or zero
	read     time.Time // local time of the request that items answers
	asking   bool
	answered bool // there is an answer for this lock
}

// storedFor is the minimum time between two requests: short would hide those of other clients,
// which locktop sees by the time for which nobody has read the key.
const storedFor = 10 * time.Second

// request requests the raw value of a lock, unless it is fresh or a request is active.
func (v *rawValue) request(ctx context.Context, l keyspace.Lock, now time.Time) tea.Cmd {
	if v.store == nil || v.asking {
		return nil
	}
	if l.ID() != v.lock.ID() {
		*v = rawValue{store: v.store}
	}
	if !v.asked.IsZero() && now.Sub(v.asked) < v.freshFor(l) {
		return nil
	}
	v.lock, v.asked, v.asking = l, now, true
	return readStored(ctx, v.store, l)
}

// freshFor returns how long the last answer may be shown: not for long if the lock has changed
// since, or has a holder and no key, because it was read between two holds.
func (v *rawValue) freshFor(l keyspace.Lock) time.Duration {
	if v.answered && v.err == nil && (len(v.items) == 0 && len(l.Holders) > 0 || !keyspace.SameLock(&l, &v.lock)) {
		return tickInterval
	}
	return storedFor
}

// onAnswer stores an answer. It discards an answer for another lock.
func (v *rawValue) onAnswer(id keyspace.ID, requested time.Time, items []RawEntry, err error) {
	v.asking = false
	if id == v.lock.ID() {
		v.items, v.err, v.read, v.answered = items, err, requested, true
	}
}

// Maximum bytes of a value and elements of a collection on the screen.
const (
	storedBytes   = 512
	storedMembers = 12
)

// block draws the keys of a lock as they are on the servers.
func (v *rawValue) block(s *state, id keyspace.ID, w int) []string {
	if v.store == nil || v.lock.ID().OnAnyNode() != id.OnAnyNode() || !v.answered || s.privacy.on || s.paused != nil && s.paused.rewound {
		return nil
	}
	lines := []string{s.ruleOf(w, "stored as", v.age(s))}
	switch {
	case v.err != nil:
		return append(lines, s.item(w, "", s.screen.theme.warn, shortError(v.err)))
	case len(v.items) == 0:
		return append(lines, s.item(w, "", s.screen.theme.dim, "nothing: the key is gone"))
	}
	for i := range v.items {
		lines = append(lines, v.items[i].draw(s, w)...)
	}
	return lines
}

// age says when the value was read, compared with the lock on the screen.
func (v *rawValue) age(s *state) string {
	age := s.clock().Sub(v.read.Add(s.current().offset))
	if s.paused != nil && age < 0 {
		return "read " + humanize.Left(-age) + " later"
	}
	return "read " + humanize.Left(age) + " ago"
}

// draw draws a key: type, TTL, node and the beginning of its value.
func (k *RawEntry) draw(s *state, w int) []string {
	e := &k.Entry
	ttl := "no TTL"
	if !e.Expires.IsZero() {
		ttl = "TTL " + humanize.Left(e.Expires.Sub(s.clock()))
	}
	lines := s.wrapAnywhere(w, margin, s.screen.theme.strong, s.sentence(widget.Plain(e.Key), widget.Plain(e.Type), ttl, s.privacy.addr(k.Node)))
	if e.Type == "string" {
		lines = append(lines, s.wrapAnywhere(w, margin+2, s.screen.theme.text, truncate(e.Value))...)
		return append(lines, s.moreLine(w, e.Len-int64(min(len(e.Value), storedBytes)), "byte")...)
	}
	shown := min(len(e.Members), storedMembers)
	for _, m := range e.Members[:shown] {
		lines = append(lines, s.wrapAnywhere(w, margin+2, s.screen.theme.text, member(e.Type, m, s.clock()))...)
	}
	return append(lines, s.moreLine(w, e.Len-int64(shown), "element")...)
}

// member formats an element of a collection. A score that is a time is shown as its distance
// from now.
func member(typ string, m keyspace.Member, now time.Time) string {
	switch typ {
	case "hash":
		return truncate(m.Name) + " = " + truncate(m.Value)
	case "zset":
		return fmt.Sprintf("%s at %.0f%s", truncate(m.Name), m.Score, humanize.Score(m.Score, now))
	default:
		return truncate(m.Name)
	}
}

// truncate returns the first storedBytes bytes of s, escaped.
func truncate(s string) string { return widget.Plain(s[:min(len(s), storedBytes)]) }

// moreLine draws the number of hidden bytes or elements.
func (s *screen) moreLine(w int, more int64, what string) []string {
	if more <= 0 {
		return nil
	}
	return []string{widget.NewLine(w).Pad(widget.Style{}, margin+2).Put(s.theme.dim, "and "+humanize.Plural(more, "more "+what)).String()}
}
