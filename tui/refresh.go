package tui

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/internal/humanize"
	"locktop/tui/widget"
)

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
