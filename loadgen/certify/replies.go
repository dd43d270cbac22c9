package certify

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
)

// asked is a request for a lock that runs.
type asked struct {
	done chan struct{}
	h    *hold
	err  error
}

// start asks for the lock and does not wait for the result.
func (a *actor) start(wait time.Duration) *asked {
	q := &asked{done: make(chan struct{})}
	go func() {
		defer close(q.done)
		q.h, q.err = a.lock(wait)
	}()
	return q
}

// lostAcquire holds back the reply to an acquire.
func lostAcquire(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b) // so that it has a connection
	heal := a.cut(true)
	defer heal()
	before := r.keys()
	request := a.start(short)
	granted := r.await(tellWithin, func() bool { return r.keys() > before })
	if !granted {
		return Verdict{Outcome: Inconclusive, Evidence: "The request did not create a key on the server within " + humanize.Setting(tellWithin) + "."}
	}
	r.note("server", "the lock is granted")
	h, took := r.next(b, time.Now(), "an acquire whose reply was lost")
	a.lose(heal)
	<-request.done
	answer := "the lock, with a lease that had ended"
	if request.h == nil {
		answer = request.err.Error()
	} else if request.h.Valid() && h.Valid() {
		return failed("%s got the lock %s after the lost acquire, and the client of %s reports a valid lease, too, after its connection broke.", b.name, humanize.Precise(took), a.name)
	}
	return passed("%s got the lock %s after an acquire whose reply was lost (TTL %s). When its connection broke, %s answered: %s.", b.name, humanize.Precise(took), humanize.Setting(ttl), a.name, answer)
}

// keys returns the number of keys on all servers.
func (r *rig) keys() int64 {
	var sum int64
	for _, rdb := range r.admin {
		sum += rdb.DBSize(r.ctx).Val()
	}
	return sum
}

// await waits until the condition is true, and reports whether it was in time.
func (r *rig) await(within time.Duration, condition func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); r.pause(5 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return condition()
}

// lostRelease holds back the reply to a release.
func lostRelease(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	r.warm(a, b) // a script that the server does not know takes two requests
	h := a.mustLock()
	heal := a.cut(true)
	defer heal()
	began := time.Now()
	released := make(chan error, 1)
	go func() { released <- h.unlock() }()
	later, took := r.next(b, began, "a release whose reply was lost")
	a.lose(heal) // many clients send their request again
	text := fmt.Sprintf("%s got the lock %s after a release whose reply was lost. When its connection broke, the release %s.", b.name, humanize.Precise(took), resultWithin(ttl/2, released))
	return passed("%s %s", text, r.intruder(c, later, text))
}

// resultWithin describes the result of a release. A library may repeat a refused release
// for seconds, in which the lease of the next holder would end.
func resultWithin(d time.Duration, released <-chan error) string {
	select {
	case err := <-released:
		return outcomeText(err)
	case <-time.After(d):
		return "had no result after " + humanize.Setting(d)
	}
}

// waiterKilled kills the first of two waiters.
func waiterKilled(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	h := a.mustLock()
	first := b.start(ttl + margin)
	r.pause(short) // for which it waits
	second := c.start(2*ttl + margin)
	r.pause(short)
	b.kill()
	<-first.done
	if !h.Valid() {
		return Verdict{Outcome: Inconclusive, Evidence: "The lease of the holder ended before the waiter was killed: the machine is too slow."}
	}
	began := time.Now()
	err := h.unlock()
	<-second.done
	took := time.Since(began)
	if second.err != nil || took > ttl+margin {
		return failed("A waiter was killed, and the holder released (the release %s). The other waiter did not get the lock within %s (TTL %s): %v.",
			outcomeText(err), humanize.Precise(took), humanize.Setting(ttl), second.err)
	}
	return passed("The other waiter got the lock %s after the release (TTL %s).", humanize.Precise(took), humanize.Setting(ttl))
}

// scriptFlush makes the server forget its scripts.
func scriptFlush(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	flush := func() {
		for _, rdb := range r.admin {
			if err := rdb.ScriptFlush(r.ctx).Err(); err != nil {
				panic(stop{Verdict{Outcome: Inconclusive, Evidence: "SCRIPT FLUSH failed: " + err.Error()}})
			}
		}
		r.note("server", "SCRIPT FLUSH")
	}
	r.warm(a)
	flush()
	h, err := a.lock(short)
	if err != nil {
		return failed("After SCRIPT FLUSH the client that had locked before could not lock: %v.", err)
	}
	flush()
	began := time.Now()
	err = h.unlock()
	if err != nil {
		return failed("After SCRIPT FLUSH the release %s.", outcomeText(err))
	}
	_, took := r.next(b, began, "a release after SCRIPT FLUSH")
	return passed("An acquire and a release right after SCRIPT FLUSH succeeded, and %s got the lock %s later.", b.name, humanize.Precise(took))
}

// flushAll deletes all keys while a client holds the lock.
func flushAll(r *rig) Verdict {
	a, b, c := r.actor(), r.actor(), r.actor()
	h := a.mustLock()
	r.deleteAll("FLUSHALL")
	began := time.Now()
	later, took := r.next(b, began, "FLUSHALL")
	text := fmt.Sprintf("After FLUSHALL %s got the lock after %s, which no lock prevents.", b.name, humanize.Precise(took))
	told := false
	if r.profile.Hello.Tells {
		told = h.told(ttl + tellWithin - time.Since(began))
		text += fmt.Sprintf(" The client of %s %s %s after FLUSHALL.", a.name, map[bool]string{true: "told it of the loss", false: "had not told it of the loss"}[told], humanize.Precise(time.Since(began)))
	}
	if !later.Valid() { // its lease is over, so it locks again for the rest of the test
		_ = later.unlock()
		later = b.mustLock()
	}
	released := make(chan error, 1)
	go func() { released <- h.unlock() }() // it may be repeated for longer than the lease of b
	select {
	case err := <-released:
		released <- err
	case <-time.After(short):
	}
	refused := r.intruder(c, later, text+" Then "+a.name+" released.")
	err := <-released
	text += fmt.Sprintf(" Its release %s. %s", outcomeText(err), refused)
	if !told && (r.profile.Hello.Tells || err == nil) {
		return failed("%s", text)
	}
	return passed("%s", text)
}

// deleteAll deletes all keys of all servers, after which no lock can keep its promise to
// those that are inside.
func (r *rig) deleteAll(label string) {
	r.oracle.Wipe(-1, wipe, time.Now())
	var errs []error
	for _, rdb := range r.admin {
		errs = append(errs, rdb.FlushAll(r.ctx).Err())
	}
	if err := errors.Join(errs...); err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: label + " failed: " + err.Error()}})
	}
	r.note("server", label)
}
