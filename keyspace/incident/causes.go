package incident

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// told is how a cause is told: no sentence says more than the proof.
type told struct {
	proof   string                       // what the frames show
	says    func(*writer, *fault) string // one or two sentences
	unknown func(*writer, *fault) string // what the frames do not show; nil = nothing
	next    func(*writer, *fault) string // the next step of an operator
}

// causes returns how each cause is told.
func causes() map[Cause]told {
	return map[Cause]told{
		HolderGone:       {"a connection with its name was seen, and has ended; it was not renewed later", saysGone, unknownGone, nextGone},
		NeverExpires:     {"as of holder-gone, without a deadline", saysGone, unknownGone, nextForever},
		ExpiredConnected: {"a connection with its name was seen, and was not seen to end. It was renewed, or the hold lasted more than twice as long as 99 % of the others", saysRanOut, unknownWorked, nextRanOut},
		RenewalsStopped:  {"it was renewed, and the lock expired; no connection has its name", saysStopped, unknownWorked, nextRanOut},
		TTLTooShort:      {"another client acquires the lock immediately after the expiry: while the holder is connected, or several times in a row", saysTooShort, unknownTooShort, nextTooShort},
		Expired:          {"the deadline had passed when the end was read", saysExpired, ifEarly(unknownEarly, "whether {holder} still worked at {to}, hung or had ended{nameless}"), ifEarly(nextEarly, "Read the log of {holder}. If the work takes longer than the TTL, renew the lock.")},
		Overdue: {"it took 10 times the median and 5 s, and hardly any other was nearly as long; or no usual hold is known, it was renewed, and clients waited for 30 s",
			saysOverdue, unknownOverdue, saying("Find out why {holder} took so long. Do not force-release a lock whose holder works.")},
		SlowHandOff:      {"it was free for more than 2 s, and clients waited", saysFree, saying("whether the waiters poll seldom, or a message that wakes them was lost"), nextFree},
		Deadlock:         {"each owner is a thread", saysDeadlock, nil, nextDeadlock},
		PossibleDeadlock: {"the owners may have several threads", saysDeadlock, nil, nextDeadlock},
		Failover:         {"a notice of a failover within 30 s", saying("A failover lost {lock} at {end}: the new master did not have the lock of {holder}."), unknownNoticed, nextLost},
		Restart:          {"a notice of a restart within 30 s", saying("A restart of the server lost {lock} at {end}, which {holder} held."), unknownNoticed, nextLost},
		Lost:             {"neither of the two", saying("A failover or a restart lost {lock} at {end}, which {holder} held."), unknownNoticed, nextLost},
		Evicted: {"the server reported it for this key (`notify-keyspace-events` with `Ee`); else the hold is `gone`, released or evicted",
			saying("The server evicted {lock} at {end}, because its memory was full: {holder} held the lock."), unknownNoticed, saying("Check the data that the lock protects. Put locks on a server with maxmemory-policy noeviction.")},
		Flushed: {"the server reported that a database was emptied, and no change of this key", saying("The database was emptied at {end}, and with it {lock}, which {holder} held."), unknownNoticed,
			saying("Check the data that the lock protects. Take FLUSHDB and FLUSHALL away from the users that do not need them.")},
		Deleted: {"no release was announced", saying("A client deleted {lock} at {end} while {holder} held it: that was no release."),
			saying("which client deleted it: Redis does not record it, and {holder} itself may have deleted it"), nextTaken},
		Stolen: {"another holder has the same deadline, or no release was announced", saying("{next} took {lock} at {end} from {holder}, which had not released it."), unknownNoticed, nextTaken},
	}
}

// saying returns a sentence in which names in braces have their values.
func saying(text string) func(*writer, *fault) string {
	return func(w *writer, f *fault) string {
		slowly, deadline := "", map[bool]string{true: fmt.Sprintf(" If %s has really ended, give the lock a deadline.", holderOf(f))}[w.s.Ongoing && f.hold.Lasts()]
		if w.t.slow(f.hold.Until(w.b.last).Sub(began(f.hold))) {
			slowly = fmt.Sprintf(" It held the lock for %s, where half of the holds are over in %s.", w.t.lasted(f.hold, w.b.last), long(w.s.Usual.P50))
		}
		return strings.NewReplacer("{lock}", w.t.id.Key, "{holder}", holderOf(f), "{next}", cmp.Or(nextName(f), "Another client"), "{end}", w.held(f),
			"{from}", clock(f.From), "{to}", clock(f.To), "{nameless}", nameless(f.hold), "{deadline}", deadline, "{slowly}", slowly).Replace(text)
	}
}

