package clienttest

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// read locks to read, for a step in which no writer has the lock.
func (a *actor) read() *hold {
	h, err := a.lockAs(external.Terms{Read: true, Wait: short})
	if err != nil {
		fail("%s did not get the lock to read within %s, although no writer had it: %v.", a.name, humanize.Setting(short), err)
	}
	return h
}

// readersCrash lets the leases of two readers run out, which began at different times.
func readersCrash(r *rig) Verdict {
	a, b, writer := r.actor(), r.actor(), r.actor()
	r.warm(writer)
	a.read()
	r.pause(r.ttl / 2)
	last := b.read()
	a.freeze()
	b.freeze()
	apart := humanize.Setting(r.ttl / 2)
	_, took := r.next(writer, last.began, "the acquire of the last of two readers, which were frozen")
	return passed("%s read %s after %s, and both were frozen. %s got the lock to write %s after the acquire of %s (TTL %s).",
		b.name, apart, a.name, writer.name, humanize.Precise(took), b.name, humanize.Setting(r.ttl))
}

// writerCrash kills a writer after a reader was refused.
func writerCrash(r *rig) Verdict {
	writer, reader, next := r.actor(), r.actor(), r.actor()
	r.warm(reader, next)
	h := writer.mustLock()
	_, err := reader.lockAs(external.Terms{Read: true, Wait: short})
	if err == nil && h.Valid() {
		r.pause(short)
		return failed("%s got the lock to read while a writer was inside.", reader.name)
	}
	writer.kill()
	_, took := r.next(next, time.Now(), fmt.Sprintf("the crash of the writer %s, beside which the reader %s had asked (it was refused: %v)", writer.name, reader.name, err))
	return passed("%s asked to read while %s wrote: %v. The writer crashed, and another one got the lock after %s (TTL %s).", reader.name, writer.name, err, humanize.Precise(took), humanize.Setting(r.ttl))
}

// readers lets a writer ask while one of two readers still reads.
func readers(r *rig) Verdict {
	a, b, writer := r.actor(), r.actor(), r.actor()
	r.warm(writer)
	for _, last := range []bool{true, false} {
		first, second := a.read(), b.read()
		stays, leaves, which := first, second, "second"
		if !last {
			stays, leaves, which = second, first, "first"
		}
		err := leaves.unlock()
		text := fmt.Sprintf("Two readers had the lock, and the release of the %s %s. Then a writer asked.", which, outcomeText(err))
		r.kept(stays, text+" "+r.intruder(writer, stays, text))
	}
	h, took := r.next(writer, time.Now(), "the release of the last reader")
	reader, err := a.lockAs(external.Terms{Read: true, Wait: short})
	if err == nil && h.Valid() {
		r.pause(short)
		return failed("%s got the lock to read while a writer was inside, with %s of its lease left.", a.name, humanize.Precise(h.Deadline().Sub(reader.began)))
	}
	return passed("Two readers had the lock. A writer was refused while one of them was inside, and got it %s after the last release. A reader was refused beside the writer.", humanize.Precise(took))
}

// two makes the lock one for two clients at once.
func (r *rig) two() {
	r.permits = 2
	r.judgeBy(r.permits)
}

// permits lets a third client ask for two permits.
func permits(r *rig) Verdict {
	r.two()
	a, b, c := r.actor(), r.actor(), r.actor()
	r.warm(a, b, c)
	first, second := a.mustLock(), b.mustLock()
	refused := r.intruder(c, first, "Two clients had the two permits.")
	err := first.unlock()
	_, took := r.next(c, time.Now(), "a permit was given back")
	r.intruder(a, second, fmt.Sprintf("The release of a permit %s, and another client got it. Then a third one asked.", outcomeText(err)))
	return passed("%s It got a permit %s after one was given back.", refused, humanize.Precise(took))
}

// permitsOnNodes lets each of three clients reach three of five nodes.
func permitsOnNodes(r *rig) Verdict {
	r.two()
	var inside []*hold
	all := []*actor{r.actor(), r.actor(), r.actor()}
	r.warm(all...)
	for i, unreachable := range [][]int{{4, 5}, {2, 3}, {1, 4}} {
		a := all[i]
		end := r.fault(a.name, fmt.Sprintf("cut off from the nodes %d and %d", unreachable[0], unreachable[1]))
		for _, node := range unreachable {
			a.net[node-1].Partition()
		}
		h, err := a.lock(short)
		for try := 1; try < mostTries && err != nil && !errors.Is(err, external.ErrHeld); try++ {
			h, err = a.lock(short)
		}
		end()
		switch {
		case err == nil:
			inside = append(inside, h)
		case !errors.Is(err, external.ErrHeld):
			return inconclusive("%s could not ask for a permit: %v.", a.name, err)
		}
	}
	r.pause(short)
	valid := 0
	for _, h := range inside {
		if h.Valid() {
			valid++
		}
	}
	text := fmt.Sprintf("Three clients asked for two permits, each over three of five nodes: %d got one.", len(inside))
	if valid > r.permits {
		return failed("%s All were inside at once.", text)
	}
	return passed("%s", text)
}

// wrongClock lets clients with wrong clocks ask, and have a lock.
func wrongClock(r *rig) Verdict {
	const off = 3 * time.Second
	a, ahead, behind := r.actor(), r.actorAhead(off), r.actorAhead(-off)
	r.warm(a, ahead, behind)
	h := a.mustLock()
	r.intruder(ahead, h, fmt.Sprintf("The clock of %s is %s ahead.", ahead.name, humanize.Setting(off)))
	if err := h.unlock(); err != nil {
		return failed("The clock of %s is %s ahead. It asked for the lock of %s, whose release %s.", ahead.name, humanize.Setting(off), a.name, outcomeText(err))
	}
	h = behind.mustLock()
	if !h.Valid() {
		return failed("The clock of %s is %s behind. It got the lock with a lease that had ended.", behind.name, humanize.Setting(off))
	}
	r.intruder(a, h, fmt.Sprintf("The clock of %s is %s behind.", behind.name, humanize.Setting(off)))
	return passed("A client whose clock is %s ahead was refused while another was inside. Another was refused while one whose clock is %s behind was inside.", humanize.Setting(off), humanize.Setting(off))
}
