package clienttest

import (
	"fmt"

	"locktop/internal/humanize"
)

// twice lets a client lock, and lock again what it has.
func (a *actor) twice() (outer, inner *hold) {
	outer = a.mustLock()
	inner, err := a.again(short)
	if err != nil {
		fail("%s had the lock, and did not get it again, although hello names the kind reentrant: %v.", a.name, err)
	}
	return outer, inner
}

// reentrant releases the two holds of a client, one after the other.
func reentrant(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(b)
	outer, inner := a.twice()
	err := inner.unlock()
	text := fmt.Sprintf("%s had locked twice. Its first release %s.", a.name, outcomeText(err))
	text += " " + r.intruder(b, outer, text)
	r.kept(outer, text)
	text += " Its second release reported success."
	took := r.free(b, text)
	return passed("%s %s got the lock %s later.", text, b.name, humanize.Precise(took))
}

// lostMeanwhile loses the reply to a request of the client: its connections break after the
// request.
func (a *actor) lostMeanwhile(request func()) {
	heal := a.cut(true)
	defer heal()
	a.tap.watch()
	running := inBackground(func(*asked) { request() })
	a.rig.await(tellWithin, func() bool { return len(a.tap.seen()) > 0 })
	a.rig.pause(short / 3) // in which the server runs it
	a.lose(heal)
	<-running.done
}

// reentrantLost loses the replies to a second acquire and to a first release.
func reentrantLost(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(b)
	var inner *hold
	var err error
	outer := a.mustLock()
	a.lostMeanwhile(func() { inner, err = a.again(r.ttl / 2) })
	text := fmt.Sprintf("%s had locked, and the reply to its second acquire was lost; it answered: %s.", a.name, answered(err))
	if err == nil {
		text += fmt.Sprintf(" Its first release %s.", outcomeText(inner.unlock()))
		text += " " + r.intruder(b, outer, text)
		r.kept(outer, text)
		text += " So did the second one."
		text += fmt.Sprintf(" %s got the lock %s later.", b.name, humanize.Precise(r.free(b, text)))
	}
	r.deleteAll("all keys are deleted")
	for _, h := range r.all() {
		_ = h.unlock()
	}

	outer, inner = a.twice()
	released := fmt.Sprintf("%s had locked twice, and the reply to its first release was lost.", a.name)
	a.lostMeanwhile(func() { err = inner.unlock() })
	released += fmt.Sprintf(" When its connection broke, the release %s.", outcomeText(err))
	released += " " + r.intruder(b, outer, released)
	r.kept(outer, released)
	if err == nil {
		released += fmt.Sprintf(" After the second release %s got the lock within %s.", b.name, humanize.Precise(r.free(b, released+" Its second release reported success.")))
	}
	return passed("%s %s", text, released)
}

// answered describes the answer to an acquire.
func answered(err error) string {
	if err == nil {
		return "ok"
	}
	return err.Error()
}
