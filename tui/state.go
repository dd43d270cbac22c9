package tui

import (
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// state is the state that all pages share. Only Update changes it; views read it.
type state struct {
	config Config
	screen
	keymap keymap
	server string // the connected server
	now    time.Time

	live      *viewModel  // newest view model; nil before the first
	paused    *pausedView // nil unless paused
	history   keyspace.History
	log       eventLog
	timeline  timeline
	refresher refresher
	playback  *PlaybackState // nil in a live view
	privacy   privacy

	run     loadState
	raw     rawValue
	clients holderClients
	snoozes snoozes

	expired keyspace.Event // a hold that expired, until another client has its lock

	dialog dialog
	notice notice
	next   tea.Msg // message that a key causes, handled before the next key; or nil
}

// screen is what a page must know of the terminal.
type screen struct {
	w, h     int
	renderer *lipgloss.Renderer // writes the styles of the theme
	theme    theme
	glyphs   widget.Glyphs
}

// notice is the message of the last key in the last line.
type notice struct {
	text  string
	bad   bool
	until time.Time
}

// current returns the view model on the screen: the paused one or the newest. It is empty
// before the first snapshot.
func (s *state) current() *viewModel {
	switch {
	case s.paused != nil:
		return s.paused.model
	case s.live != nil:
		return s.live
	default:
		return &viewModel{review: new(keyspace.Review)}
	}
}

// clock returns the server's time of the view. It stops while the view is paused or stale.
func (s *state) clock() time.Time {
	switch {
	case s.playback != nil:
		return s.playback.At
	case s.paused != nil:
		return s.paused.clock
	case s.refresher.stale():
		return s.refresher.answered.Add(s.current().offset)
	default:
		return s.now.Add(s.current().offset)
	}
}

// readsPromptly reports whether a watch reads a change shortly after it happens.
func readsPromptly(w keyspace.WatchStatus) bool {
	return (w.Mode == keyspace.Push || w.Mode == keyspace.Notifications) && w.Lag < 100*time.Millisecond
}

// notify shows a message in the last line for up to 4 s. It returns nil: no command follows.
func (s *state) notify(text string) tea.Cmd {
	s.notice = notice{text, false, s.now.Add(4 * time.Second)}
	return nil
}

// reject shows for up to 4 s why a key has no effect. It returns nil: no command follows.
func (s *state) reject(why string) tea.Cmd {
	s.notice = notice{why, true, s.now.Add(4 * time.Second)}
	return nil
}

// rejectStart shows why the clients did not start: completely on the Load page, and with its
// beginning in the last line.
func (s *state) rejectStart(why string) {
	s.run.failed = why
	s.reject(why)
}
