package certify

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
)

// crash kills a holder.
func crash(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	a.mustLock()
	a.kill()
	_, took := r.next(b, time.Now(), "the crash of its holder")
	return passed("%s got the lock %s after the crash of its holder (TTL %s).", b.name, humanize.Precise(took), humanize.Setting(ttl))
}

// outlived is a test whose first client was frozen until the second one had its lock. It
// runs again, and the second client is inside.
type outlived struct {
	a, b  *actor
	c     *actor // has not asked
	h     *hold  // of a
	later *hold  // of b
	text  string
	woken time.Time
}

func (r *rig) outlive() outlived {
	o := outlived{a: r.actor(), b: r.actor(), c: r.actor()}
	o.h = o.a.mustLock()
	o.a.freeze()
	frozen := time.Now()
	later, took := r.next(o.b, frozen, "the freeze of its holder")
	o.a.thaw()
	o.later, o.woken = later, time.Now()
	o.text = fmt.Sprintf("%s was frozen for %s (TTL %s), and %s got the lock after %s.",
		o.a.name, humanize.Precise(o.woken.Sub(frozen)), humanize.Setting(ttl), o.b.name, humanize.Precise(took))
	return o
}

// freeze checks that a holder that was frozen learns of the loss.
func freeze(r *rig) Verdict {
	o := r.outlive()
	return r.learned(o.h, o.text)
}

// learned releases a lost lock, and judges whether its holder has learned of the loss.
func (r *rig) learned(h *hold, text string) Verdict {
	hello, began := r.profile.Hello, time.Now()
	told := hello.Tells && h.told(tellWithin)
	toldAfter := time.Since(began)
	late := time.Since(h.Deadline())
	err := h.unlock()
	switch {
	case told:
		return passed("%s The client told it of the loss %s later; its release %s.%s", text, humanize.Precise(toldAfter), outcomeText(err), r.fences())
	case hello.Tells:
		return failed("%s The client did not tell it of the loss within %s, although hello says that it tells; its release %s.", text, humanize.Setting(tellWithin), outcomeText(err))
	case err == nil:
		return failed("%s Its release reported success %s after the end of its lease.", text, humanize.Precise(late))
	}
	return passed("%s Its release %s.%s", text, outcomeText(err), r.fences())
}

// fences returns a sentence about the fences of the locks so far, "" if there are none.
func (r *rig) fences() string {
	all := r.all()
	if len(all) < 2 || all[0].Fence() == 0 || all[1].Fence() <= all[0].Fence() {
		return ""
	}
	return fmt.Sprintf(" A resource that checks fences refuses its late write: fence %d is less than %d.", all[0].Fence(), all[1].Fence())
}

// lateUnlock checks what the release of a lost lock does.
func lateUnlock(r *rig) Verdict {
	o := r.outlive()
	released := make(chan error, 1)
	go func() { released <- o.h.unlock() }()
	text := fmt.Sprintf("%s The late release of %s %s.", o.text, o.a.name, resultWithin(short, released))
	refused := r.intruder(o.c, o.later, text)
	if err := o.later.keptUntilUnlock(); err != nil {
		return failed("%s After the late release of %s, the release of %s %s, although its lease was valid.", o.text, o.a.name, o.b.name, outcomeText(err))
	}
	return passed("%s %s", text, refused)
}

// relock lets a client lock again that lost its lock.
func relock(r *rig) Verdict {
	o := r.outlive()
	return passed("%s %s", o.text, r.intruder(o.a, o.later, o.text+" Then "+o.a.name+" asked again."))
}

// partition cuts a holder off.
func partition(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	h := a.mustLock()
	heal := a.cut(false)
	cut := time.Now()
	later, took := r.next(b, cut, "the cut of its holder")
	text := fmt.Sprintf("%s was cut off, and %s got the lock after %s (TTL %s).", a.name, b.name, humanize.Precise(took), humanize.Setting(ttl))
	told := r.profile.Hello.Tells && h.told(tellWithin)
	heal()
	err := h.unlock()
	text += fmt.Sprintf(" After the network worked again, its release %s.", outcomeText(err))
	switch {
	case told:
		text += " The client told it of the loss while it was cut off."
	case r.profile.Hello.Tells:
		return failed("%s The client did not tell it of the loss within %s, although hello says that it tells.", text, humanize.Setting(tellWithin))
	case r.profile.Hello.Renews:
		return failed("%s The library renews, so its holder does not stop at the end of a lease, and the client does not tell of a loss.", text)
	default:
		text += " Its lease had ended before by the valid_ms of the client."
	}
	if err := later.keptUntilUnlock(); err != nil {
		return failed("%s The release of %s %s, although its lease was valid.", text, b.name, outcomeText(err))
	}
	return passed("%s", text)
}