var (
	unknownGone = saying("whether {holder} worked on without this connection, and why it ended (see its log at {from} and in the seconds before)")
	nextGone    = saying("Find out whether {holder} ended, and why. If it ended, use a shorter TTL and renew it: a client that ends then blocks the others only briefly.{deadline}")

	saysStopped   = saying("{holder}, which held {lock}, did not renew it after {from}: its lease expired at {end}.{slowly}")
	unknownWorked = saying("whether {holder} still worked, hung, was cut off or had ended (see its log from {from} on){nameless}")

	unknownNoticed = saying("whether {holder} noticed that it had lost the lock")
	nextLost       = saying("Check the data that the lock protects. Make the server keep its latest writes (WAIT, min-replicas-to-write, appendfsync always), or use fencing tokens.")
	nextTaken      = saying("Check the data that the lock protects. Look for code or people that delete or set the key without a comparison of its token.")
)

// holderOf returns the name of the holder of a fault.
func holderOf(f *fault) string { return name(f.hold.Holder.Name()) }

func saysGone(w *writer, f *fault) string {
	moved := ""
	if how := w.moved(f.hold); how != "" {
		moved = " By " + clock(f.hold.Moved.At) + " " + how + "."
	}
	return saying("The connection of {holder}, which held {lock}, had ended by {from}, and the lock stayed held until {end}."+moved+"{slowly}")(w, f)
}

func nextForever(w *writer, f *fault) string {
	what := map[bool]string{true: "Find out who removed the deadline: Redis does not record it.", false: "Acquire the lock with a TTL (SET NX PX), and renew it during the work."}
	return saying(what[w.moved(f.hold) != ""]+"{deadline}")(w, f)
}

func saysRanOut(w *writer, f *fault) string {
	h := f.hold
	since, what := began(h), "the hold began"
	if h.Renewals > 0 {
		since, what = h.LastRenewal(), "its last renewal"
	}
	return saying("{holder} held {lock} until its lease ran out at {end}, "+long(h.To.At.Sub(since))+" after "+what+": a connection with its name was not seen to end.{slowly}")(w, f)
}

func nextRanOut(w *writer, f *fault) string {
	what := map[bool]string{true: "Find out why it did not renew the lock.", false: "If its work takes longer than its TTL, renew the lock."}[f.hold.Renewals > 0]
	return saying("Read the log of {holder}. "+what+" Check the data that the lock protects if it continued after {end}: it had lost the lock.")(w, f)
}

func saysTooShort(w *writer, f *fault) string {
	n := w.g.number(func(f *fault) bool { return f.repeats() == Expired })
	who := "other clients acquired the lock while the holders may have worked"
	switch {
	case n == 1:
		who = fmt.Sprintf("%s acquired the lock while %s may have worked", nextName(f), holderOf(f))
	case !slices.ContainsFunc(w.g.faults, func(f fault) bool { return f.next != nil && nextName(&f) != holderOf(&f) }):
		who = "each time the same client acquired the lock again"
	}
	return fmt.Sprintf("The TTL of %s, %s, is too short, or its clients do not release it: %s ended by expiry, and %s.", w.t.id.Key, humanize.Setting(w.ttl(f)), w.many(n, "hold"), who)
}

func unknownTooShort(w *writer, _ *fault) string {
	return map[bool]string{true: "how long the work of these holds took: each ended first",
		false: "how long the work takes, and whether the clients let the lock expire on purpose: no hold was released"}[w.t.released]
}

func nextTooShort(w *writer, f *fault) string {
	work := 2 * w.ttl(f)
	if n := len(w.t.sorted); n > 0 {
		work = max(work, w.t.sorted[n-1]*3/2)
	}
	return fmt.Sprintf("Use a TTL of at least %s, and renew it every %s. Check the data that the lock protects.", humanize.Setting(fitting(work)), long(w.ttl(f)/3))
}

func saysExpired(w *writer, f *fault) string {
	switch n := w.g.number(func(f *fault) bool { return f.cause == Expired }); {
	case n > 1 && f.early():
		early, others := w.g.early(), ""
		if n > early {
			others = fmt.Sprintf(", and %d more by expiry", n-early)
		}
		return fmt.Sprintf("%s of %s ended at a deadline that was set earlier, or with a new value%s: so does a release that keeps the lock for a minimum time.", w.many(early, "hold"), w.t.id.Key, others)
	case n > 1:
		return fmt.Sprintf("%s of %s ended by expiry: no release was seen.", w.many(n, "hold"), w.t.id.Key)
	case f.rewritten:
		return fmt.Sprintf("%s wrote a new value with a TTL of %s into %s, which expired at %s: so does a release that keeps the lock for a minimum time.", holderOf(f), humanize.Setting(w.ttl(f)), w.t.id.Key, w.held(f))
	case f.early():
		return fmt.Sprintf("%s held %s until it expired at %s: by %s %s.", holderOf(f), w.t.id.Key, w.held(f), clock(f.hold.Moved.At), w.moved(f.hold))
	}
	return saying("{holder} held {lock} and did not release it: its lease expired at {end}.")(w, f)
}

