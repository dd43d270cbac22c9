package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/tui/widget"
)

// page is one of the pictures that fill the screen in turn. A page keeps what
// concerns it alone (a cursor, an order); what it shows is in the state.
type page interface {
	title() string
	place() place // whose keys it answers
	// update takes an action, and every message that changed the state.
	update(*state, tea.Msg) tea.Cmd
	// summary draws the line above the page.
	summary(*state, *widget.Line)
	// view draws the page: at most h lines, each w cells wide.
	view(s *state, w, h int) []string
}

// dialog is something that takes the keys away from the page until it closes.
type dialog interface {
	// update answers a key; the dialog it returns is the one to go on with,
	// nil when it is closed.
	update(*state, tea.KeyMsg) dialog
	// view draws the dialog over the lines of the screen.
	view(s *state, lines []string) []string
}
