package tui

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
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
	title   string
	about   []string // sentences; panel wraps them
	choices []choice
	at      int  // index of the selected choice
	whole   bool // as many choices as possible are visible, instead of lines of the page
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
		m.at = (m.at + len(m.choices) - 1) % len(m.choices)
	case "down", "j", "tab":
		m.at = (m.at + 1) % len(m.choices)
	case "enter":
		return m.run(s, m.choices[m.at])
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
	panel, _, _, _ := m.panel(s)
	keys := "press a letter"
	if len(m.choices) <= 3 {
		keys = strings.Join(mapped(m.choices, func(c choice) string { return c.key }), " ")
	}
	return s.hints(overlay(s, lines, panel), hint{keys, "choose"}, hint{"↑ ↓", "move"}, hint{"Enter", "select"}, hint{"Esc", "close"})
}

// click runs the choice at line y of the window.
func (m *menu) click(s *state, y int) (dialog, tea.Cmd) {
	panel, at, first, end := m.panel(s)
	bottom := s.screen.h
	if s.frame().footer {
		bottom--
	}
	top := bottom - min(len(panel)+1, bottom) // overlay adds an empty line below the panel
	if i := y - top - at; i >= 0 && first+i < end {
		m.at = first + i
		return m.run(s, m.choices[m.at])
	}
	return m, nil
}

// panel returns the lines of the menu. The choices from first up to but not including end begin
// at line at.
func (m *menu) panel(s *state) (panel []string, at, first, end int) {
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
	first, end = m.visible(room)
	if shown := end - first; shown < len(m.choices) {
		panel[0] = s.ruleOf(s.screen.w, m.title, s.sentence(fmt.Sprintf("%d to %d of %d", first+1, end, len(m.choices)), "Esc closes"))
	}
	at = len(panel)
	for i := first; i < end; i++ {
		l := m.choice(s, i, label)
		s.scrollBar(l, i, first, end-first, len(m.choices))
		panel = append(panel, l.String())
	}
	if len(about) > 0 {
		panel = append(panel, strings.Repeat(" ", s.screen.w))
	}
	return append(panel, about...), at, first, end
}

// aboutLines returns the explanation of the selected choice, for a panel with left remaining
// lines.
func (m *menu) aboutLines(s *state, left int) []string {
	c := m.choices[m.at]
	lines := s.wrapped(s.screen.w, margin, s.screen.theme.text, c.about, 5)
	if c.full != "" {
		for text := range strings.SplitSeq(c.full, "\n") {
			lines = append(lines, s.wrapAnywhere(s.screen.w, margin, s.screen.theme.text, text)...)
		}
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

// visible returns the range of at most n visible choices around the selected one.
func (m *menu) visible(n int) (first, end int) {
	n = max(1, min(n, len(m.choices)))
	first = max(0, min(m.at-n/2, len(m.choices)-n))
	return first, first + n
}

// choice draws choice i: key, label and detail.
func (m *menu) choice(s *state, i, label int) *widget.Line {
	t, c := s.screen.theme, m.choices[i]
	key, text, detail := t.key, t.text, t.dim
	if c.disabled != "" {
		key, text = t.dim, t.dim
	}
	l := widget.NewLine(s.screen.w)
	s.pointer(l, i == m.at)
	l.Put(key, s.screen.glyphs.Fit(s.screen.glyphs.Word(c.key), 3)).Put(text, s.screen.glyphs.Fit(c.label, label)).Pad(widget.Style{}, 2)
	what := c.detail
	if c.disabled != "" {
		what = c.disabled
	}
	return l.Put(detail, s.screen.glyphs.FitEnd(what, max(0, l.Rest()-1)))
}

// overlay replaces the lines above the footer by the panel, as many as there are.
func overlay(s *state, lines, panel []string) []string {
	bottom := len(lines)
	if s.frame().footer {
		bottom--
	}
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

	typed    func(text string)                // called after each edit, and with the original text after Esc
	note     func(text string) (string, bool) // returns a note about the text, and whether it is an error
	finish   func(text string) tea.Cmd        // called after Enter; may be nil
	complete func(text string) string         // completes the text after Tab; may be nil
	next     func(text string) dialog         // returns the dialog after Enter; may be nil
}

func newPrompt(label, text string) *prompt {
	runes := []rune(text)
	return &prompt{
		label: label, text: runes, at: len(runes), original: text,
		typed: func(string) {}, note: func(string) (string, bool) { return "", false },
	}
}

func (p *prompt) update(_ *state, k tea.KeyMsg) (dialog, tea.Cmd) {
	switch k.String() {
	case "enter":
		return p.close()
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

// close accepts the text.
func (p *prompt) close() (next dialog, cmd tea.Cmd) {
	text := string(p.text)
	if p.next != nil {
		next = p.next(text)
	}
	if p.finish != nil {
		cmd = p.finish(text)
	}
	return next, cmd
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
