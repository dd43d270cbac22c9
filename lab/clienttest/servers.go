package clienttest

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
	if n, err := r.admin[0].Do(r.ctx, "wait", 1, (r.ttl / 3).Milliseconds()).Int64(); err != nil || n < 1 {
		return inconclusive("The replica did not receive the lock in time: %v.", err)
	}
	r.failOver(true)
	text := "A replica that had the lock took the place of its master."
	text += " " + r.intruder(b, h, text)
	a.reconnect()
	err := h.unlock()
	text += fmt.Sprintf(" The release of %s, after it was connected again, %s.", a.name, outcomeText(err))
	switch {
	case !time.Now().Before(h.Deadline()):
		return inconclusive("%s But its lease had ended.", text)
	case err != nil:
		return failed("%s", text)
	}
	return passed("%s", text)
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
	must(err, "the failover failed: %v")
	r.entry.lead(replica.Addr())
}

// failoverBehind replaces a master by a replica that does not have the lock.
func failoverBehind(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	if err := r.group.Promote(r.ctx, r.group.Replicas()[0]); err != nil { // from now on it receives nothing
		return inconclusive("%v", err)
	}
	h, err := a.lock(short)
	if err != nil {
		return passed("The client does not get a lock while its master has no replica in sync: %v.", err)
	}
	r.wipe()
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
		must(r.nodes.Down(n), "%v")
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
		must(r.nodes.Up(r.ctx, n, empty), "%v")
	}
}

func nodeName(n int) string { return fmt.Sprintf("node %d", n) }

// warm lets clients lock once, so that they are connected to all nodes.
func (r *rig) warm(actors ...*actor) {
	for _, a := range actors {
		a.mustLock().mustUnlock()
	}
}

// majority checks that clients lock although some nodes do not answer.
func (r *rig) majority(a, b *actor, what string) Verdict {
	began := time.Now()
	h, err := a.lock(r.ttl + margin)
	if err != nil {
		return failed("With %s, %s did not get the lock within %s (TTL %s): %v.", what, a.name, humanize.Precise(time.Since(began)), humanize.Setting(r.ttl), err)
	}
	took := h.began.Sub(began)
	refused := r.intruder(b, h, "There were "+what+".")
	began = time.Now()
	err = h.unlock()
	if errors.Is(err, external.ErrLost) && time.Now().Before(h.Deadline()) {
		return failed("With %s, the release of %s %s.", what, a.name, outcomeText(err))
	}
	_, next := r.next(b, began, "a release with "+what)
	return passed("With %s, %s got the lock after %s. %s The release %s, and %s got it within %s.", what, a.name, humanize.Precise(took), refused, outcomeText(err), b.name, humanize.Precise(next))
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
	left := r.admin[2].DBSize(r.ctx).Val() + r.admin[3].DBSize(r.ctx).Val()
	r.up(false, 5)
	end()
	took := r.free(b, fmt.Sprintf("With 3 of 5 nodes down, %s asked the other two and did not get the lock (%v). Then these two had %s. One node came back, and %s needs it and both that %s had asked.",
		a.name, err, humanize.Plural(left, "key"), b.name, a.name))
	return passed("With 3 of 5 nodes down, %s did not get the lock (%v). When one of them was back, %s got it after %s, from that one and those that %s had asked.", a.name, err, b.name, humanize.Precise(took), a.name)
}

func nodeEmpty(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	end := r.down(4, 5)
	h := a.mustLock()
	r.up(false, 4, 5)
	end()
	end = r.down(2)
	r.up(true, 2)
	end()
	r.wipe()
	text := fmt.Sprintf("%s got the lock on 3 of 5 nodes, the others came back, and one of the three came back without its data.", a.name)
	other, err := b.lockBy(time.Now().Add(short))
	if err != nil {
		return passed("%s %s did not get the lock within %s: %v.", text, b.name, humanize.Setting(short), err)
	}
	return Verdict{Outcome: Observed, Evidence: fmt.Sprintf("%s %s got the lock, while the lease of %s had %s left.", text, b.name, a.name, humanize.Precise(h.Deadline().Sub(other.began)))}
}

// nodesLost deletes a lock on a majority of nodes.
func nodesLost(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	h := a.mustLock()
	r.wipe()
	for n := 1; n <= 3; n++ {
		must(r.admin[n-1].FlushAll(r.ctx).Err(), "%v")
		r.note(nodeName(n), "FLUSHALL")
	}
	text := fmt.Sprintf("%s had the lock on 5 nodes, and 3 of them lost it.", a.name)
	if r.profile.Extends {
		err := h.extend()
		text += fmt.Sprintf(" An extension %s.", outcomeText(err))
		if err == nil { // it may have taken the lock on the 3 nodes again
			if _, err := b.lock(short); err != nil {
				return passed("%s Then %s did not get the lock: %v.", text, b.name, err)
			}
			return failed("%s Then %s got the lock.", text, b.name)
		}
	}
	_, took := r.next(b, time.Now(), "3 of 5 nodes lost the lock")
	text += fmt.Sprintf(" %s got the lock after %s, which no lock prevents.", b.name, humanize.Precise(took))
	return r.learned(h, r.ttl+tellWithin, text)
}

func nodeFrozen(r *rig) Verdict {
	a, b := r.actor(), r.actor()
	r.warm(a, b)
	end := r.fault(nodeName(3), "frozen")
	must(r.nodes.Freeze(3), "%v")
	defer func() {
		end()
		_ = r.nodes.Continue(3)
	}()
	return r.majority(a, b, "1 of 5 nodes frozen")
}
