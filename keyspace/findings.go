package keyspace

import (
	"fmt"
	"slices"
	"time"

	"locktop/internal/humanize"
)

// Severity orders findings.
type Severity uint8

// From a hint to current damage.
const (
	Info Severity = iota
	Warning
	Critical
)

// String returns the word that is used in JSON.
func (s Severity) String() string { return [...]string{"info", "warning", "critical"}[s] }

// Finding is a problem of a lock or a server, with a remedy.
type Finding struct {
	ID       string // stable: never-expires, overdue, …
	Severity Severity
	Lock     ID     // zero for a server finding
	Server   string // address of the server of a server finding; "" = all servers
	Text     string // one sentence
	Remedy   string // what can be done, in one or two sentences
}

// FindingKind is the ID of findings with one of their severities.
type FindingKind struct {
	ID       string
	Severity Severity
}

// FindingKinds lists the kinds of all findings that [Findings] and [ServerFindings]
// return, first those of locks.
func FindingKinds() []FindingKind {
	return slices.Concat(slices.Compact(kindsOf(rules())), []FindingKind{certainDeadlock, possibleDeadlock},
		kindsOf(nodeRules()), kindsOf(serverRules()), kindsOf(snapshotRules()))
}

// Findings lists the problems of the locks of a snapshot, in the order of the locks and
// of the rules, deadlocks last.
func Findings(s Snapshot) []Finding { return findings(s, Deadlocks(s)) }

func findings(s Snapshot, deadlocks []Deadlock) []Finding {
	var all []Finding
	known, locked := rules(), deadlockFindings(deadlocks, s.At)
	for _, l := range s.Locks {
		all = appendFindings(all, known, l, Finding{Lock: l.ID()}, s.At)
		if f, found := locked[l.ID()]; found {
			all = append(all, f)
		}
	}
	return all
}

// rule checks a lock or a server for one problem.
type rule[T any] struct {
	id       string
	severity Severity
	check    func(of T, now time.Time) string // returns the problem in one sentence, or ""
	remedy   string
}

func kindsOf[T any](rules []rule[T]) (all []FindingKind) {
	for _, r := range rules {
		all = append(all, FindingKind{r.id, r.severity})
	}
	return all
}

// appendFindings appends what the rules find; each finding has the lock or the server of f.
func appendFindings[T any](all []Finding, rules []rule[T], of T, f Finding, now time.Time) []Finding {
	for _, r := range rules {
		if f.Text = r.check(of, now); f.Text != "" {
			f.ID, f.Severity, f.Remedy = r.id, r.severity, r.remedy
			all = append(all, f)
		}
	}
	return all
}

// rules lists all rules for locks in the order of their findings.
func rules() []rule[*Lock] {
	return []rule[*Lock]{
		{"never-expires", Critical, andAsked(neverExpires(false)),
			"Find out whether the holder still works. If it does not, give the lock a deadline: x and d on the screen set one, y and d copy the command. Do not delete the key: a holder that still works would lose the lock at once."},
		{"never-expires", Critical, andAsked(neverExpires(true)),
			"Find out whether the holder still works, and stop it. Then release the lock as locktop inspect shows: its format stores no deadline that others may change."},
		{"split", Critical, split,
			"Wait until the copies expire: no client has a majority, so none holds the lock. If it happens again, let all clients begin with the same server."},
		{"stamp-passed", Warning, stampPassed,
			"No action if clients still use the lock: the next one takes it over. Otherwise force-release it."},
		{"overdue", Warning, andAsked(overdue),
			"Find out why the holder takes so long, and stop it there: a force-release would let another client in while the holder still works."},
		{"renewed-forever", Warning, andAsked(renewedForever),
			"Check that the holder makes progress: a watchdog also renews the lock of work that hangs. Stop the holder instead of a force-release, and limit the number of renewals."},
		{"waiters-no-holder", Warning, waitersNoHolder,
			"Wait until the waiters poll again, or wake the next one: locktop inspect shows the command if the library has one."},
		{"renewal-missed", Warning, renewalMissed,
			"Find out whether the holder still works: it may hang, pause for long, or be cut off from the server. At the deadline another client gets the lock, also if the holder goes on."},
		{"convoy", Warning, convoy,
			"Make the waiters poll more often, or wait for the release: with a lock that announces it, or has a queue, the next holder begins at once."},
		{"long-wait", Critical, longWait(Critical), longWaitRemedy},
		{"long-wait", Warning, longWait(Warning), longWaitRemedy},
		{"zombie-head", Warning, zombieHead,
			"The next client that asks for the lock removes the dead waiter. If the lock is free, wake the next waiter: locktop inspect shows the command if the library has one."},
		{"starving", Warning, starving,
			"Use a lock with a queue: without one, the client that asks at the right moment wins."},
		{"writer-starved", Warning, writerStarved,
			"Use a lock that lets readers wait while a writer waits, or make the readers pause."},
		{"reentry-leak", Warning, reentryLeak,
			"Look for a path in the holder's code that acquires the lock and does not release it. Until then the lock ends at its deadline, or with the holder."},
		{"minority", Warning, minority,
			"No action: it blocks other clients only until its deadline. If it stays, its owner did not release it on every server."},
		{"outlived", Warning, outlived,
			"Make the time to live longer than the work, or renew the lock during the work: another client may have acquired it before the work was done."},
		{"holder-gone", Warning, andAsked(holderGone),
			"Make sure that the process has ended, not only its connection. Then force-release the lock, or wait for its deadline."},
	}
}