const (
	unknownEarly = "who set the deadline earlier: Redis does not record it, and {holder} itself may have released the lock so"
	nextEarly    = "Nothing, if {holder} releases the lock so. If it does not, look for people or code that run PEXPIRE, and check the data that the lock protects."
)

// ifEarly returns one of two sentences.
func ifEarly(early, otherwise string) func(*writer, *fault) string {
	return func(w *writer, f *fault) string {
		return saying(map[bool]string{true: early, false: otherwise}[f.early()])(w, f)
	}
}

func saysOverdue(w *writer, f *fault) string {
	held, usual := map[bool]string{true: "has held", false: "held"}[f.hold.Lasts()], ", where half of its holds are over in "+long(w.s.Usual.P50)
	if !w.s.Usual.known() {
		usual = fmt.Sprintf(", renewed %s, while up to %s waited", humanize.Times(f.hold.Renewals), humanize.Plural(f.clients, "client"))
	}
	return fmt.Sprintf("%s %s %s for %s%s.", holderOf(f), held, w.t.id.Key, w.t.lasted(f.hold, w.b.last), usual)
}

func unknownOverdue(w *writer, f *fault) string {
	few := map[bool]string{false: "; how long a hold usually takes: fewer than five have ended"}[w.s.Usual.known()]
	return fmt.Sprintf("what %s did for so long (see its log from %s on)%s", holderOf(f), clock(f.From), few)
}

func saysFree(w *writer, f *fault) string {
	if n := len(w.g.faults); n > 1 { // all have this cause
		longest := slices.MaxFunc(w.g.faults, func(a, b fault) int { return cmp.Compare(a.To.Sub(a.From), b.To.Sub(b.From)) })
		return fmt.Sprintf("%s was free %s for up to %s, although clients waited for it: they poll too seldom, or were not woken.", w.t.id.Key, w.many(n, "time"), long(longest.To.Sub(longest.From)))
	}
	return fmt.Sprintf("Nobody held %s from %s to %s, although clients waited for it: they poll too seldom, or were not woken.", w.t.id.Key, clock(f.From), clock(f.To))
}

func nextFree(w *writer, _ *fault) string {
	often := "more often than a hold lasts"
	if u := w.s.Usual; u.P50 >= 100*time.Millisecond {
		often = fmt.Sprintf("at least every %s, as half of the holds are over by then", long(u.P50))
	}
	return "Let the waiting clients subscribe to the message of a release, if their library sends one, or poll " + often + "."
}

func saysDeadlock(w *writer, f *fault) string {
	key, others := w.t.id.Key, ""
	if locks := f.cycle.locks(); len(locks) > 1 {
		others = ", with " + listed(slices.DeleteFunc(locks, func(l string) bool { return l == key }))
	}
	return fmt.Sprintf("%s was in a %s of %s from %s at the latest until %s%s: each owner waited for the next one.", key, strings.ReplaceAll(string(f.cause), "-", " "), humanize.Plural(len(f.cycle.Waits), "owner"), clock(f.From), w.held(f), others)
}

func nextDeadlock(w *writer, f *fault) string {
	locks := f.cycle.locks()
	if len(locks) == 1 {
		locks = []string{"their locks"}
	}
	now := map[bool]string{true: " To end it now, end one of its owners."}[f.To.Equal(w.b.last)]
	return fmt.Sprintf("Let all clients acquire %s in the same order, such as that of their names.%s", listed(locks), now)
}

// moved says how the deadline of a hold was set otherwise than by a renewal; "" if that was not seen.
func (w *writer) moved(h *holds.Hold) string {
	switch m := h.Moved; {
	case m == nil, !m.From.IsZero() && !m.To.IsZero() && m.From.Sub(m.To) < time.Second:
		return ""
	case m.To.IsZero():
		return "its deadline, " + clock(m.From) + ", was removed"
	case m.From.IsZero():
		return "it got a deadline, " + clock(m.To)
	default:
		return fmt.Sprintf("its deadline was moved from %s to %s", clock(m.From), clock(m.To))
	}
}

// unknown returns what the frames do not show.
func (w *writer) unknown(f *fault) []string {
	var all []string
	h := f.hold
	if unknown := causes()[f.cause].unknown; unknown != nil {
		all = append(all, unknown(w, f))
	}
	if f.cycle == nil && !begun(h) {
		all = append(all, "when "+holderOf(f)+" acquired the lock: before "+clock(h.From.At))
	}
	if h.End.Kind == keyspace.Released && h.End.Proof != holds.ByMessage && f.cause != SlowHandOff {
		all = append(all, "whether "+holderOf(f)+" released it, or another client deleted it")
	}
	if n := w.b.outage(f); n != nil {
		all = append(all, fmt.Sprintf("whether %s could reach the server (%s: %s)", holderOf(f), clock(n.At), w.noticed(*n)))
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
	return fmt.Sprintf(": no connection with the name %s was seen. CLIENT SETNAME gives it one, and a recording shows its end if the hold takes some seconds", name(h.Holder.Label))
}
