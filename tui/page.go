package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// page is one of the pictures that fill the screen in turn. A page keeps what
// concerns it alone (a cursor, an order); what it shows is in the state.
type page interface {
	title() string  // "" for one that is not among the numbered ones
	place() pageSet // whose keys it answers
	// update takes an action, a mouse event in the page's own lines, and every
	// message that changed the state.
	update(*state, tea.Msg) tea.Cmd
	// summary draws the line above the page.
	summary(*state, *widget.Line)
	// view draws the page: at most h lines, each w cells wide.
	view(s *state, w, h int) []string
}

// subject is a page on which a lock is selected. ok is false if none is.
type subject interface {
	subject(*state) (l keyspace.Lock, ok bool)
}

// dialog is something that takes the keys away from the page until it closes.
type dialog interface {
	// update answers a key; the dialog it returns is the one to go on with,
	// nil when it is closed.
	update(*state, tea.KeyMsg) (dialog, tea.Cmd)
	// view draws the dialog over the lines of the screen.
	view(s *state, lines []string) []string
}

// clickMsg is a click on a line of the page, and wheelMsg a turn of the wheel
// over it, down for steps greater than 0.
type (
	clickMsg struct{ x, y int }
	wheelMsg struct{ steps int }
)
