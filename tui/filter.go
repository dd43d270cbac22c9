package tui

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// filter picks locks by what is on the screen of them.
//
//	word    part of the key, an owner or a waiter, the kind, format or state, in any case;
//	        or of a finding on it: finding is all locks that have one
//	!word   all others
//	~expr   a regular expression, in any case
type filter struct {
	text   string // as typed; "" matches everything
	word   string
	expr   *regexp.Regexp
	invert bool
	fault  string // why the expression cannot be read, "" if it can
}

// prompt opens the filter for typing. It calls changed after each change, and shows
// what found returns, or what is wrong with the filter.
func (f *filter) prompt(changed func(), found func() string) *prompt {
	d := newPrompt("/", f.text)
	d.typed = func(text string) {
		*f = parseFilter(text)
		changed()
	}
	d.note = func(string) (string, bool) {
		if f.fault != "" {
			return f.fault, true
		}
		return found(), false
	}
	return d
}

// parseFilter reads what was typed. A filter with a fault matches everything.
func parseFilter(text string) filter {
	f := filter{text: text}
	rest, invert := strings.CutPrefix(text, "!")
	f.invert = invert
	if source, ok := strings.CutPrefix(rest, "~"); ok {
		expr, err := regexp.Compile("(?i)" + source)
		if err != nil {
			f.fault = widget.Plain(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			return f
		}
		f.expr = expr
		return f
	}
	f.word = strings.ToLower(rest)
	return f
}

// active reports whether the filter leaves anything out.
func (f filter) active() bool { return f.fault == "" && (f.word != "" || f.expr != nil) }

// match reports whether a lock passes. about are the kinds of the findings on it.
func (f filter) match(l *keyspace.Lock, now time.Time, about string) bool {
	return !f.active() || (f.finds(l, now) || about != "" && f.in(about)) != f.invert
}

func (f filter) finds(l *keyspace.Lock, now time.Time) bool {
	if f.in(widget.Plain(l.Key)) || f.in(string(l.Kind)) || f.in(l.Format) || f.in(string(l.State(now))) {
		return true
	}
	for i := range l.Holders {
		if f.in(widget.Plain(l.Holders[i].Label)) || f.in(widget.Plain(l.Holders[i].ID)) {
			return true
		}
	}
	return slices.ContainsFunc(l.Waiters, func(w keyspace.Waiter) bool { return f.in(widget.Plain(w.ID)) })
}

// event picks events by their kind, and as locks are picked.
func (f filter) event(e *keyspace.Event) bool {
	if !f.active() {
		return true
	}
	found := f.in(string(e.Kind)) || f.in(widget.Plain(e.Lock.Key)) || f.in(e.Lock.Format) ||
		f.in(widget.Plain(e.Holder.Name())) || f.in(widget.Plain(e.Waiter.ID))
	return found != f.invert
}

// lane picks lanes of the timeline by their lock and by those who held it.
func (f filter) lane(key string, n *lane) bool {
	if !f.active() {
		return true
	}
	found := f.in(widget.Plain(key)) || n != nil && slices.ContainsFunc(n.holds, func(x timelineHold) bool { return f.in(widget.Plain(x.name)) })
	return found != f.invert
}

// finding picks findings by what they say, and by their lock.
func (f filter) finding(x *keyspace.Finding) bool {
	if !f.active() {
		return true
	}
	return (f.in(x.ID) || f.in(x.Severity.String()) || f.in(x.Text) || f.in(widget.Plain(x.Lock.Key))) != f.invert
}

func (f filter) in(text string) bool {
	if f.expr != nil {
		return f.expr.MatchString(text)
	}
	return strings.Contains(strings.ToLower(text), f.word)
}
