package certify

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// failover replaces a master by a replica that has the lock.
func failover(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	h := a.mustLock()
	if n, err := r.admin[0].Wait(r.ctx, 1, ttl/2).Result(); err != nil || n < 1 {
		return Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("The replica did not receive the lock in time: %v.", err)}
	}
	r.failOver(true)
	text := r.intruder(b, h, "A replica that had the lock took the place of its master.")
	valid, err := h.Valid(), h.unlock()
	if valid && errors.Is(err, external.ErrLost) { // another error may be that of the broken connection
		return failed("After a failover to a replica that had the lock, the release of %s %s, although its lease was valid.", a.name, outcomeText(err))
	}
	return passed("After a failover to a replica that had the lock, %s The release of %s %s.", text, a.name, outcomeText(err))
}

// failOver ends the master and leads the clients to the replica. Promote: the replica is
// one yet.
func (r *rig) failOver(promote bool) {
	end := r.fault("server", "failover")
	defer end()
	replica := r.group.Replicas()[0]
	err := r.group.Master().Kill()
	if err == nil && promote {
		err = r.group.Promote(r.ctx, replica)
	}
	if err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: "the failover failed: " + err.Error()}})
	}
	r.entry.lead(replica.Addr())
}

// failoverBehind replaces a master by a replica that does not have the lock.
func failoverBehind(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	if err := r.group.Promote(r.ctx, r.group.Replicas()[0]); err != nil { // from now on it receives nothing
		return Verdict{Outcome: Inconclusive, Evidence: err.Error()}
	}
	h, err := a.lock(short)
	if err != nil {
		return passed("The client does not get a lock while its master has no replica in sync: %v.", err)
	}
	r.oracle.Wipe(-1, wipe, time.Now())
	r.failOver(false)
	began := time.Now()
	other, err := b.lock(short)
	if err != nil {
		return passed("After a failover to a replica without the lock, %s did not get the lock within %s: %v.", b.name, humanize.Setting(short), err)
	}
	left := h.Deadline().Sub(other.began)
	return Verdict{Outcome: Observed, Evidence: fmt.Sprintf("After a failover to a replica without the lock, %s got the lock after %s, while the lease of %s had %s left. The release of %s %s.",
		b.name, humanize.Precise(other.began.Sub(began)), a.name, humanize.Precise(left), a.name, outcomeText(h.unlock()))}
}

// down kills nodes, counted from 1.
func (r *rig) down(nodes ...int) (end func()) {
	var ends []func()
	for _, n := range nodes {
		ends = append(ends, r.fault(nodeName(n), "down"))
		if err := r.nodes.Down(n); err != nil {
			panic(stop{Verdict{Outcome: Inconclusive, Evidence: err.Error()}})
		}
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// up starts nodes again.
func (r *rig) up(empty bool, nodes ...int) {
	for _, n := range nodes {
		if err := r.nodes.Up(r.ctx, n, empty); err != nil {
			panic(stop{Verdict{Outcome: Inconclusive, Evidence: err.Error()}})
		}
	}
}

func nodeName(n int) string { return fmt.Sprintf("node %d", n) }

// warm lets clients lock once, so that they are connected to all nodes.
func (r *rig) warm(actors ...*actor) {
	for _, a := range actors {
		if err := a.mustLock().unlock(); err != nil {
			panic(stop{Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("The release of a lock %s.", outcomeText(err))}})
		}
	}
}

// majority checks that clients lock although some nodes do not answer.
func (r *rig) majority(a, b *actor, what string) Verdict {
	began := time.Now()
	h, err := a.lock(ttl + margin)
	if err != nil {
		return failed("With %s, %s did not get the lock within %s (TTL %s): %v.", what, a.name, humanize.Precise(time.Since(began)), humanize.Setting(ttl), err)
	}
	took := h.began.Sub(began)
	refused := r.intruder(b, h, "There were "+what+".")
	began = time.Now()
	err = h.unlock()
	if err != nil {
		return failed("With %s, the release of %s %s.", what, a.name, outcomeText(err))
	}
	_, next := r.next(b, began, "a release with "+what)
	return passed("With %s, %s got the lock after %s. %s After the release, %s got it within %s.", what, a.name, humanize.Precise(took), refused, b.name, humanize.Precise(next))
}

func twoDown(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	defer r.down(1, 4)()
	return r.majority(a, b, "2 of 5 nodes down")
}

func threeDown(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	end := r.down(1, 2, 5)
	h, err := a.lock(time.Second)
	if err == nil {
		return failed("With 3 of 5 nodes down, %s got the lock, with a lease of %s.", a.name, humanize.Precise(h.Deadline().Sub(h.began)))
	}
	end()
	r.up(false, 1, 2, 5)
	_, took := r.next(b, time.Now(), "the restart of the nodes")
	return passed("With 3 of 5 nodes down, %s did not get the lock (%v). When they were back, %s got it after %s.", a.name, err, b.name, humanize.Precise(took))
}

func nodeEmpty(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	h := a.mustLock()
	end := r.down(2)
	r.up(true, 2)
	end()
	refused := r.intruder(b, h, "1 of 5 nodes came back without its data.")
	return passed("After 1 of 5 nodes had come back without its data, %s", refused)
}

func nodeFrozen(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	end := r.fault(nodeName(3), "frozen")
	if err := r.nodes.Freeze(3); err != nil {
		return Verdict{Outcome: Inconclusive, Evidence: err.Error()}
	}
	defer func() {
		end()
		_ = r.nodes.Continue(3)
	}()
	return r.majority(a, b, "1 of 5 nodes frozen")
}