// andAsked returns a check that also says that another client asks for the lock.
func andAsked(check func(*Lock, time.Time) string) func(*Lock, time.Time) string {
	return func(l *Lock, now time.Time) string {
		text := check(l, now)
		if text != "" && l.Asked(now) {
			text += " Another client asks for it."
		}
		return text
	}
}

// neverExpires returns a rule that finds locks that stay forever if their holder dies: those
// whose deadline others can set, or with noExtend those whose deadline they cannot set. If the
// library sets no deadline by design, that alone is not a finding.
func neverExpires(noExtend bool) func(*Lock, time.Time) string {
	return func(l *Lock, now time.Time) string {
		if !l.Endless() || l.NoExtend != noExtend || l.NoTTL && !l.abandoned(now) {
			return ""
		}
		age := l.Age(now)
		if age.Duration == 0 {
			return "Held without a deadline: if its holder dies, it stays held forever."
		}
		return fmt.Sprintf("Held for %s without a deadline: if its holder dies, it stays held forever.", age)
	}
}

// abandoned reports whether there is evidence that the lock will not be released: the
// hold is unusually long, or its client has disconnected.
func (l *Lock) abandoned(now time.Time) bool {
	return overdue(l, now) != "" || holderGone(l, now) != ""
}

// Thresholds of a long hold.
const (
	longHold    = 10 * time.Minute
	unusualHold = 30 * time.Second // shorter holds are never unusual
	unusual     = 20               // times the median
)

// overdue finds locks that are held for very long, or much longer than their median.
func overdue(l *Lock, now time.Time) string {
	age := l.Age(now)
	switch {
	case l.OverdueIn > 0 && age.Duration > l.OverdueIn:
		return fmt.Sprintf("Held for %s; the configured limit is %s.", age, humanize.Setting(l.OverdueIn))
	case l.OverdueIn > 0:
		return ""
	case l.MedianHold > 0 && age.Duration > unusual*l.MedianHold && age.Duration > unusualHold:
		return fmt.Sprintf("Held for %s, where half of its holds are over in %s.", age, humanize.Duration(l.MedianHold))
	case age.Duration > longHold:
		return fmt.Sprintf("Held for %s; the limit is %s, which --overdue changes.", age, humanize.Setting(longHold))
	}
	return ""
}

// stampPassed finds locks that still exist after the deadline in their value. It judges
// them at the time of their read: a later now, of another read, does not prove that they
// still exist.
func stampPassed(l *Lock, now time.Time) string {
	left, expires := l.TTL(Earliest(now, l.ReadAt))
	if len(l.Holders) == 0 || !l.Stamped || !expires || left > -stampGrace {
		return ""
	}
	return fmt.Sprintf("Its deadline passed %s ago, and it still exists: its holder ended without a release.", humanize.Duration(-left))
}

// Thresholds of problems that must last or repeat.
const (
	stampGrace  = time.Second      // clocks differ, and keys are removed late
	manyRenewed = 100              // renewals of one hold
	FreeTooLong = 2 * time.Second  // with waiters; a hand-off takes milliseconds
	deadTooLong = time.Second      // at the head of a queue
	passedOver  = 10               // times, by later waiters
	writerWaits = 10 * time.Second // while readers hold
	onlyGrows   = 10               // reentries without an exit
	voteWindow  = 2 * time.Second  // in which an acquire reaches all servers
	overruns    = 3                // consecutive holds that ended by expiry
)

// renewedForever finds holds with many renewals, unless a limit is configured for them: a
// leader, for example, renews its lock as long as it lives.
func renewedForever(l *Lock, now time.Time) string {
	if l.Renewals < manyRenewed || l.OverdueIn > 0 || l.renewalLate(now) > 0 {
		return ""
	}
	return fmt.Sprintf("Renewed %s, the last time %s ago: its holder may hang while its watchdog still runs.", humanize.Times(l.Renewals), humanize.Duration(now.Sub(l.Renewed)))
}

// waitersNoHolder finds free locks whose waiters were not woken.
func waitersNoHolder(l *Lock, now time.Time) string {
	free := now.Sub(l.UnheldSince)
	if l.State(now) != Waiting || l.UnheldSince.IsZero() || free <= FreeTooLong {
		return ""
	}
	if dead := headDeadFor(l, now); dead > deadTooLong {
		return fmt.Sprintf("Free for %s while %s wait: the first in the queue has been dead for %s.", humanize.Duration(free), humanize.Count(l.WaiterCount()), humanize.Duration(dead))
	}
	more := ""
	if l.Kind == Semaphore {
		more = ", or want more permits than are left"
	}
	return fmt.Sprintf("Free for %s while %s wait: they have not been woken%s.", humanize.Duration(free), humanize.Count(l.WaiterCount()), more)
}

