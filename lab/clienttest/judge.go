package clienttest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// unlocked judges the result of a release.
func (s *stage) unlocked(p *player, r *reply) {
	h := p.first
	told := h.lease.Lost()
	switch {
	case errors.Is(r.err, external.ErrLost) && !p.hurt && time.Until(h.end()) > slack:
		s.fail("The release of %s reported the loss of the lock, %s before the end of its lease.", p.name, humanize.Precise(time.Until(h.end())))
	case r.err == nil && !told && s.superseded(h, r.asked):
		s.fail("The release of %s reported success, although another client had got the lock before, and nothing told %s.", p.name, p.name)
	}
}

// superseded reports whether the lock was granted to another client after a hold began, before
// a time, and the lease of the hold is over.
func (s *stage) superseded(h *claim, before time.Time) bool {
	return s.play.permits == 0 && !h.lease.Valid() && slices.ContainsFunc(s.claims, func(other *claim) bool {
		return other.player != h.player && other.asked.After(h.granted) && other.granted.Before(before) && !(h.shared && other.shared)
	})
}

// numbered judges the fence of a new hold.
func (s *stage) numbered(h *claim) {
	for _, other := range s.claims {
		again := other.player == h.player && !other.left // of a reentrant lock
		if h.player.hello.Fences && !again && s.play.permits == 0 && !h.shared && !other.shared && other.granted.Before(h.asked) && other.lease.Fence() >= h.lease.Fence() {
			s.fail("The fence of %s is %d, and that of %s, which had the lock before, is %d.", h.player.name, h.lease.Fence(), other.player.name, other.lease.Fence())
		}
	}
}

// fail records the first finding.
func (s *stage) fail(format string, args ...any) {
	if s.finding == "" {
		s.finding = fmt.Sprintf(format, args...)
	}
}

// judge looks for clients that are inside at once, within their leases.
func (s *stage) judge() {
	now := time.Now()
	var inside []*claim // one for each client
	for _, h := range s.claims {
		if h.valid() && h.end().Sub(now) > slack && !slices.ContainsFunc(inside, func(o *claim) bool { return o.player == h.player }) {
			inside = append(inside, h)
		}
	}
	if len(inside) <= max(s.play.permits, 1) || !slices.ContainsFunc(inside, func(h *claim) bool { return !h.shared }) {
		return
	}
	text, left := "", time.Hour
	for i, h := range inside {
		if i > 0 {
			text += " and "
		}
		text, left = text+h.player.name, min(left, h.end().Sub(now))
	}
	s.fail("%s are inside at once, with %s left of their leases.", text, humanize.Precise(left))
}

// finished judges the result of the client that asked at the end.
func (s *stage) finished(c *player, r reply) {
	row := Step{Client: c.name, Result: r.text(c)}
	s.steps = append(s.steps, row)
	if r.err != nil {
		if c.hindered() && s.free(c) {
			s.slow = true
			return
		}
		s.fail("%s did not get the lock within %s (TTL %s), although no client had it.", c.name, humanize.Precise(time.Since(r.asked)), humanize.Setting(orderTTL))
		return
	}
	h := &claim{player: c, lease: r.lease, reported: r.lease.Deadline(), asked: r.asked, granted: time.Now(), certain: r.end}
	s.claims = append(s.claims, h)
	s.numbered(h)
	s.judge()
}

// hindered reports whether the machine was so slow during a request of the client that an attempt
// with a limit of some ms had no chance.
func (p *player) hindered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.took > orderTTL/20
}

// free reports whether a client gets the lock that it waited for in vain, when it asks again.
func (s *stage) free(c *player) bool {
	ctx, cancel := context.WithTimeout(s.ctx, answerWithin)
	defer cancel()
	l, err := c.process.Lock(ctx, external.Terms{Keys: []string{s.key}, TTL: orderTTL, Wait: 2 * orderTTL, Permits: s.play.permits})
	if err == nil {
		s.claims = append(s.claims, &claim{player: c, lease: l}) // it is released with the others
	}
	return err == nil
}
