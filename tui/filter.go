package tui

import (
	"iter"
	"regexp"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// filter selects locks by what the screen shows of them.
//
//	word    part of the key, an owner, a waiter, the kind, the format or the state, in any case,
//	        or of a finding's kind; "finding" selects all locks that have a finding
//	!word   all locks that do not match word
//	~expr   a regular expression, in any case
type filter struct {
	text     string // as typed; "" matches everything
	word     string
	expr     *regexp.Regexp
	invert   bool
	parseErr string // why the expression is invalid, "" if it is valid
	last     string // text before it was cleared

	found, all int // number of entries that it selects, and of all, when the page was arranged
}

// matches says how many of all entries the filter selects.
func (f *filter) matches() string { return humanize.Count(f.found) + " of " + humanize.Count(f.all) }

// onKey handles the keys of the filter: search opens its prompt, back clears it, and nextMatch and
// lastMatch move among its rows, or bring the last filter back. It returns false for other actions.
func (f *filter) onKey(s *state, a action, p page) bool {
	steps := map[action]int{nextMatch: 1, lastMatch: -1}[a]
	switch {
	case a == search:
		s.dialog = f.prompt(s, p)
	case a == back && f.text == "":
		s.next = leaveMsg{"nothing to leave: no pause, no filter, no tags"}
	case a == back:
		*f = filter{last: f.text}
		p.arrange(s)
	case steps == 0:
		return false
	case f.text == "" && f.last == "":
		s.reject(s.keymap.named("no filter yet; {filter} sets one"))
	case f.text == "":
		*f = parseFilter(f.last)
		p.arrange(s)
	default:
		p.(scroller).scroll(s, steps)
	}
	return true
}

// prompt returns the prompt for the filter, with the number of matches or the error in the
// filter.
func (f *filter) prompt(s *state, p page) *prompt {
	d := newPrompt("/", f.text)
	d.typed = func(text string) {
		last := f.last
		*f = parseFilter(text)
		f.last = last
		p.arrange(s)
	}
	d.note = func(string) (string, bool) {
		if f.parseErr != "" {
			return f.parseErr, true
		}
		return f.matches(), false
	}
	return d
}

// segment returns the filter and the number of matches for a summary.
func (f *filter) segment(s *state) segment {
	if f.text == "" {
		return segment{}
	}
	return segment{style: s.screen.theme.key, text: f.shown(s) + "  " + f.matches(), priority: 1}
}

// shown returns the filter for display, without its text in privacy mode: the text is a part of a name.
func (f *filter) shown(s *state) string {
	if s.privacy.on {
		return "/(hidden)"
	}
	return "/" + widget.Plain(f.text)
}

// parseFilter parses the typed text. An invalid filter matches everything.
func parseFilter(text string) filter {
	f := filter{text: text}
	rest, invert := strings.CutPrefix(text, "!")
	f.invert = invert
	if source, ok := strings.CutPrefix(rest, "~"); ok {
		expr, err := regexp.Compile("(?i)" + source)
		if err != nil {
			f.parseErr = widget.Plain(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
			return f
		}
		f.expr = expr
		return f
	}
	f.word = strings.ToLower(rest)
	return f
}

// active reports whether the filter can exclude anything.
func (f *filter) active() bool { return f.parseErr == "" && (f.word != "" || f.expr != nil) }

// lock reports whether the filter selects a lock. about holds the kinds of its findings.
func (f *filter) lock(l *keyspace.Lock, now time.Time, about string) bool {
	return !f.active() || (f.any(l.Key, string(l.Kind), l.Format, string(l.State(now))) || about != "" && f.contains(about) ||
		slices.ContainsFunc(l.Holders, func(h keyspace.Holder) bool { return f.any(h.Label, h.ID) }) ||
		slices.ContainsFunc(l.Waiters, func(w keyspace.Waiter) bool { return f.any(w.ID) })) != f.invert
}

// lane reports whether the filter selects a timeline lane, by its key or the names of its
// holders.
func (f *filter) lane(key string, owners iter.Seq[string]) bool {
	if !f.active() {
		return true
	}
	found := f.any(key)
	for name := range owners {
		found = found || f.any(name)
	}
	return found != f.invert
}

// any reports whether one of some texts, as the screen shows them, contains the word or matches the expression.
func (f *filter) any(texts ...string) bool {
	return slices.ContainsFunc(texts, func(text string) bool { return f.contains(widget.Plain(text)) })
}

func (f *filter) contains(text string) bool {
	if f.expr != nil {
		return f.expr.MatchString(text)
	}
	return strings.Contains(strings.ToLower(text), f.word)
}

// severityOrder is the name of the order bySeverity.
const severityOrder = "severity"

// sortMenu returns the menu of the columns to sort by, with the words of their titles.
func (p *locksPage) sortMenu() *menu {
	m := &menu{title: "sort by"}
	taken := "jkqv" // keys of a menu, and of the severity
	add := func(key, label, detail string, column int) {
		if column == p.sort {
			m.at, detail = len(m.choices), strings.TrimSpace(detail+" now; again: reversed")
		}
		m.choices = append(m.choices, choice{key: key, label: label, detail: detail, pick: func(s *state) (dialog, tea.Cmd) {
			p.sortBy(s, column)
			return nil, s.notify("order: " + p.order())
		}})
	}
	add("v", severityOrder, "worst first", bySeverity)
	for i, c := range p.columns() {
		free := strings.IndexFunc(c.name(), func(r rune) bool { return r != ' ' && !strings.ContainsRune(taken, r) })
		if c.less == nil || free < 0 {
			continue
		}
		taken += c.name()[free : free+1]
		add(c.name()[free:free+1], c.name(), "", i)
	}
	return m
}

// sortBy sorts by a column, or reverses its order.
func (p *locksPage) sortBy(s *state, column int) {
	p.reversed = column == p.sort && !p.reversed
	p.sort = column
	p.arrange(s)
}
