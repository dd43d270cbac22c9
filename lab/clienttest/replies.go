package clienttest

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
)

// asked is a request that runs.
type asked struct {
	done chan struct{}
	h    *hold // of an acquire
	err  error
}

func inBackground(request func(*asked)) *asked {
	q := &asked{done: make(chan struct{})}
	go func() {
		defer close(q.done)
		request(q)
	}()
	return q
}

// within waits for the end of the request, for the time d at most, and reports whether it has ended.
func (q *asked) within(d time.Duration) bool {
	select {
	case <-q.done:
		return true
	case <-time.After(d):
		return false
	}
}

// start asks for the lock and does not wait for the result.
func (a *actor) start(wait time.Duration) *asked {
	return inBackground(func(q *asked) { q.h, q.err = a.lock(wait) })
}

// lostAcquire loses the reply to an acquire by a client that still asks when its connection
// breaks.
func lostAcquire(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b) // so that it has a connection
	heal := a.cut(true)
	defer heal()
	before := r.keys()
	request := a.start(r.ttl + margin/2)
	r.awaitKey(before)
	granted := time.Now()
	r.note("server", "the lock is granted")
	r.pause(r.ttl / 2)
	a.lose(heal)
	text := fmt.Sprintf("The reply to an acquire by %s was lost, and %s later its connection broke.", a.name, humanize.Setting(r.ttl/2))
	<-request.done
	free := granted.Add(r.ttl)
	switch h := request.h; {
	case h != nil && h.Valid():
		free = later(free, h.Deadline())
		a.freeze() // a library that renews would keep the lock
		text += fmt.Sprintf(" %s then got the lock, by its valid_ms for %s, and was frozen.", a.name, humanize.Precise(h.Deadline().Sub(h.began)))
	case h != nil:
		free = later(free, time.Now())
		text += fmt.Sprintf(" %s then got the lock, with a lease that had ended; its release %s.", a.name, outcomeText(h.unlock()))
	default:
		text += fmt.Sprintf(" The result of %s: %v.", a.name, request.err)
	}
	other, err := b.lockBy(free.Add(margin))
	if err != nil {
		return failed("%s %s did not get the lock within %s after the lost acquire (TTL %s): %v.", text, b.name, humanize.Precise(time.Since(granted)), humanize.Setting(r.ttl), err)
	}
	r.together(other)
	return passed("%s %s got the lock %s after the lost acquire (TTL %s).", text, b.name, humanize.Precise(other.began.Sub(granted)), humanize.Setting(r.ttl))
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// awaitKey waits until a server has more keys than before a client asked it.
func (r *rig) awaitKey(before int64) {
	if !r.await(tellWithin, func() bool { return r.keys() > before }) {
		giveUp("The request did not create a key on the server within %s.", humanize.Setting(tellWithin))
	}
}

// slowAcquire lets the replies to an acquire take long.
func slowAcquire(r *rig) Verdict { return r.slow(500*time.Millisecond, 200*time.Millisecond) }

// nodesSlow is slowAcquire with five nodes, which clients usually ask with a short limit.
func nodesSlow(r *rig) Verdict { return r.slow(200*time.Millisecond, 60*time.Millisecond) }

// slow delays the replies to an acquire by each of the delays, until the client gets the
// lock, and then freezes the client.
func (r *rig) slow(delays ...time.Duration) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	text := ""
	for _, delay := range delays {
		end := r.fault(a.name, "each reply takes "+humanize.Setting(delay))
		for _, n := range a.net {
			n.DelayReplies(func() time.Duration { return delay })
		}
		asked := time.Now()
		h, err := a.lock(r.ttl / 2)
		end()
		for _, n := range a.net {
			n.Thaw()
		}
		text += fmt.Sprintf("Each reply to %s took %s", a.name, humanize.Setting(delay))
		if err != nil {
			text += fmt.Sprintf(", and it did not get a free lock: %v. ", err)
			_, _ = r.next(b, asked, "an acquire that failed because each reply took "+humanize.Setting(delay))
			_ = r.all()[len(r.all())-1].unlock()
			continue
		}
		valid := h.Deadline().Sub(h.began)
		a.freeze()
		_, took := r.next(b, h.began, "an acquire by a client that was frozen then")
		return passed("%s. It got the lock after %s, by its valid_ms for %s from then on (TTL %s), and was frozen; %s got the lock %s after the acquire began.",
			text, humanize.Precise(h.began.Sub(asked)), humanize.Precise(valid), humanize.Setting(r.ttl), b.name, humanize.Precise(took+h.began.Sub(asked)))
	}
	return Verdict{Outcome: Observed, Evidence: text + "So the rest of a lease was not tested."}
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
	released := h.unlocking()
	later, took := r.next(b, began, "a release whose reply was lost")
	a.lose(heal) // many clients send their request again
	text := fmt.Sprintf("%s got the lock %s after a release whose reply was lost. When its connection broke, the release %s.", b.name, humanize.Precise(took), released.result(r.ttl/2))
	return passed("%s %s", text, r.intruder(c, later, text))
}

// result describes the result of a release, for which it waits for the time d. A library may
// repeat a refused release for seconds, in which the lease of the next holder would end.
func (q *asked) result(d time.Duration) string {
	if q.within(d) {
		return outcomeText(q.err)
	}
	return "had no result after " + humanize.Setting(d)
}

// scriptFlush makes the server forget its scripts.
func scriptFlush(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	flush := func() {
		for _, rdb := range r.admin {
			must(rdb.ScriptFlush(r.ctx).Err(), "SCRIPT FLUSH failed: %v")
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
		told = h.told(r.ttl + tellWithin - time.Since(began))
		text += fmt.Sprintf(" The client of %s %s %s after FLUSHALL.", a.name, map[bool]string{true: "told it of the loss", false: "had not told it of the loss"}[told], humanize.Precise(time.Since(began)))
	}
	if !later.Valid() { // its lease is over, so it locks again for the rest of the test
		_ = later.unlock()
		later = b.mustLock()
	}
	released := h.unlocking() // it may be repeated for longer than the lease of b
	_ = released.result(short)
	refused := r.intruder(c, later, text+" Then "+a.name+" released.")
	<-released.done
	err := released.err
	text += fmt.Sprintf(" Its release %s. %s", outcomeText(err), refused)
	if !told && (r.profile.Hello.Tells || err == nil) {
		return failed("%s", text)
	}
	return passed("%s", text)
}

// deleteAll deletes all keys of all servers, after which no lock can keep its promise to
// those that are inside.
func (r *rig) deleteAll(label string) {
	r.wipe()
	var errs []error
	for _, rdb := range r.admin {
		errs = append(errs, rdb.FlushAll(r.ctx).Err())
	}
	must(errors.Join(errs...), "%s failed: %v", label)
	r.note("server", label)
}
