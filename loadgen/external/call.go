package external

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// call is a request without a reply.
type call struct {
	Request
	sent  time.Time
	due   time.Time
	reply chan answer // capacity 1; nil: the caller has given up
}

// answer is a reply with the time at which it was read.
type answer struct {
	Reply
	at    time.Time
	lease *Lease // of a successful lock
}

// write sends a line. It fails if the client does not read it in time.
func (p *Process) write(r Request, within time.Duration) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.stdin.SetWriteDeadline(time.Now().Add(within)) // fails after Close, as the write
	_, err = p.stdin.Write(append(line, '\n'))
	return err
}

// do sends a request and waits for its reply. The client may take wait for it, and
// Options.ReplyWithin. If ctx ends first, do returns its error.
func (p *Process) do(ctx context.Context, r Request, wait time.Duration) (answer, error) {
	if _, err := p.Hello(ctx); err != nil {
		return answer{}, err
	}
	if err := p.checkLate(); err != nil {
		return answer{}, err
	}
	within := wait + p.options.ReplyWithin
	c := &call{Request: r, reply: make(chan answer, 1)}
	p.mu.Lock()
	p.newest++
	c.ID, c.sent = p.newest, time.Now()
	c.due = c.sent.Add(within)
	p.pending[c.ID] = c
	p.mu.Unlock()
	if err := p.write(c.Request, within); err != nil {
		p.failedWrite(err)
		return answer{}, p.Err()
	}
	return p.await(ctx, c)
}

// failedWrite ends the client after an error of write, and returns when it has ended.
func (p *Process) failedWrite(err error) {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.fail(ErrLate, "it does not read its stdin")
	}
	select {
	case <-p.done: // it has exited: that is the reason
	case <-time.After(drain):
		p.fail(ErrExited, "it closed its stdin")
		<-p.done
	}
}

// await waits for a reply, for the end of ctx, or for the end of the client.
func (p *Process) await(ctx context.Context, c *call) (answer, error) {
	late := time.NewTimer(time.Until(c.due))
	defer late.Stop()
	for cancel := c.cancel; ; {
		select {
		case <-cancel:
			cancel = nil
			if err := p.write(Request{Op: opCancel, ID: c.ID}, p.options.ReplyWithin); err != nil {
				p.failedWrite(err)
			}
		case a := <-c.reply:
			return a, nil
		case <-p.done:
			select {
			case a := <-c.reply: // it answered before it ended
				return a, nil
			default:
			}
			return answer{}, p.Err()
		case <-ctx.Done():
			p.abandon(c)
			return answer{}, ctx.Err()
		case <-late.C:
			if err := p.checkLate(); err != nil {
				return answer{}, err
			}
			late.Reset(p.options.ReplyWithin)
		}
	}
}

// abandon records that nobody waits for a reply any more. A lock that the client grants
// is released.
func (p *Process) abandon(c *call) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case a := <-c.reply:
		if a.lease != nil {
			p.forget(a.lease)
			go p.undo(a.lease)
		}
	default:
		c.reply = nil
	}
}

// checkLate ends the client if a reply is overdue and no fault explains it.
func (p *Process) checkLate() error {
	now := time.Now()
	p.mu.Lock()
	var overdue *call
	for _, c := range p.pending {
		if !now.Before(c.due) {
			overdue = c
		}
	}
	p.mu.Unlock()
	if excused := p.options.Excused; overdue == nil || excused != nil && excused(now.Add(-p.options.ReplyWithin)) {
		return nil
	}
	p.fail(ErrLate, fmt.Sprintf("%s %d took more than %s", overdue.Op, overdue.ID, now.Sub(overdue.sent).Truncate(time.Millisecond)))
	<-p.done
	return p.Err()
}

// longestQuote is how many bytes of a line an error quotes.
const longestQuote = 100

// quoted returns the beginning of a line in quotes.
func quoted(line []byte) string {
	rest := ""
	if len(line) > longestQuote {
		line, rest = line[:longestQuote], "…"
	}
	return fmt.Sprintf("%q%s", line, rest)
}

// printable replaces what a terminal does not print.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// Bounds of the quoted stderr.
const (
	stderrBytes = 4096 // kept
	stderrLines = 3    // quoted
)

// tail keeps the end of what is written to it. Safe for concurrent use.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer. It never fails.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p[max(0, len(p)-stderrBytes):]...)
	if extra := len(t.text) - stderrBytes; extra > 0 {
		t.text = append(t.text[:0], t.text[extra:]...)
	}
	return len(p), nil
}

// lines returns the last lines in one line of printable text.
func (t *tail) lines() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last []string
	for line := range strings.Lines(string(t.text)) {
		if line = strings.TrimSpace(line); line != "" {
			last = append(last, printable(line))
		}
	}
	return strings.Join(last[max(0, len(last)-stderrLines):], " | ")
}
