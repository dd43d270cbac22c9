package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/tui/widget"
)

// onMouse passes clicks and wheel events to the page. Line 0 is the first line of the page.
func (a *app) onMouse(msg tea.MouseMsg) tea.Cmd {
	if a.dialog != nil {
		return a.onMenuMouse(msg)
	}
	top := a.state.frame().top()
	steps := map[tea.MouseButton]int{tea.MouseButtonWheelUp: -3, tea.MouseButtonWheelDown: 3}[msg.Button]
	switch {
	case steps != 0:
		if p, ok := a.page().(scroller); ok {
			p.scroll(&a.state, steps)
		}
	case msg.Button != tea.MouseButtonLeft || msg.Action != tea.MouseActionPress:
	case msg.Y == 0:
		a.clickTab(msg.X)
	case msg.Y == a.screen.h-1 && a.state.frame().footer:
		return a.clickFooter(msg.X)
	case msg.Y >= top:
		if p, ok := a.page().(clicker); ok && p.click(&a.state, msg.X, msg.Y-top) {
			return a.follow(a.perform(enter))
		}
	}
	return nil
}

// mouseHelp is what the mouse does, for the help and the docs.
func mouseHelp() []explained {
	return []explained{
		{"click", "select a row, and with a second click open it as Enter does; open a tab, sort by a title, choose from a menu, press a key of the last line; a question before a change takes keys only"},
		{"wheel", "scroll; --no-mouse leaves the mouse to the terminal, to select text"},
	}
}

// onMenuMouse passes clicks and wheel events to a menu; other dialogs ignore them.
func (a *app) onMenuMouse(msg tea.MouseMsg) tea.Cmd {
	m, ok := a.dialog.(*menu)
	if !ok {
		return nil
	}
	var cmd tea.Cmd
	switch {
	case msg.Button == tea.MouseButtonWheelUp:
		a.dialog, cmd = m.update(&a.state, tea.KeyMsg{Type: tea.KeyUp})
	case msg.Button == tea.MouseButtonWheelDown:
		a.dialog, cmd = m.update(&a.state, tea.KeyMsg{Type: tea.KeyDown})
	case msg.Button == tea.MouseButtonLeft && msg.Action == tea.MouseActionPress:
		a.dialog, cmd = m.click(&a.state, msg.Y)
	}
	return cmd
}

// clickFooter does what the key at column x of the last line does; of a group, its first key.
func (a *app) clickFooter(x int) tea.Cmd {
	if a.notice.text != "" {
		a.notice = notice{}
		return nil
	}
	at := 0
	for _, b := range a.footerKeys(a.place()) {
		at += a.footerWidth(b)
		if x < at {
			return a.follow(a.perform(b.actions[0].action))
		}
	}
	return nil
}

// clickTab opens the page whose tab is at column x of the first line.
func (a *app) clickTab(x int) {
	left, _ := a.header(&a.state)
	at := 0
	for i, tab := range left[:1+a.numbered()] {
		if i > 0 && x >= at && x < at+widget.Width(tab.text) {
			a.goToPage(i - 1)
			return
		}
		if tab.text != "" {
			at += widget.Width(tab.text) + tab.gap()
		}
	}
}
