package incident

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace/holds"
)

// unknown returns what the frames do not show.
func (w *writer) unknown(f *fault) []string {
	var all []string
	h := f.hold
	who := name(h.Holder.Name())
	switch f.cause {
	case HolderGone, NeverExpires:
		all = append(all, fmt.Sprintf("why the connection of %s ended (see its log at %s and in the seconds before)", who, clock(f.From)))
	case HolderFrozen:
		all = append(all, fmt.Sprintf("why %s froze (see its log from %s on: a pause, a debugger, a call without a time-out)", who, clock(f.From)))
	case RenewalsStopped:
		all = append(all, fmt.Sprintf("whether %s ended or froze (see its log from %s on)%s", who, clock(f.From), nameless(h)))
	case Expired:
		all = append(all, fmt.Sprintf("whether %s still worked at %s, hung or had ended%s", who, clock(f.To), nameless(h)))
	case TTLTooShort:
		all = append(all, "how long the work takes: each hold ended first")
	case Deleted:
		all = append(all, "which client deleted it: Redis does not record it, and "+who+" itself may have deleted it")
	case Stolen, Failover, Restart, Lost, Evicted, Flushed:
		all = append(all, fmt.Sprintf("whether %s noticed that it had lost the lock", who))
	case Overdue:
		all = append(all, fmt.Sprintf("what %s did for so long (see its log from %s on)", who, clock(f.From)))
	case SlowHandOff:
		all = append(all, "whether the waiters poll seldom, or a message that wakes them was lost")
	}
	if f.cycle == nil && !begun(h) {
		all = append(all, "when "+who+" acquired the lock: before "+clock(h.From.At))
	}
	if w.t.waited.Most == 0 {
		all = append(all, "whether clients waited: this format shows no waiters, or there were none")
	}
	for _, gap := range w.b.gaps {
		if gap.From.Before(w.s.To) && gap.To.After(w.s.From) {
			all = append(all, fmt.Sprintf("what happened from %s to %s: nothing was recorded", clock(gap.From), clock(gap.To)))
		}
	}
	return all
}

// nameless says why the end of the connection of a holder cannot be seen; "" if it can.
func nameless(h *holds.Hold) string {
	switch {
	case h.Holder.Addr != "":
		return ""
	case h.Holder.Label == "":
		return ": the value of the lock names no client. If the value is the client's name and a token, and CLIENT SETNAME gives its connection that name, a recording shows when the connection ends"
	}
	return fmt.Sprintf(": no connection had the name %s. With CLIENT SETNAME %s the recording shows when it ends", name(h.Holder.Label), name(h.Holder.Label))
}

// next returns the next step of an operator.
func (w *writer) next(f *fault) string {
	h := f.hold
	who := name(h.Holder.Name())
	ongoing := ""
	if w.s.Ongoing && h.Lasts() {
		ongoing = fmt.Sprintf(" If %s has really ended, give the lock a deadline.", who)
	}
	switch f.cause {
	case HolderGone:
		return fmt.Sprintf("Find out why %s ended. Use a shorter TTL and renew it, so that a client that ends blocks the others only briefly.", who) + ongoing
	case NeverExpires:
		return "Acquire the lock with a TTL (SET NX PX), and renew it during the work." + ongoing
	case HolderFrozen, RenewalsStopped:
		return fmt.Sprintf("Find out what stopped %s. Check the data that the lock protects if it continued after %s: it had lost the lock.", who, w.held(f))
	case TTLTooShort:
		work := 2 * w.ttl(f)
		if n := len(w.t.sorted); n > 0 {
			work = max(work, w.t.sorted[n-1]*3/2)
		}
		return fmt.Sprintf("Use a TTL of at least %s, and renew it every %s. Check the data that the lock protects.", humanize.Setting(fitting(work)), long(w.ttl(f)/3))
	case Expired:
		return fmt.Sprintf("Read the log of %s. If the work takes longer than the TTL of %s, renew the lock.", who, humanize.Setting(w.ttl(f)))
	case Overdue:
		return fmt.Sprintf("Find out why %s took so long. Do not force-release a lock whose holder works.", who)
	case SlowHandOff:
		often := "more often than a hold lasts"
		if u := w.s.Usual; u.P50 >= 100*time.Millisecond {
			often = fmt.Sprintf("at least every %s, as half of the holds are over by then", long(u.P50))
		}
		return "Let the waiting clients subscribe to the message of a release, if their library sends one, or poll " + often + "."
	case Deadlock, PossibleDeadlock:
		locks := f.cycle.locks()
		if len(locks) == 1 {
			locks = []string{"their locks"}
		}
		now := ""
		if f.To.Equal(w.b.last) {
			now = " To end it now, end one of its owners."
		}
		return fmt.Sprintf("Let all clients acquire %s in the same order, such as that of their names.%s", listed(locks), now)
	case Failover, Restart, Lost:
		return "Check the data that the lock protects. Make the server keep its latest writes (WAIT, min-replicas-to-write, appendfsync always), or use fencing tokens."
	case Evicted:
		return "Check the data that the lock protects. Put locks on a server with maxmemory-policy noeviction."
	case Flushed:
		return "Check the data that the lock protects. Take FLUSHDB and FLUSHALL away from the users that do not need them."
	case Deleted, Stolen:
		return "Check the data that the lock protects. Look for code or people that delete or set the key without a comparison of its token."
	}
	return ""
}
