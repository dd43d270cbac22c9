package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// page is one of the full-screen pages. A page keeps its own cursor and order; its data comes
// from the state.
type page interface {
	title() string  // "" for the page without a number
	place() pageSet // the keys that it handles
	// update handles an action, a mouse event with line numbers of the page, and every message
	// that changed the state.
	update(*state, tea.Msg) tea.Cmd
	// summary draws the line above the page.
	summary(*state, *widget.Line)
	// view draws the page: at most h lines, each w cells wide.
	view(s *state, w, h int) []string
}

// subject is a page with a selected lock. ok is false if no lock is selected.
type subject interface {
	subject(*state) (l keyspace.Lock, ok bool)
}

// dialog receives the keys instead of the page until it closes.
type dialog interface {
	// update handles a key and returns the dialog to continue with, or nil to close.
	update(*state, tea.KeyMsg) (dialog, tea.Cmd)
	// view draws the dialog over the lines of the screen.
	view(s *state, lines []string) []string
}

// clickMsg is a click on a line of the page. wheelMsg is a turn of the wheel over the page;
// positive steps scroll down.
type (
	clickMsg struct{ x, y int }
	wheelMsg struct{ steps int }
)
