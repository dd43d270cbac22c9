package tui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/tui/widget"
)

// dialog receives the keys instead of the page until it closes.
type dialog interface {
	// update handles a key and returns the dialog to continue with, or nil to close.
	update(*state, tea.KeyMsg) (dialog, tea.Cmd)
	// draw draws the dialog over the lines of the screen.
	draw(s *state, lines []string) []string
}

// menu is a dialog above the last line: a text and a list of choices with keys.
type menu struct {
	list[string] // of the choices
	title        string
	about        []string // sentences; panel wraps them
	choices      []choice
	whole        bool // as many choices as possible are visible, instead of lines of the page
}

// choice is an entry of a menu.
type choice struct {
	key      string
	label    string
	detail   string
	about    string                           // explanation, shown while selected
	full     string                           // text that is shown completely while selected
	disabled string                           // why the choice is disabled; "" if it is enabled
	pick     func(s *state) (dialog, tea.Cmd) // returns the next dialog, or nil
}

func (m *menu) update(s *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	name := k.String()
	for _, c := range m.choices {
		if c.key == name {
			return m.run(s, c)
		}
	}
	switch name {
	case "esc", "q":
		return nil, nil
	case "up", "k", "shift+tab":
		m.row = (m.row + len(m.choices) - 1) % len(m.choices)
	case "down", "j", "tab":
		m.row = (m.row + 1) % len(m.choices)
	case "enter":
		return m.run(s, m.choices[m.row])
	}
	return m, nil
}

// run runs a choice, or shows why it is disabled.
func (m *menu) run(s *state, c choice) (dialog, tea.Cmd) {
	if c.disabled != "" {
		return nil, s.reject(c.disabled)
	}
	return c.pick(s)
}

// A long menu leaves the top lines of the page visible.
const (
	minPageLines = 11 // lines of the page, if possible
	minChoices   = 5  // minimum number of visible choices
)

func (m *menu) draw(s *state, lines []string) []string {
	panel, _ := m.panel(s)
	keys := "press a letter"
	if len(m.choices) <= 3 {
		keys = strings.Join(mapped(m.choices, func(c choice) string { return c.key }), " ")
	}
	return s.hints(overlay(s, lines, panel), hint{keys, "choose"}, hint{"↑ ↓", "move"}, hint{"Enter", "select"}, hint{"Esc", "close"})
}

// click runs the choice at line y of the window.
func (m *menu) click(s *state, y int) (dialog, tea.Cmd) {
	panel, at := m.panel(s)
	bottom := s.frame().bottom()
	top := bottom - min(len(panel)+1, bottom) // overlay adds an empty line below the panel
	if i := y - top - at; i >= 0 && i < m.h {
		m.row = m.top + i
		return m.run(s, m.choices[m.row])
	}
	return m, nil
}

// panel returns the lines of the menu. The visible choices begin at line at.
func (m *menu) panel(s *state) (panel []string, at int) {
	panel = []string{s.ruleOf(s.screen.w, m.title, "Esc closes")}
	for _, text := range m.about {
		panel = append(panel, s.wrapped(s.screen.w, margin, s.screen.theme.text, text, 4)...)
	}
	label := 0
	for _, c := range m.choices {
		label = max(label, widget.Width(c.label))
	}
	about := m.aboutLines(s, s.screen.h-len(panel))
	room := s.screen.h - len(panel) - len(about) - 3
	if !m.whole {
		room = min(room, max(room-minPageLines, minChoices))
	}
	m.n, m.h = len(m.choices), max(1, min(room, len(m.choices)))
	m.top = scrolled(m.row-m.h/2, m.n, m.h) // the selection stays in the middle
	if m.h < m.n {
		panel[0] = s.ruleOf(s.screen.w, m.title, s.sentence(fmt.Sprintf("%d to %d of %d", m.top+1, m.top+m.h, m.n), "Esc closes"))
	}
	at = len(panel)
	panel = append(panel, m.lines(s.screen.w, m.h, func(l *widget.Line, i int) {
		m.choice(s, l, i, label)
		s.scrollBar(l, i, m.top, m.h, m.n)
	})...)
	if len(about) > 0 {
		panel = append(panel, strings.Repeat(" ", s.screen.w))
	}
	return append(panel, about...), at
}

// aboutLines returns the explanation of the selected choice, for a panel with left remaining
// lines.
func (m *menu) aboutLines(s *state, left int) []string {
	c := m.choices[m.row]
	lines := s.wrapped(s.screen.w, margin, s.screen.theme.text, c.about, 5)
	if c.full != "" {
		lines = append(lines, s.wrapAnywhere(s.screen.w, margin, s.screen.theme.text, c.full)...)
	}
	if most := max(1, left-min(len(m.choices), minChoices)-3); len(lines) > most {
		more := humanize.Plural(len(lines)-most+1, "more line")
		lines = append(lines[:most-1], widget.NewLine(s.screen.w).Pad(widget.Style{}, margin).Put(s.screen.theme.dim, "and "+more).String())
	}
	return lines
}

// hint is a key of a dialog and its effect.
type hint struct{ key, word string }

// hints replaces the footer by the keys of the dialog, because the page's keys do nothing while
// a dialog is open.
func (s *screen) hints(lines []string, all ...hint) []string {
	if !s.frame().footer {
		return lines
	}
	l := widget.NewLine(s.w)
	for _, h := range all {
		l.Pad(widget.Style{}, 1).Put(s.theme.key, s.glyphs.Word(h.key)).Put(s.theme.dim, " "+h.word).Pad(widget.Style{}, 1)
	}
	lines[len(lines)-1] = l.String()
	return lines
}

