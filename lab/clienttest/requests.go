package clienttest

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// cancelled is start for a request that the test cancels.
func (a *actor) cancelled(wait time.Duration) (request *asked, cancel func()) {
	over := make(chan struct{})
	return inBackground(func(q *asked) { q.h, q.err = a.lockAs(external.Terms{Wait: wait, Cancel: over}) }), func() { close(over) }
}

// ended waits until a cancelled request is over, and returns what it answered. If it got the
// lock, it releases it.
func (q *asked) ended(a *actor, text string) string {
	if !q.within(tellWithin) {
		fail("%s %s did not answer the cancelled request within %s.", text, a.name, humanize.Setting(tellWithin))
	}
	if q.err != nil {
		return fmt.Sprintf("%s %s answered: %v.", text, a.name, q.err)
	}
	return fmt.Sprintf("%s %s got the lock; its release %s.", text, a.name, outcomeText(q.h.unlock()))
}

// cancel cancels the request of a waiter, and one whose reply is under way.
func cancel(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	r.warm(a, b, c)
	h := a.mustLock()
	waiter, stop := b.cancelled(r.ttl)
	r.pause(short) // for which it waits
	stop()
	text := waiter.ended(b, "A waiter was cancelled.")
	r.kept(h, text)
	r.pause(short) // in which the waiter must not get the lock
	took := r.free(c, text+" The holder released.")
	text += fmt.Sprintf(" The holder released, and %s got the lock %s later.", c.name, humanize.Precise(took))
	r.last(c).mustUnlock()

	heal := b.cut(true)
	defer heal()
	before := r.keys()
	granted, stop := b.cancelled(r.ttl)
	r.awaitKey(before)
	stop()
	r.pause(short / 3) // in which the client reads the request
	heal()
	text = granted.ended(b, text+" A request was cancelled while its reply was under way.")
	return passed("%s %s got the lock %s later.", text, c.name, humanize.Precise(r.free(c, text)))
}

// last returns the newest hold of a client.
func (r *rig) last(a *actor) *hold {
	all := r.all()
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].actor == a {
			return all[i]
		}
	}
	giveUp("%s has no hold", a.name)
	return nil
}

// unlockRetry holds back the second try of a release until the client has locked again.
func unlockRetry(r *rig) Verdict {
	a, c := r.actor(), r.actor()
	r.warm(a, c)
	h, free := a.mustLock(), r.keys()-1
	heal := a.cut(true)
	defer heal()
	release := h.unlocking()
	if !r.await(tellWithin, func() bool { return r.keys() <= free }) {
		return inconclusive("The release did not delete a key on the server within %s.", humanize.Setting(tellWithin))
	}
	retried := a.tap.hold(1, func() {})
	defer a.tap.pass(nil)
	a.lose(heal)
	if !r.awaitReached(retried, release.done) {
		return passed("The reply to a release was lost, and it was not tried again: it %s.", outcomeText(release.err))
	}
	second, err := a.lock(short)
	if err != nil {
		return Verdict{Outcome: Observed, Evidence: fmt.Sprintf("The reply to a release was lost, and the client tried it again. It did not lock meanwhile: %v.", err)}
	}
	a.tap.pass(nil)
	text := fmt.Sprintf("The reply to a release by %s was lost. The client locked again, and then the second try of the release arrived; the release %s.", a.name, release.result(short))
	refused := r.intruder(c, second, text)
	r.kept(second, text+" "+refused)
	return passed("%s %s", text, refused)
}

// restart starts a client with the name of one that has the lock.
func restart(r *rig) Verdict {
	a := r.actor()
	h := a.mustLock()
	a.freeze()
	again, err := r.startActor(0, a.name)
	if err == nil {
		_, err = again.process.Hello(r.ctx)
	}
	must(err, "%v")
	text := fmt.Sprintf("%s was frozen, and %s started with the same name.", a.name, again.name)
	text += " " + r.intruder(again, h, text)
	a.thaw()
	r.kept(h, text)
	return passed("%s %s released, and %s got the lock %s later.", text, a.name, again.name, humanize.Precise(r.free(again, text)))
}

