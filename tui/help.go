package tui

import (
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// helpDialog lists all keys from the key table.
type helpDialog struct {
	page pageSet // its keys come first
	top  int     // first visible line
}

func (d *helpDialog) update(s *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	h := max(0, s.frame().body-1) // below the title
	by, ok := map[string]int{"j": 1, "down": 1, "k": -1, "up": -1, "pgdown": h, " ": h, "pgup": -h}[k.String()]
	if !ok {
		return nil, nil
	}
	d.top = scrolled(d.top+by, len(d.text(s)), h)
	return d, nil
}

func (d *helpDialog) draw(s *state, lines []string) []string {
	f := s.frame()
	top := s.screen.h - f.body
	if f.footer {
		top--
	}
	body := lines[top : top+f.body]
	text := d.text(s)
	for i := range body {
		switch at := i - 1 + d.top; {
		case i == 0:
			body[i] = s.ruleOf(s.screen.w, "keys", "any other key closes")
		case at < len(text):
			body[i] = text[at]
		default:
			body[i] = strings.Repeat(" ", s.screen.w)
		}
	}
	return s.hints(lines, hint{"↑ ↓", "scroll"}, hint{"any other key", "closes"})
}

// text returns the lines: the keys of the open page, the keys of all pages, the keys of the
// other pages, the mouse, the words, and the glyphs of the states.
func (d *helpDialog) text(s *state) []string {
	lines := d.section(s, d.page.String(), func(p pageSet) bool { return p&d.page != 0 && p != anywhere })
	lines = append(lines, d.section(s, anywhere.String(), func(p pageSet) bool { return p == anywhere })...)
	for _, at := range allPages() {
		if at != d.page {
			lines = append(lines, d.section(s, at.String(), func(p pageSet) bool { return p&d.page == 0 && p&-p == at })...) // list a binding of several pages only at the first one
		}
	}
	lines = append(lines, d.entries(s, "mouse", mouseHelp())...)
	lines = append(lines, d.entries(s, "words", wordHelp())...)
	return append(lines, d.legend(s))
}

// explained is a word, a key or a part of the mouse with its explanation.
type explained struct{ what, does string }

// wordHelp is what short words and signs on the screen mean, for the help and the docs.
func wordHelp() []explained {
	return []explained{
		{"DEPTH", "how often its owner has entered the lock; of a semaphore the permits in use and in all"},
		{"≥3 m", "at least: the hold began before locktop saw it"},
		{"WAIT ?", "the lock type does not record its waiters"},
		{"WAIT ≥1", "it does not record them, and another client has asked for the held lock within the last 2 s"},
		{"TTL bar", "the time left of the lease, or of the longest time left that was seen"},
		{"sampled", "locktop reads the lock after each change; a shorter hold than the time between two reads is missed"},
		{"gave up", "clients of the load that did not get the lock within the wait limit"},
		{"cut off", "attempts that a stop of the clients ended"},
		{"lost", "holds whose lock another program deleted or took"},
		{"fairness", "1 if all clients acquired equally often, 1/n if one of n got all (Jain's index)"},
	}
}

// helpColumn is the column of the texts. helpLines is the maximum number of lines of a text.
const (
	helpColumn = 16
	helpLines  = 4
)

// section lists the keys of the selected pages. It returns nil if there are none.
func (d *helpDialog) section(s *state, title string, wanted func(pageSet) bool) []string {
	var entries []explained
	for _, b := range s.keymap {
		if wanted(b.place) {
			entries = append(entries, explained{b.label, b.help})
		}
	}
	if len(entries) == 0 {
		return nil
	}
	return d.entries(s, title, entries)
}

// entries draws a title, keys or words with their texts, and a blank line.
func (d *helpDialog) entries(s *state, title string, all []explained) []string {
	g, t, w := s.screen.glyphs, s.screen.theme, s.screen.w
	lines := []string{widget.NewLine(w).Pad(t.text, 2).Put(t.strong, title).String()}
	for _, one := range all {
		label := g.Word(one.what)
		for _, text := range g.Wrap(g.Word(one.does), max(1, w-helpColumn), helpLines) {
			lines = append(lines, widget.NewLine(w).Pad(t.text, 4).Put(t.key, label).PadTo(t.text, helpColumn).Put(t.text, text).String())
			label = ""
		}
	}
	return append(lines, strings.Repeat(" ", w))
}

// legend shows the glyph of each state.
func (d *helpDialog) legend(s *state) string {
	l := widget.NewLine(s.screen.w).Pad(s.screen.theme.text, 2).Put(s.screen.theme.strong, "states")
	l.PadTo(s.screen.theme.text, 16)
	for _, st := range keyspace.States() {
		glyph, style := s.look(st)
		l.Put(style, glyph+" "+string(st)).Pad(s.screen.theme.text, 2)
	}
	return l.String()
}
