package tui

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/lipgloss"

	"locktop/internal/humanize"
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

const (
	retryAfter   = time.Second     // from a failed request to the next
	checkTimeout = 3 * time.Second // from a request without an answer to a stale view
	slowAfter    = time.Second     // from a request without an answer to a notice about the delay
)

// refresher schedules snapshot requests. Only one request is active at a time, so answers
// arrive in order and a slow server never gets a second request.
type refresher struct {
	every    time.Duration // between two requests
	busy     bool          // a request is active
	asked    time.Time     // start of the request
	next     time.Time     // earliest time of the next request
	answered time.Time     // last successful answer
	silent   bool          // a request is active for longer than checkTimeout
	failed   bool          // the last request failed
	reason   string        // that error in plain words
	refused  bool          // that error is a reply of the server
}

func (k *refresher) begin(now time.Time) {
	k.busy, k.asked, k.next = true, now, now.Add(k.every)
}

func (k *refresher) end(at time.Time, err error) {
	k.busy, k.silent = false, false
	k.failed = err != nil
	if err != nil {
		k.reason = shortError(err)
		_, k.refused = errors.AsType[interface {
			error
			RedisError()
		}](err)
		k.next = at.Add(retryAfter)
		return
	}
	k.answered = at
}

// checkTimeout updates silent.
func (k *refresher) checkTimeout(now time.Time) { k.silent = k.busy && now.Sub(k.asked) > checkTimeout }

// stale reports whether the last snapshot is out of date.
func (k *refresher) stale() bool { return k.failed || k.silent }

// setPace changes the refresh interval.
func (s *state) setPace(every time.Duration) {
	if every < tickInterval || every > time.Hour {
		s.reject("already at the limit: refresh every " + humanize.Setting(s.refresher.every))
		return
	}
	s.refresher.every = every
	s.notify("refresh every " + humanize.Setting(every))
}

// askRescan scans all keys again; on a production server after a question.
func (a *app) askRescan() {
	scan := func(*state) (dialog, tea.Cmd) {
		a.config.Rescan()
		return nil, a.notify("scanning all keys, without the limit of --budget")
	}
	switch {
	case a.config.Rescan == nil:
		a.reject("only a server can be scanned again")
	case a.config.Production:
		a.dialog = &menu{title: "scan all keys of " + a.address() + " now?", about: []string{"Without the limit of --budget, the scan takes as much of the server's time as it can get."},
			choices: []choice{{key: "y", label: "scan now", pick: scan}}}
	default:
		_, _ = scan(&a.state)
	}
}

// shortError returns a short text for the error of a request.
func shortError(err error) string {
	var dns *net.DNSError
	var timeout net.Error
	switch {
	case errors.As(err, &dns):
		return "no such host " + widget.Plain(dns.Name)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.EPIPE):
		return "the server closed the connection"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	default:
		return widget.Plain(err.Error())
	}
}