// choice draws choice i: key, label and detail.
func (m *menu) choice(s *state, l *widget.Line, i, label int) {
	t, c := s.screen.theme, m.choices[i]
	key, text := t.key, t.text
	if c.disabled != "" {
		key, text = t.dim, t.dim
	}
	s.pointer(l, i == m.row)
	l.Put(key, s.screen.glyphs.Fit(s.screen.glyphs.Word(c.key), 3)).Put(text, s.screen.glyphs.Fit(c.label, label)).Pad(widget.Style{}, 2)
	l.Put(t.dim, s.screen.glyphs.FitEnd(cmp.Or(c.disabled, c.detail), max(0, l.Rest()-1)))
}

// overlay replaces the lines above the footer by the panel, as many as there are.
func overlay(s *state, lines, panel []string) []string {
	bottom := s.frame().bottom()
	panel = append(panel, strings.Repeat(" ", s.screen.w))
	panel = panel[:min(len(panel), bottom)]
	copy(lines[bottom-len(panel):bottom], panel)
	return lines
}

// prompt is a dialog in the last line with a text field.
type prompt struct {
	label    string
	text     []rune
	at       int // position of the cursor
	original string
	earlier  []string // texts that Up and Down bring back, newest last
	shown    int      // how far back in earlier; 0 = the text is new

	typed    func(text string)                   // called after each edit, and with the original text after Esc
	note     func(text string) (string, bool)    // returns a note about the text, and whether it is an error
	finish   func(text string) (dialog, tea.Cmd) // called after Enter; returns the next dialog, or nil
	complete func(text string) string            // completes the text after Tab; may be nil
}

func newPrompt(label, text string) *prompt {
	runes := []rune(text)
	return &prompt{
		label: label, text: runes, at: len(runes), original: text,
		typed: func(string) {}, note: func(string) (string, bool) { return "", false }, finish: func(string) (dialog, tea.Cmd) { return nil, nil },
	}
}

func (p *prompt) update(_ *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	switch k.String() {
	case "enter":
		return p.finish(string(p.text))
	case "esc":
		p.typed(p.original)
		return nil, nil
	case "up":
		p.recall(1)
	case "down":
		p.recall(-1)
	case "left":
		p.at = max(0, p.at-1)
	case "right":
		p.at = min(len(p.text), p.at+1)
	case "home", "ctrl+a":
		p.at = 0
	case "end", "ctrl+e":
		p.at = len(p.text)
	case "backspace":
		p.cut(max(0, p.at-1), p.at)
	case "delete":
		p.cut(p.at, min(len(p.text), p.at+1))
	case "ctrl+w":
		p.cut(p.word(), p.at)
	case "tab":
		if p.complete != nil {
			p.text = []rune(p.complete(string(p.text)))
			p.at = len(p.text)
		}
	case "ctrl+u":
		p.cut(0, p.at)
	default:
		if k.Type == tea.KeyRunes || k.Type == tea.KeySpace {
			p.text = slices.Insert(slices.Clone(p.text), p.at, k.Runes...)
			p.at += len(k.Runes)
			p.typed(string(p.text))
		}
	}
	return p, nil
}

// recall brings back the earlier text that is by places before the shown one.
func (p *prompt) recall(by int) {
	back := p.shown + by
	if back < 0 || back > len(p.earlier) {
		return
	}
	text := ""
	if back > 0 {
		text = p.earlier[len(p.earlier)-back]
	}
	p.shown, p.text = back, []rune(text)
	p.at = len(p.text)
	p.typed(text)
}

func (p *prompt) cut(from, to int) {
	p.text = slices.Delete(slices.Clone(p.text), from, to)
	p.at = from
	p.typed(string(p.text))
}

// word returns the start of the word before the cursor.
func (p *prompt) word() int {
	before := strings.TrimRight(string(p.text[:p.at]), " ")
	return utf8.RuneCountInString(before[:strings.LastIndexByte(before, ' ')+1])
}

// beforeCursor returns the end of the text before the cursor, in at most w cells.
func (p *prompt) beforeCursor(w int, ellipsis string) string {
	text := widget.Plain(string(p.text[:p.at]))
	for from := 1; widget.Width(text) > w && from <= p.at; from++ {
		text = ellipsis + widget.Plain(string(p.text[from:p.at]))
	}
	return text
}

func (p *prompt) draw(s *state, lines []string) []string {
	t := s.screen.theme
	note, complaint := p.note(string(p.text))
	st := t.dim
	if complaint {
		st = t.warn
	}
	l := widget.NewLine(s.screen.w)
	l.Pad(widget.Style{}, 1).Put(t.key, p.label)
	l.Put(t.text, p.beforeCursor(l.Rest()-2, s.screen.glyphs.Ellipsis))
	under, after := " ", ""
	if p.at < len(p.text) {
		under, after = widget.Plain(string(p.text[p.at:p.at+1])), widget.Plain(string(p.text[p.at+1:]))
	}
	l.Put(t.row, under).Put(t.text, after)
	l.Pad(widget.Style{}, 3).Put(st, note)
	lines[len(lines)-1] = l.String()
	return lines
}

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
	f, text := s.frame(), d.text(s)
	text = append([]string{s.ruleOf(s.screen.w, "keys", "any other key closes")}, text[min(d.top, len(text)):]...)
	copy(lines[f.top():f.bottom()], filled(text, s.screen.w, f.body))
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
		{"≤3 m", "at most: its token is so old by the clock of its client, which makes it before it waits"},
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
