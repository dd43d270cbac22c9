package clienttest

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
)

// waiterKilled kills the first of two waiters.
func waiterKilled(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	h := a.mustLock()
	first := b.start(r.ttl + margin)
	r.pause(short) // for which it waits
	second := c.start(2*r.ttl + margin)
	r.pause(short)
	b.kill()
	<-first.done
	if !h.Valid() {
		return inconclusive("The lease of the holder ended before the waiter was killed: the machine is too slow.")
	}
	began := time.Now()
	err := h.unlock()
	<-second.done
	took := time.Since(began)
	if second.err != nil || took > r.ttl+margin {
		return failed("A waiter was killed, and the holder released (the release %s). The other waiter did not get the lock within %s (TTL %s): %v.",
			outcomeText(err), humanize.Precise(took), humanize.Setting(r.ttl), second.err)
	}
	return passed("The other waiter got the lock %s after the release (TTL %s).", humanize.Precise(took), humanize.Setting(r.ttl))
}

// waiterGivesUp lets waiters give up before the holder releases.
func waiterGivesUp(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	r.warm(b, c)
	h := a.mustLock()
	held := r.names()
	text := r.intruder(b, h, "A client asked.") + fmt.Sprintf(" %s gave up.", b.name)
	text += r.missing(held)
	text += " " + r.intruder(c, h, text)
	r.kept(h, text+r.missing(held))
	text += fmt.Sprintf(" %s released.", a.name)
	r.pause(short) // in which a waiter that gave up must not get the lock
	took := r.free(c, text)
	return passed("%s %s got the lock %s after it asked again.", text, c.name, humanize.Precise(took))
}