// headDeadFor returns for how long the first waiter of a queue has been dead.
func headDeadFor(l *Lock, now time.Time) time.Duration {
	if len(l.Waiters) == 0 {
		return 0
	}
	return l.Waiters[0].DeadFor(now)
}

// zombieHead finds queues whose first waiter is dead. Of a free lock, waitersNoHolder says so.
func zombieHead(l *Lock, now time.Time) string {
	dead := headDeadFor(l, now)
	if dead <= deadTooLong || waitersNoHolder(l, now) != "" {
		return ""
	}
	if len(l.Waiters) == 1 {
		return fmt.Sprintf("The only waiter in its queue has been dead for %s.", humanize.Duration(dead))
	}
	return fmt.Sprintf("The first waiter of its queue has been dead for %s: %s behind it.", humanize.Duration(dead), othersWait(len(l.Waiters)-1))
}

// starving finds waiters that were overtaken many times.
func starving(l *Lock, now time.Time) string {
	worst := Waiter{}
	for _, w := range l.Waiters {
		if w.OvertakenBy > worst.OvertakenBy {
			worst = w
		}
	}
	if worst.OvertakenBy < passedOver {
		return ""
	}
	return fmt.Sprintf("%s was overtaken by %s later waiters%s.", worst.ID, humanize.Count(worst.OvertakenBy), waitingFor(worst, now))
}

// waitingFor returns how long a waiter has been waiting, if that is known.
func waitingFor(w Waiter, now time.Time) string {
	age := w.Age(now)
	if age.Duration == 0 {
		return ""
	}
	return ", in " + age.String()
}

// writerStarved finds writers that readers block.
func writerStarved(l *Lock, now time.Time) string {
	if l.State(now) != ReadHeld {
		return ""
	}
	for _, w := range l.Waiters {
		if age := w.Age(now); w.Mode == Write && age.Duration > writerWaits {
			return fmt.Sprintf("A writer has been waiting for %s while %s.", age, readersHold(len(l.Holders)))
		}
	}
	return ""
}

func othersWait(n int) string {
	if n == 1 {
		return "1 other waits"
	}
	return humanize.Count(n) + " others wait"
}

func readersHold(n int) string {
	if n == 1 {
		return "a reader holds it"
	}
	return humanize.Count(n) + " readers hold it"
}

// reentryLeak finds holders that reenter and never exit.
func reentryLeak(l *Lock, _ time.Time) string {
	if l.ReentryStreak < onlyGrows {
		return ""
	}
	return fmt.Sprintf("Reentered %s without an exit; its count is %s.", humanize.Times(l.ReentryStreak), humanize.Count(l.Count()))
}

// minority finds Redlocks with too few copies. It reports nothing during an acquire, or
// if silent servers could complete the majority.
func minority(l *Lock, now time.Time) string {
	tokens, votes, silent := countTokens(l)
	if l.State(now) != Partial || tokens != 1 || votes+silent >= Quorum(len(l.Votes)) || beingAcquired(l, now) {
		return ""
	}
	return fmt.Sprintf("On %d of %d servers, which is no majority: a leftover, or a failed acquire.", votes, len(l.Votes))
}

// split finds Redlocks with several tokens and no majority.
func split(l *Lock, now time.Time) string {
	tokens, most, silent := countTokens(l)
	if l.State(now) != Partial || tokens < 2 || most+silent >= Quorum(len(l.Votes)) || beingAcquired(l, now) {
		return ""
	}
	return fmt.Sprintf("%d tokens on %d servers, and none has a majority: no client can acquire it until they expire.", tokens, len(l.Votes))
}

// countTokens returns the number of tokens of a Redlock, the votes of the largest, and
// the number of silent servers.
func countTokens(l *Lock) (tokens, most, silent int) {
	votes := make(map[string]int)
	for _, v := range l.Votes {
		switch {
		case v.Unreachable:
			silent++
		case v.Token != "":
			votes[v.Token]++
			most = max(most, votes[v.Token])
		}
	}
	return len(votes), most, silent
}

// beingAcquired reports whether an acquire of a Redlock may be in progress.
func beingAcquired(l *Lock, now time.Time) bool {
	return slices.ContainsFunc(l.Holders, func(h Holder) bool { return !h.Since.IsZero() && now.Sub(h.Since) < voteWindow })
}

// holderGone finds holds whose client has disconnected, also one of several: a permit that
// outlives its holder. A holder that renews is alive.
func holderGone(l *Lock, now time.Time) string {
	for _, h := range l.Holders {
		renewed := h.Renewed
		if len(l.Holders) == 1 {
			renewed = l.Renewed
		}
		if !h.DisconnectedAt.IsZero() && now.Sub(h.DisconnectedAt) > goneTooLong && !renewed.After(h.DisconnectedAt) {
			return fmt.Sprintf("%s has not been connected for %s.", h.Name(), humanize.Duration(now.Sub(h.DisconnectedAt)))
		}
	}
	return ""
}

// goneTooLong is how long a client may be disconnected; it may be reconnecting.
const goneTooLong = 5 * time.Second
