package tui

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"locktop/tui/widget"
)

const (
	retryAfter   = time.Second     // from a failed look to the next
	checkTimeout = 3 * time.Second // with a look that is not answered, before the picture counts as lost
	doubtAfter   = time.Second     // before it is said that an answer is late
)

// refresher is how the looks at the server go. There is one look at a time, so no
// answer can come after a newer one, and a slow server delays the picture but
// is never asked twice.
type refresher struct {
	every    time.Duration // between two looks
	busy     bool          // a look is under way
	asked    time.Time     // when it began
	next     time.Time     // when the next may begin
	answered time.Time     // the last picture
	silent   bool          // a look has been under way for too long
	failed   bool          // the last look was answered by an error
	reason   string        // that error, in plain words
}

// due reports whether it is time for another look.
func (k *refresher) due(now time.Time) bool { return !k.busy && !now.Before(k.next) }

func (k *refresher) begin(now time.Time) {
	k.busy, k.asked, k.next = true, now, now.Add(k.every)
}

func (k *refresher) end(at time.Time, err error) {
	k.busy, k.silent = false, false
	k.failed = err != nil
	if err != nil {
		k.reason = shortError(err)
		k.next = at.Add(retryAfter)
		return
	}
	k.answered = at
}

// checkTimeout notices that a look is not answered.
func (k *refresher) checkTimeout(now time.Time) { k.silent = k.busy && now.Sub(k.asked) > checkTimeout }

// stale reports whether the last picture is no longer true.
func (k *refresher) stale() bool { return k.failed || k.silent }

// shortError says in few words why a look came to nothing.
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