// lateGrant freezes a client between the grant of a lock and its answer.
func lateGrant(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	r.warm(a, b, c)
	heal := a.cut(true)
	defer heal()
	before := r.keys()
	request := a.start(r.ttl + margin)
	r.awaitKey(before)
	granted := time.Now()
	a.freeze()
	heal()
	later, took := r.next(b, granted, "a grant to a client that was frozen before it read the reply")
	a.thaw()
	text := fmt.Sprintf("%s was frozen before it read the reply to its acquire, and %s got the lock %s after the grant (TTL %s). Then %s went on",
		a.name, b.name, humanize.Precise(took), humanize.Setting(r.ttl), a.name)
	if request.within(short) {
		text += fmt.Sprintf("; it answered: %s.", answered(request.err))
	} else {
		text += "; it had not answered after " + humanize.Setting(short) + "."
	}
	if h := request.h; request.err == nil && h != nil {
		if h.Valid() && later.Valid() {
			r.together(h)
			fail("%s Its lease was valid for another %s.", text, humanize.Precise(time.Until(h.Deadline())))
		}
		text += fmt.Sprintf(" Its lease had ended; its release %s.", h.unlocking().result(short))
	}
	refused := r.intruder(c, later, text)
	r.kept(later, text+" "+refused)
	return passed("%s %s", text, refused)
}

// waitLimit delays the command of an acquire until the client has given up.
func waitLimit(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	asked := time.Now()
	sent := a.tap.hold(1, func() {})
	request := a.start(short)
	defer a.tap.pass(nil)
	if !r.awaitReached(sent, request.done) {
		return inconclusive("An acquire sent no command.")
	}
	if !request.within(short + 2*tellWithin) {
		a.tap.pass(nil)
		<-request.done
		return Verdict{Outcome: Observed, Evidence: fmt.Sprintf("The command of an acquire that might wait for %s was delayed, and the client did not give up within %s. It answered: %s.",
			humanize.Setting(short), humanize.Setting(short+2*tellWithin), answered(request.err))}
	}
	gaveUp := time.Since(asked)
	if request.err == nil {
		return inconclusive("%s got the lock without its first command.", a.name)
	}
	a.tap.pass(nil)
	arrived := time.Now()
	text := fmt.Sprintf("%s gave up an acquire after %s, before its command reached the server: %v. Then the command arrived", a.name, humanize.Precise(gaveUp), request.err)
	r.pause(short / 3) // in which the server runs it
	_, took := r.next(b, arrived, fmt.Sprintf("a command of an acquire that %s had given up", a.name))
	v := passed("%s, and %s got the lock %s later (TTL %s).", text, b.name, humanize.Precise(took), humanize.Setting(r.ttl))
	if took > r.ttl/2 {
		v.Outcome = Observed // the server granted it, and nobody had it until its TTL
	}
	return v
}

// shortTTL works with a short TTL. A failure on a machine that was too slow for it does not count.
func shortTTL(r *rig) Verdict {
	over := make(chan struct{})
	slowest := make(chan time.Duration, 1)
	go func() { slowest <- gap(over) }()
	v := r.steps(shortWork)
	close(over)
	if late := <-slowest; v.Outcome == Fail && late > r.ttl/6 {
		return inconclusive("%s But the machine was too slow for a TTL of %s: a timer was %s late.", v.Evidence, humanize.Setting(r.ttl), humanize.Precise(late))
	}
	return v
}

// gap returns how late a timer was at most, until over is closed.
func gap(over <-chan struct{}) (late time.Duration) {
	const every = 5 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-over:
			return late
		}
		now := time.Now()
		late, last = max(late, now.Sub(last)-every), now
	}
}

func shortWork(r *rig) Verdict {
	if r.profile.renewed() {
		return renewal(r)
	}
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	var text string
	for range 3 {
		h := a.mustLock()
		left := time.Until(h.Deadline())
		waiter := b.start(r.ttl + margin)
		r.pause(r.ttl / 3)
		err := h.unlock()
		<-waiter.done
		text = fmt.Sprintf("With a TTL of %s, %s got the lock, by its valid_ms for %s, worked for a third of the TTL, and its release %s.", humanize.Setting(r.ttl), a.name, humanize.Precise(left), outcomeText(err))
		switch {
		case errors.Is(err, external.ErrLost) && time.Now().Before(h.Deadline()):
			return failed("%s", text)
		case waiter.err != nil:
			return failed("%s %s, which waited, did not get the lock: %v.", text, b.name, waiter.err)
		}
		_ = waiter.h.unlock() // its lease may have ended
	}
	return passed("%s A waiter got it. So it was three times.", text)
}
