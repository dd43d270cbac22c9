package clienttest

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// failed returns the verdict of a failure.
func failed(format string, args ...any) Verdict {
	return Verdict{Outcome: Fail, Evidence: fmt.Sprintf(format, args...)}
}

func passed(format string, args ...any) Verdict {
	return Verdict{Outcome: Pass, Evidence: fmt.Sprintf(format, args...)}
}

func inconclusive(format string, args ...any) Verdict {
	return Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf(format, args...)}
}

// fail ends the steps of a test with a failure, and giveUp without a result.
func fail(format string, args ...any)   { panic(stop{failed(format, args...)}) }
func giveUp(format string, args ...any) { panic(stop{inconclusive(format, args...)}) }

// must gives up after an error, which is the last argument of the format.
func must(err error, format string, args ...any) {
	if err != nil {
		giveUp(format, append(args, err)...)
	}
}

// next returns a hold of the client, which asks while another one may still have the lock,
// and again after an error, as after a broken connection. It stops the test with a failure
// if the client does not get it within the TTL and the margin. Took is the time since. If
// the lease had ended before the client got it, the client locks again, and the evidence
// says so.
func (r *rig) next(a *actor, since time.Time, what string) (h *hold, took time.Duration) {
	h, err := a.lockBy(since.Add(r.ttl + margin))
	took = time.Since(since)
	if err != nil {
		fail("%s did not get the lock within %s after %s (TTL %s): %v.", a.name, humanize.Precise(took), what, humanize.Setting(r.ttl), err)
	}
	if over := h.began.Sub(h.Deadline()); over > 0 {
		r.remark = fmt.Sprintf(" %s got a lease that had ended %s before, by the valid_ms of its client, and locked again.", a.name, humanize.Precise(over))
		_ = h.unlock()
		h = a.mustLock()
	}
	r.together(h)
	return h, took
}

// together waits while h and another hold are valid, so that an overlap is as long as it
// takes to be certain.
func (r *rig) together(h *hold) {
	for _, other := range r.all() {
		if other != h && !other.over() && r.permits == 0 {
			r.await(short, func() bool { return !other.Valid() || !h.Valid() })
		}
	}
}

// free checks that a client gets the lock, which nobody has, long before its TTL would end.
// The test needs a long TTL, and fails after the sentences in facts.
func (r *rig) free(a *actor, facts string) (took time.Duration) {
	began := time.Now()
	_, err := a.lockBy(began.Add(r.ttl / 2))
	if took = time.Since(began); err != nil {
		fail("%s Then %s did not get the lock within %s (TTL %s), although no client was inside: %v.", facts, a.name, humanize.Precise(took), humanize.Setting(r.ttl), err)
	}
	return took
}

// kept releases a hold, and fails the test, after the sentences in facts, if the client
// reports its loss, at the release or before, although the lease was valid until then.
func (r *rig) kept(h *hold, facts string) {
	told := h.Lost()
	switch err := h.unlock(); {
	case !time.Now().Before(h.Deadline()):
	case told:
		fail("%s Then the client told %s that the lock was lost, although its lease was valid.", facts, h.actor.name)
	case errors.Is(err, external.ErrLost):
		fail("%s Then the release of %s %s, although its lease was valid.", facts, h.actor.name, outcomeText(err))
	}
}

// missing returns a sentence about a key that was there, of those in before, and is not any
// more; "" if there is none.
func (r *rig) missing(before map[string]bool) string {
	now := r.names()
	for name := range before {
		if !now[name] {
			return fmt.Sprintf(" The key %q was missing then.", name)
		}
	}
	return ""
}

// intruder lets a client ask for the lock that h has, and fails the test if it gets it,
// after the sentences in before. It returns the sentence for a pass.
func (r *rig) intruder(a *actor, h *hold, before string) string {
	if !h.Valid() {
		giveUp("The lease of %s ended before %s asked: the machine is too slow for a TTL of %s.", h.actor.name, a.name, humanize.Setting(r.ttl))
	}
	other, err := a.ask(h)
	if err == nil && h.Valid() {
		r.pause(short) // so that the timeline shows both
		fail("%s %s got the lock while %s was inside, with %s of its lease left.", before, a.name, h.actor.name, humanize.Precise(h.Deadline().Sub(other.began)))
	}
	if err == nil {
		giveUp("%s got the lock %s after the lease of %s had ended: the machine is too slow for a TTL of %s.",
			a.name, humanize.Precise(time.Since(h.Deadline())), h.actor.name, humanize.Setting(r.ttl))
	}
	if !errors.Is(err, external.ErrHeld) {
		giveUp("%s %s could not ask for the lock: %v.", before, a.name, err)
	}
	return fmt.Sprintf("%s was refused for %s while %s was inside.", a.name, humanize.Setting(short), h.actor.name)
}

// ask asks for the lock that h has, and again after an error that is not a refusal, such as
// that of a broken connection. After an interrupt it returns: a client that renews may keep h for ever.
func (a *actor) ask(h *hold) (*hold, error) {
	for {
		other, err := a.lock(short)
		if err == nil || errors.Is(err, external.ErrHeld) || a.process.Err() != nil || a.rig.ctx.Err() != nil || time.Until(h.Deadline()) < 2*short {
			return other, err
		}
	}
}

// outcomeText describes the result of a release or an extension.
func outcomeText(err error) string {
	switch {
	case err == nil:
		return "reported success"
	case errors.Is(err, external.ErrLost):
		return "reported the loss"
	}
	return "failed: " + err.Error()
}
