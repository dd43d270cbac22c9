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
	switch k.String() {
	case "j", "down":
		d.top = scrolled(d.top+1, len(d.text(s)), d.height(s))
	case "k", "up":
		d.top = scrolled(d.top-1, len(d.text(s)), d.height(s))
	case "pgdown", " ":
		d.top = scrolled(d.top+d.height(s), len(d.text(s)), d.height(s))
	case "pgup":
		d.top = scrolled(d.top-d.height(s), len(d.text(s)), d.height(s))
	default:
		return nil, nil
	}
	return d, nil
}

// height returns the number of lines below the title.
func (d *helpDialog) height(s *state) int { return max(0, s.frame().body-1) }

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
			body[i] = s.rule("keys", "any other key closes")
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
	lines = append(lines, widget.NewLine(s.screen.w).Pad(s.screen.theme.text, 2).Put(s.screen.theme.strong, "mouse").String())
	for _, m := range mouseHelp() {
		lines = append(lines, d.entry(s, m.what, m.does)...)
	}
	lines = append(lines, strings.Repeat(" ", s.screen.w), widget.NewLine(s.screen.w).Pad(s.screen.theme.text, 2).Put(s.screen.theme.strong, "words").String())
	for _, m := range wordHelp() {
		lines = append(lines, d.entry(s, m.what, m.does)...)
	}
	return append(lines, strings.Repeat(" ", s.screen.w), d.legend(s))
}

// wordHelp is what short words and signs on the screen mean, for the help and the docs.
func wordHelp() []struct{ what, does string } {
	return []struct{ what, does string }{
		{"HOLDS", "how often its owner has entered the lock; of a semaphore the permits in use and in all"},
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
	lines := []string{widget.NewLine(s.screen.w).Pad(s.screen.theme.text, 2).Put(s.screen.theme.strong, title).String()}
	for _, b := range s.keymap {
		if !wanted(b.place) {
			continue
		}
		lines = append(lines, d.entry(s, b.label, b.help)...)
	}
	if len(lines) == 1 {
		return nil
	}
	return append(lines, strings.Repeat(" ", s.screen.w))
}

// entry draws a key and its text.
func (d *helpDialog) entry(s *state, label, help string) []string {
	var lines []string
	label = s.screen.glyphs.Word(label)
	for _, text := range s.screen.glyphs.Wrap(s.screen.glyphs.Word(help), max(1, s.screen.w-helpColumn), helpLines) {
		l := widget.NewLine(s.screen.w).Pad(s.screen.theme.text, 4).Put(s.screen.theme.key, label).PadTo(s.screen.theme.text, helpColumn)
		lines = append(lines, l.Put(s.screen.theme.text, text).String())
		label = ""
	}
	return lines
}

// legend shows the glyph of each state.
func (d *helpDialog) legend(s *state) string {
	l := widget.NewLine(s.screen.w).Pad(s.screen.theme.text, 2).Put(s.screen.theme.strong, "states")
	l.PadTo(s.screen.theme.text, 16)
	for _, st := range keyspace.States() {
		glyph, style := s.ofState(st)
		l.Put(style, glyph+" "+string(st)).Pad(s.screen.theme.text, 2)
	}
	return l.String()
}
