package certify

import (
	"errors"
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/external"
)

// Tests returns all tests, in the order of the card.
func Tests() []Test {
	return []Test{
		{
			Name: "hot-key", Title: "one holder at a time", takes: 6 * time.Second, alone: true, run: hotKey,
			About: "Eight clients contend for one lock without a pause. A failure: two were inside at once, within their leases.",
		},
		{
			Name: "crash", Title: "a holder crashes", takes: 3 * time.Second, run: crash,
			About: "A holder is killed. A failure: the next client does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "freeze", Title: "a holder is frozen longer than its TTL", takes: 4 * time.Second, run: freeze,
			About: "A holder gets no CPU for longer than its lease, while another client acquires the lock. " +
				"A failure: the first client is not told when it runs again, and its release reports success. " +
				"No lock can prevent that both work at the same time; fences make the late write harmless.",
		},
		{
			Name: "late-unlock", Title: "the late release of a frozen holder", takes: 4 * time.Second, run: lateUnlock,
			About: "As freeze, but a third client asks after the late release. A failure: it gets the lock while the second client is inside.",
		},
		{
			Name: "relock", Title: "a holder that lost its lock locks again", takes: 4 * time.Second, run: relock,
			About: "As freeze, but the first client locks again instead of a release. A failure: it gets the lock while the second client is inside.",
		},
		{
			Name: "partition", Title: "a holder is cut off for longer than its TTL", takes: 5 * time.Second, run: partition,
			About: "No packet passes between a holder and the server, while another client acquires the lock. " +
				"A failure: the library renews, so that the holder does not go by the time of its lease, and does not tell it of the loss before the network works again.",
		},
		{
			Name: "lost-acquire", Title: "the reply to an acquire is lost", takes: 4 * time.Second, run: lostAcquire,
			About: "The server grants a lock, but the connection breaks before the reply arrives. A failure: no other client gets the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "lost-release", Title: "the reply to a release is lost", takes: 4 * time.Second, run: lostRelease,
			About: "The server releases a lock, but the connection breaks before the reply arrives, when another client has acquired the lock. " +
				"A failure: that client gets it later than the TTL and a margin of 1 s, or a repeated release deletes its lock.",
		},
		{
			Name: "between-acquire", Title: "a crash between two commands of an acquire", takes: 3 * time.Second, run: betweenAcquire,
			About: "If an acquire takes several commands, a client is killed before each but the first. A failure: the next client does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "between-release", Title: "a freeze between two commands of a release", takes: 3 * time.Second, run: betweenRelease,
			About: "If a release takes several commands, a client is frozen before each but the first, for longer than its lease, while another client acquires the lock. " +
				"A failure: the rest of the release deletes the lock of that client.",
		},
		{
			Name: "waiter-killed", Title: "a waiter is killed", takes: 2 * time.Second, run: waiterKilled,
			About: "The first of two waiters is killed, then the holder releases. A failure: the other waiter does not get the lock within the TTL and a margin of 1 s.",
		},
		{
			Name: "script-flush", Title: "SCRIPT FLUSH", takes: 2 * time.Second, run: scriptFlush,
			About: "The server forgets its scripts before an acquire and before a release. A failure: an error of the client, or a lock that is not released.",
		},
		{
			Name: "flushall", Title: "FLUSHALL", takes: 5 * time.Second, run: flushAll,
			About: "The server loses all keys while a client holds the lock. No lock prevents that another client gets it. " +
				"A failure: the holder is not told, and its release reports success or deletes the lock of the next holder.",
		},
		{
			Name: "failover", Title: "failover to a replica in sync", takes: 3 * time.Second, layout: replicated, run: failover,
			About: "The master crashes after the replica has received the lock, and the replica takes its place. A failure: another client gets the lock while the first is inside.",
		},
		{
			Name: "failover-behind", Title: "failover to a replica that is behind", takes: 3 * time.Second, layout: replicated, run: failoverBehind,
			About: "The replica has not received the lock when it takes the place of its master. Replication is asynchronous, so no lock on one server survives this without WAIT. " +
				"The card tells what happened, and does not count it as a failure.",
		},
		{
			Name: "nodes-2-down", Title: "2 of 5 nodes are down", takes: 4 * time.Second, layout: fiveNodes, needs: needsQuorum, run: twoDown,
			About: "A majority of the nodes is left. A failure: no client gets the lock, or two clients do.",
		},
		{
			Name: "nodes-3-down", Title: "3 of 5 nodes are down", takes: 4 * time.Second, layout: fiveNodes, needs: needsQuorum, run: threeDown,
			About: "A minority of the nodes is left. A failure: a client gets the lock, or no client gets it when the nodes are back.",
		},
		{
			Name: "node-empty", Title: "a node comes back without its data", takes: 2 * time.Second, layout: fiveNodes, needs: needsQuorum, run: nodeEmpty,
			About: "One of five nodes loses the lock that a client holds on all of them. A failure: another client gets the lock.",
		},
		{
			Name: "node-frozen", Title: "a node is frozen", takes: 4 * time.Second, layout: fiveNodes, needs: needsQuorum, run: nodeFrozen,
			About: "One of five nodes does not answer. A failure: no client gets the lock, or two clients do.",
		},
		{
			Name: "renewal", Title: "the work takes longer than the TTL", takes: 7 * time.Second, needs: needsRenewal, run: renewal,
			About: "A client works for three times its TTL, and its lease is renewed. A failure: another client gets the lock meanwhile.",
		},
		{
			Name: "renewal-lost", Title: "renewals after the lock is lost", takes: 6 * time.Second, needs: needsRenewal, run: renewalLost,
			About: "The key of a renewed lock is deleted. A failure: a renewal creates it again, an extension of the lost lock succeeds, " +
				"the holder is not told, or a renewal takes the lock away from the next holder.",
		},
		{
			Name: "waiters", Title: "many waiters for one lock", takes: 12 * time.Second, alone: true, run: waiters,
			About: "A hundred clients (--waiters) wait for one lock all the time. The card tells what a hand-off costs and how the waits differ. " +
				"A failure: a client never gets the lock while the others get it 20 times on average, or two are inside at once.",
		},
		{
			Name: "readers", Title: "readers and a writer", takes: 2 * time.Second, needs: needsReaders, run: readers,
			About: "Two readers share the lock, and one of them releases. A failure: a writer gets the lock while the other reads, or a reader does not get it beside another.",
		},
		{
			Name: "permits", Title: "the permits of a semaphore", takes: time.Second, needs: needsPermits, run: permits,
			About: "Three clients ask for two permits. A failure: all three are inside, or the third does not get the permit that another gives back.",
		},
		{
			Name: "permits-nodes", Title: "the permits of a semaphore on 5 nodes", takes: 2 * time.Second, layout: fiveNodes, needs: needsPermitsOnNodes, run: permitsOnNodes,
			About: "Three clients ask for two permits, and each reaches another three of five nodes. A failure: all three are inside.",
		},
		{
			Name: "clock", Title: "a client with a wrong clock", takes: 2 * time.Second, needs: needsClock, run: wrongClock,
			About: "The clock of a client is ahead, and then behind, by more than the TTL. A failure: it gets a lock that another client has, or another client gets its lock.",
		},
	}
}

