package clienttest

import (
	"fmt"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// crash kills a holder.
func crash(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	a.mustLock()
	a.kill()
	_, took := r.next(b, time.Now(), "the crash of its holder")
	return passed("%s got the lock %s after the crash of its holder (TTL %s).", b.name, humanize.Precise(took), humanize.Setting(r.ttl))
}

// leaseEnd freezes holders until their leases end, of several TTLs.
func leaseEnd(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	var all []string
	for _, r.ttl = range []time.Duration{2500 * time.Millisecond, 1500 * time.Millisecond, short} {
		h, err := a.lockBy(time.Now().Add(standardTTL + margin))
		if err != nil {
			all = append(all, fmt.Sprintf("With a TTL of %s, %s did not get a free lock: %v.", humanize.Setting(r.ttl), a.name, err))
			continue
		}
		asked, valid := time.Now(), time.Until(h.Deadline())
		a.freeze()
		next, took := r.next(b, asked.Add(max(valid-r.ttl, 0)), "an acquire by a client that was frozen then")
		all = append(all, fmt.Sprintf("With a TTL of %s, %s got the lock, by its valid_ms for %s, and was frozen; %s got it after %s.",
			humanize.Setting(r.ttl), a.name, humanize.Precise(valid), b.name, humanize.Precise(took)))
		a.thaw()
		if h.Valid() && next.Valid() { // the TTL on the server is shorter
			break
		}
		r.kept(next, strings.Join(all, " "))
		_ = h.unlock() // the tests freeze and late-unlock judge it
	}
	if len(r.all()) == 0 {
		return inconclusive("%s", strings.Join(all, " "))
	}
	return passed("%s", strings.Join(all, " "))
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
		o.a.name, humanize.Precise(o.woken.Sub(frozen)), humanize.Setting(r.ttl), o.b.name, humanize.Precise(took))
	return o
}

// freeze checks that a holder that was frozen learns of the loss.
func freeze(r *rig) Verdict {
	o := r.outlive()
	return r.learned(o.h, tellWithin, o.text)
}

// learned releases a lost lock, and judges whether its holder has learned of the loss: the
// client may tell it within a time.
func (r *rig) learned(h *hold, within time.Duration, text string) Verdict {
	hello, began := r.profile.Hello, time.Now()
	told := hello.Tells && h.told(within)
	toldAfter := time.Since(began)
	late := time.Since(h.Deadline())
	err := h.unlock()
	switch {
	case told:
		return passed("%s The client told it of the loss %s later; its release %s.%s", text, humanize.Precise(toldAfter), outcomeText(err), r.fences())
	case hello.Tells:
		return failed("%s The client did not tell it of the loss within %s, although hello says that it tells; its release %s.", text, humanize.Setting(within), outcomeText(err))
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
	held := r.names()
	text := fmt.Sprintf("%s The late release of %s %s.", o.text, o.a.name, o.h.unlocking().result(short))
	text += r.missing(held)
	refused := r.intruder(o.c, o.later, text)
	r.kept(o.later, text+" "+refused+r.missing(held))
	return passed("%s %s", text, refused)
}

// relock lets a client lock again that lost its lock.
func relock(r *rig) Verdict {
	o := r.outlive()
	return passed("%s %s", o.text, r.intruder(o.a, o.later, o.text+" Then "+o.a.name+" asked again."))
}

// lateExtend lets a client renew the lock that it lost, while another one has it.
func lateExtend(r *rig) Verdict {
	o := r.outlive()
	text := o.text
	if r.profile.Extends {
		err := o.h.extend()
		if text += fmt.Sprintf(" Then an extension by %s %s.", o.a.name, outcomeText(err)); err == nil {
			return failed("%s But %s had the lock.", text, o.b.name)
		}
	}
	if !r.profile.Hello.Renews {
		refused := r.intruder(o.c, o.later, text)
		r.kept(o.later, text+" "+refused)
		return passed("%s %s", text, refused)
	}
	r.pause(r.ttl / 2) // a renewal by the first client falls into it
	text += " " + r.intruder(o.c, o.later, text+" The library renews.")
	o.b.kill()
	_, took := r.next(o.c, time.Now(), fmt.Sprintf("the crash of %s, while %s, which had lost the lock to it, ran on and the library renews", o.b.name, o.a.name))
	return passed("%s %s crashed, and %s got the lock after %s.", text, o.b.name, o.c.name, humanize.Precise(took))
}

// secondHold lets a client release a hold that it lost when it has another one.
func secondHold(r *rig) Verdict {
	o := r.outlive()
	r.kept(o.later, o.text)
	o.h.leave(time.Now())
	if r.profile.Hello.Tells {
		o.h.told(tellWithin)
	}
	second, held := o.a.mustLock(), r.names()
	text := fmt.Sprintf("%s It released, and %s locked again. Then the late release of its first hold %s.", o.text, o.a.name, o.h.unlocking().result(short))
	text += r.missing(held)
	refused := r.intruder(o.c, second, text)
	r.kept(second, text+" "+refused+r.missing(held))
	return passed("%s %s", text, refused)
}

// partition cuts a holder off.
func partition(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	h := a.mustLock()
	heal := a.cut(false)
	cut := time.Now()
	later, took := r.next(b, cut, "the cut of its holder")
	text := fmt.Sprintf("%s was cut off, and %s got the lock after %s (TTL %s).", a.name, b.name, humanize.Precise(took), humanize.Setting(r.ttl))
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
	r.kept(later, text)
	return passed("%s", text)
}
