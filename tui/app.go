package tui

import (
	"context"
	"fmt"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/tui/widget"
)

// app is the screen: the only model that bubbletea knows. It owns the state and
// hands messages to where they belong.
type app struct {
	state
	ctx    context.Context // ends every look that is under way
	source Source
	pages  []page
	open   int
}

func newApp(ctx context.Context, w World) *app {
	a := &app{ctx: ctx, source: w.Source, pages: []page{newLocksPage(), &loadPage{}}}
	a.where = widget.Plain(w.Title)
	a.load = w.Load
	a.link.every = w.Every
	a.theme, a.glyphs = systemTheme(), widget.Blocks()
	if w.NoColor {
		a.theme = monoTheme()
	}
	if w.ASCII {
		a.glyphs = widget.ASCII()
	}
	return a
}

// Init implements tea.Model.
func (a *app) Init() tea.Cmd { return tick() }

// Update implements tea.Model.
func (a *app) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		a.w, a.h = msg.Width, msg.Height
	case tickMsg:
		return a, a.tick(msg)
	case tea.KeyMsg:
		return a, a.typed(msg)
	case lookedMsg:
		a.link.end(msg.at, msg.err)
		if msg.err == nil {
			a.land(msg.picture)
		}
	case measuredMsg:
		a.measured(msg)
	case resizedMsg:
		return a, a.resized(msg.clients)
	case doneMsg:
		a.done(msg)
	case crashMsg:
		panic(fmt.Sprintf("%v\n\n%s", msg.value, msg.stack))
	}
	return a, a.tellPages(msg)
}

// tellPages lets every page, also those out of sight, follow the state.
func (a *app) tellPages(msg tea.Msg) tea.Cmd {
	var cmds []tea.Cmd
	for _, p := range a.pages {
		cmds = append(cmds, p.update(&a.state, msg))
	}
	return tea.Batch(cmds...)
}

func (a *app) tick(msg tickMsg) tea.Cmd {
	a.now = msg.now
	a.link.watch(a.now)
	if a.notice.text != "" && a.now.After(a.notice.until) {
		a.notice = notice{}
	}
	cmds := []tea.Cmd{tick(), a.measure()}
	if a.link.due(a.now) {
		a.link.begin(a.now)
		cmds = append(cmds, look(a.ctx, a.source))
	}
	return tea.Batch(cmds...)
}

func (a *app) done(msg doneMsg) {
	if msg.err != nil {
		a.refuse(plainReason(msg.err))
		return
	}
	a.tell(msg.text)
}

// typed answers keys one by one. Letters that reach bubbletea together, as they
// do over a slow line, come as one message, and a paste does too.
func (a *app) typed(msg tea.KeyMsg) tea.Cmd {
	if msg.Type != tea.KeyRunes || msg.Paste {
		return a.key(msg)
	}
	var cmds []tea.Cmd
	for _, r := range msg.Runes {
		one := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}, Alt: msg.Alt}
		cmds = append(cmds, a.key(one))
	}
	return tea.Batch(cmds...)
}

// key answers a key: the dialog takes it, or it is looked up in the table.
func (a *app) key(msg tea.KeyMsg) tea.Cmd {
	if msg.Type == tea.KeyCtrlC {
		return tea.Quit
	}
	if a.dialog != nil {
		a.dialog = a.dialog.update(&a.state, msg)
		return nil
	}
	a.notice = notice{}
	p := a.pages[a.open]
	switch act := actionOf(msg.String(), p.place()); act {
	case noAction:
		a.refuse(widget.Plain(msg.String()) + " does nothing here; ? shows the keys")
	case quit:
		return tea.Quit
	case suspend:
		return tea.Suspend
	case help:
		a.dialog = &helpDialog{page: p.place()}
	case openLocks:
		a.open = 0
	case openLoad:
		a.open = 1
	case nextPage:
		a.open = (a.open + 1) % len(a.pages)
	case previousPage:
		a.open = (a.open + len(a.pages) - 1) % len(a.pages)
	default:
		return p.update(&a.state, act)
	}
	return nil
}

// View implements tea.Model: exactly as many lines as the window has, each
// exactly as wide.
func (a *app) View() string {
	s := &a.state
	if s.w <= 0 || s.h <= 0 {
		return ""
	}
	lines := a.draw(s)
	if s.dialog != nil {
		lines = s.dialog.view(s, lines)
	}
	return strings.Join(lines, "\n")
}

// draw stacks the parts of the screen: head, summary, page, foot.
func (a *app) draw(s *state) []string {
	p := a.pages[a.open]
	f := s.frame()
	lines := make([]string, 0, s.h)
	if f.head {
		lines = append(lines, a.head(s))
	}
	if f.summary {
		lines = append(lines, a.summary(s, p))
	}
	lines = append(lines, s.body(p, f.body)...)
	if f.foot {
		lines = append(lines, s.foot(p))
	}
	return lines
}

// body draws a page, in faint colours when it is no longer true, and fills it
// up to h lines.
func (s *state) body(p page, h int) []string {
	shown := *s
	if s.stale() {
		shown.theme = s.theme.faded()
	}
	lines := p.view(&shown, s.w, h)
	blank := strings.Repeat(" ", s.w)
	for len(lines) < h {
		lines = append(lines, blank)
	}
	return lines[:h]
}