// Reasons why a client does not have what a test needs.

func needsQuorum(p profile) string { return needsKinds(p, "redlock") }

func needsRenewal(p profile) string {
	if p.renewed() {
		return ""
	}
	return "hello says that the library does not renew, and the client answers extend with an error"
}

func needsReaders(p profile) string { return needsKinds(p, "rw") }

func needsPermits(p profile) string { return needsKinds(p, "semaphore") }

func needsPermitsOnNodes(p profile) string { return needsKinds(p, "semaphore", "redlock") }

func needsKinds(p profile, kinds ...string) string {
	for _, k := range kinds {
		if !p.has(k) {
			return "hello does not name the kind " + k
		}
	}
	return ""
}

func needsClock(p profile) string {
	if p.Hello.Clock {
		return ""
	}
	return "hello does not say that the client has a clock that can be set"
}

// failed returns the verdict of a failure.
func failed(format string, args ...any) Verdict {
	return Verdict{Outcome: Fail, Evidence: fmt.Sprintf(format, args...)}
}

func passed(format string, args ...any) Verdict {
	return Verdict{Outcome: Pass, Evidence: fmt.Sprintf(format, args...)}
}

// next returns a hold of the client, which asks while another one may still have the lock,
// and again after an error, as after a broken connection. It stops the test with a failure
// if the client does not get it within the TTL and the margin. Took is the time since. If
// the lease had ended before the client got it, the client locks again, and the evidence
// says so.
func (r *rig) next(a *actor, since time.Time, what string) (h *hold, took time.Duration) {
	h, err := a.lockBy(since.Add(ttl + margin))
	took = time.Since(since)
	if err != nil {
		panic(stop{failed("%s did not get the lock within %s after %s (TTL %s): %v.", a.name, humanize.Precise(took), what, humanize.Setting(ttl), err)})
	}
	if over := h.began.Sub(h.Deadline()); over > 0 {
		r.remark = fmt.Sprintf(" %s got a lease that had ended %s before, by the valid_ms of its client, and locked again.", a.name, humanize.Precise(over))
		_ = h.unlock()
		h = a.mustLock()
	}
	return h, took
}

// intruder lets a client ask for the lock that h has, and fails the test if it gets it,
// after the sentences in before. It returns the sentence for a pass.
func (r *rig) intruder(a *actor, h *hold, before string) string {
	if !h.Valid() {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("The lease of %s ended before %s asked: the machine is too slow for a TTL of %s.", h.actor.name, a.name, humanize.Setting(ttl))}})
	}
	other, err := a.ask(h)
	if err == nil && h.Valid() {
		r.pause(short) // so that the timeline shows both
		panic(stop{failed("%s %s got the lock while %s was inside, with %s of its lease left.", before, a.name, h.actor.name, humanize.Precise(h.Deadline().Sub(other.began)))})
	}
	if err == nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("%s got the lock %s after the lease of %s had ended: the machine is too slow for a TTL of %s.",
			a.name, humanize.Precise(time.Since(h.Deadline())), h.actor.name, humanize.Setting(ttl))}})
	}
	if !errors.Is(err, external.ErrHeld) {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("%s %s could not ask for the lock: %v.", before, a.name, err)}})
	}
	return fmt.Sprintf("%s was refused for %s while %s was inside.", a.name, humanize.Setting(short), h.actor.name)
}

// ask asks for the lock that h has, and again after an error that is not a refusal, such as
// that of a broken connection.
func (a *actor) ask(h *hold) (*hold, error) {
	for {
		other, err := a.lock(short)
		if err == nil || errors.Is(err, external.ErrHeld) || a.process.Err() != nil || time.Until(h.Deadline()) < 2*short {
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
