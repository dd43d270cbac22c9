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

// Problem is something that can be wrong with a lock or its servers. A finding has its ID, and
// an incident has it as its cause.
//
// A remedy has places for what the screen and the commands call differently: {deadline} is how to
// give a lock a deadline, {release} how to release it, {wake} where the command to wake a waiter
// is, {limit}, {match} and {cluster} the setting of a limit, of the keys and of all nodes.
type Problem struct {
	ID       string // stable: never-expires, overdue, …
	Severity Severity
	Cause    bool   // an incident can have it as its cause
	Meaning  string // what is wrong, one clause
	Remedy   string // one or two sentences; "" = only incidents have the problem
}

// In the tables below, a problem is the cause of incidents, or only a finding.
const cause, finding = true, false

// Finding is a problem that a lock or a server has.
type Finding struct {
	Problem
	Lock   ID     // zero for a server finding
	Server string // address of the server of a server finding; "" = all servers
	Text   string // one sentence
}

// FindingProblems lists the problems of findings in their order. Of two with one ID and severity, only the remedy differs.
func FindingProblems() []Problem {
	return slices.Concat(problemsOf(rules()), []Problem{Deadlock{Certain: true}.Problem(), Deadlock{}.Problem(), Inversion{Certain: true}.Problem(), Inversion{}.Problem()}, problemsOf(nodeRules()), problemsOf(serverRules()), problemsOf(snapshotRules()))
}

// Causes lists the problems that incidents have as their cause.
func Causes() []Problem {
	causes := append(FindingProblems(), []Problem{
		{"expired-connected", Info, cause, "the lease of the holder ran out, and its connection was not seen to end", ""},
		{"expired", Info, cause, "a hold ended by expiry; nothing more is known", ""},
		{"failover", Info, cause, "a failover lost the lock before its deadline", ""},
		{"restart", Info, cause, "a restart of the server lost the lock before its deadline", ""},
		{"lost", Info, cause, "a failover or a restart lost the lock before its deadline", ""},
		{"evicted", Info, cause, "the server evicted the lock because its memory was full", ""},
		{"flushed", Info, cause, "the database was emptied", ""},
		{"deleted", Info, cause, "a client deleted the lock of another one", ""},
		{"stolen", Info, cause, "a client replaced the holder without a release", ""},
		{"contended", Info, cause, "the lock is held most of the time, and clients always wait; nothing failed", ""},
	}...)
	return slices.DeleteFunc(causes, func(p Problem) bool { return !p.Cause })
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
	if clusterRefuses(s, s.At) != "" { // it refuses renewals
		all = slices.DeleteFunc(all, func(f Finding) bool { return f.ID == "renewals-stopped" })
	}
	return all
}

// rule checks a lock or a server for one problem. Check returns the problem in one sentence, or "".
type rule[T any] struct {
	check func(of T, now time.Time) string
	Problem
}

func problemsOf[T any](rules []rule[T]) (all []Problem) {
	for _, r := range rules {
		all = append(all, r.Problem)
	}
	return all
}

// appendFindings appends what the rules find; each finding has the lock or the server of f.
func appendFindings[T any](all []Finding, rules []rule[T], of T, f Finding, now time.Time) []Finding {
	for _, r := range rules {
		if f.Text = r.check(of, now); f.Text != "" {
			f.Problem = r.Problem
			all = append(all, f)
		}
	}
	return all
}

// rules lists all rules for locks in the order of their findings.
func rules() []rule[*Lock] {
	return []rule[*Lock]{
		{andAsked(neverExpires(false)), Problem{"never-expires", Critical, cause, "no deadline ends the hold: if its holder dies, the lock stays held",
			"Find out whether the holder still works. If it does not, give the lock a deadline: {deadline}. Do not delete the key: a holder that still works would lose the lock immediately."}},
		{andAsked(neverExpires(true)), Problem{"never-expires", Critical, cause, "no deadline ends the hold: if its holder dies, the lock stays held",
			"Find out whether the holder still works, and stop it. Then release the lock: {release}. Its format stores no deadline that others may change."}},
		{split, Problem{"split", Critical, finding, "the servers of a Redlock have several tokens, and none has a majority",
			"Wait until the copies expire: no client has a majority, so none holds the lock. If it happens again, let all clients begin with the same server."}},
		{votesLost, Problem{"votes-lost", Critical, finding, "servers of a Redlock have lost their copies, and with them the majority of a token",
			"Stop the client of the lost token if you can: another client can have the lock at the same time, until the deadline is over. Keep a server that has lost its keys out of the Redlock for the longest TTL."}},
		{stampPassed, Problem{"stamp-passed", Warning, finding, "the deadline in the value of the lock has passed, and the key still exists",
			"No action if clients still use the lock: the next one takes it over. Otherwise force-release it."}},
		{readerLapsed, Problem{"reader-lapsed", Warning, finding, "the lease of a reader is over, and its entry still keeps writers out",
			"Find out whether the reader ended without a release. Its entry goes with the whole lock, whose deadline the other readers move. To end all of them: {release}."}},
		{andAsked(overdue), Problem{"overdue", Warning, cause, "a hold lasts far longer than is usual for the lock, or longer than its limit",
			"Find out why the holder takes so long, and stop it there: a force-release would let another client in while the holder still works. For work that may take so long, set a limit: {limit}."}},
		{andAsked(renewedForever), Problem{"renewed-forever", Warning, finding, "one hold has been renewed at least 100 times: its work may hang while its renewal goes on",
			"Check that the holder makes progress: a watchdog also renews the lock of work that hangs. Stop the holder instead of a force-release, and limit the number of renewals."}},
		{waitersNoHolder, Problem{"waiters-no-holder", Warning, finding, "clients have been waiting for more than 2 s for a lock without a holder",
			"Wait until the waiters poll again, or wake the next one: {wake} if the library has one."}},
		{renewalsStopped, Problem{"renewals-stopped", Warning, cause, "a hold was renewed, and its renewals have stopped",
			"Find out whether the holder still works: it may hang, pause for long, or be cut off from the server. At the deadline another client gets the lock, also if the holder goes on."}},
		{slowHandOff, Problem{"slow-hand-off", Warning, cause, "the lock stays free although clients wait for it",
			"Make the waiters poll more often, or wait for the release: with a lock that announces it, or has a queue, the next holder begins immediately."}},
		{longWait(Critical), Problem{"long-wait", Critical, finding, "a client has been waiting for 30 s or more for a hold that is not renewed", longWaitRemedy}},
		{longWait(Warning), Problem{"long-wait", Warning, finding, "a client has been waiting for 30 s or more for a hold that is not renewed", longWaitRemedy}},
		{zombieHead, Problem{"zombie-head", Warning, finding, "the first waiter of the queue is dead",
			"The next client that asks for the lock removes the dead waiter. If the lock is free, wake the next waiter: {wake} if the library has one."}},
		{starving, Problem{"starving", Warning, finding, "at least 10 later waiters have overtaken a waiter",
			"Use a lock with a queue: without one, the client that asks at the right moment wins."}},
		{writerStarved, Problem{"writer-starved", Warning, finding, "a writer has been waiting for more than 10 s while readers hold the lock",
			"Use a lock that lets readers wait while a writer waits, or make the readers pause."}},
		{reentryLeak, Problem{"reentry-leak", Warning, finding, "a holder has reentered the lock at least 10 times without an exit",
			"Look for a path in the holder's code that acquires the lock and does not release it. Until then the lock ends at its deadline, or with the holder."}},
		{minority, Problem{"minority", Warning, finding, "too few servers of a Redlock have its token: a leftover, a failed acquire, or lost copies",
			"No action if no server has lost its keys, by a restart for example: it blocks other clients only until its deadline. If it stays, its owner did not release it on every server, or uses other servers."}},
		{ttlTooShort, Problem{"ttl-too-short", Warning, cause, "holds end by expiry while their clients may still work",
			"Make the time to live longer than the work, or renew the lock during the work: another client may have acquired it before the work was done."}},
		{andAsked(holderGone), Problem{"holder-gone", Warning, cause, "the connection of the holder has ended, and the lock stays held",
			"Make sure that the process has ended, not only its connection. Then force-release the lock, or wait for its deadline."}},
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
		if age.Duration == 0 && !age.Wide() {
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
		return fmt.Sprintf("Held for %s; the limit is %s.", age, humanize.Setting(longHold))
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
	goneTooLong = 5 * time.Second  // for a client to reconnect
)

// renewedForever finds holds with many renewals, unless a limit is configured for them: a
// leader, for example, renews its lock as long as it lives.
func renewedForever(l *Lock, now time.Time) string {
	every := max(l.RenewedEvery, -l.RenewedEvery)
	if l.Renewals < manyRenewed || l.OverdueIn > 0 || l.renewalLate(now) > 0 || every > 0 && now.Sub(l.Renewed) > missed*every {
		return ""
	}
	return fmt.Sprintf("Renewed %s. A renewal does not show that the work goes on.", humanize.Times(l.Renewals))
}

// waitersNoHolder finds free locks whose waiters were not woken.
func waitersNoHolder(l *Lock, now time.Time) string {
	free := now.Sub(l.UnheldSince)
	if l.State(now) != Waiting || l.UnheldSince.IsZero() || free <= FreeTooLong {
		return ""
	}
	if dead := headDeadFor(l, now); dead > deadTooLong {
		return fmt.Sprintf("Free for %s while %s wait: the first in the queue has not answered for %s.", humanize.Duration(free), humanize.Count(l.WaiterCount()), humanize.Duration(dead))
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
		return fmt.Sprintf("The only waiter in its queue has not answered for %s.", humanize.Duration(dead))
	}
	return fmt.Sprintf("Its first waiter has not answered for %s: %s behind it.", humanize.Duration(dead), counted(len(l.Waiters)-1, "1 other waits", " others wait"))
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
	took := ""
	if age := worst.Age(now); age.Duration != 0 { // it is known
		took = ", in " + age.String()
	}
	return fmt.Sprintf("%s was overtaken by %s later waiters%s.", worst.ID, humanize.Count(worst.OvertakenBy), took)
}

// writerStarved finds writers that readers block.
func writerStarved(l *Lock, now time.Time) string {
	if l.State(now) != ReadHeld {
		return ""
	}
	for _, w := range l.Waiters {
		if age := w.Age(now); w.Mode == Write && age.Duration > writerWaits {
			return fmt.Sprintf("A writer has been waiting for %s while %s.", age, counted(len(l.Holders), "a reader holds it", " readers hold it"))
		}
	}
	return ""
}

// counted returns one for 1, else the number and the text for many.
func counted(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return humanize.Count(n) + many
}

// reentryLeak finds holders that reenter and never exit.
func reentryLeak(l *Lock, _ time.Time) string {
	if l.ReentryStreak < onlyGrows {
		return ""
	}
	return fmt.Sprintf("Reentered %s without an exit; its count is %s.", humanize.Times(l.ReentryStreak), humanize.Count(l.Depth()))
}

// minority finds Redlocks with too few copies. It reports nothing during an acquire, or
// if silent servers could complete the majority.
func minority(l *Lock, now time.Time) string {
	tokens, votes, silent := countTokens(l)
	if l.State(now) != Partial || tokens != 1 || votes+silent >= Quorum(len(l.Votes)) || beingAcquired(l, now) || votesLost(l, now) != "" {
		return ""
	}
	why := "a leftover, a failed acquire, or other servers have lost their copies"
	if !l.Renewed.IsZero() {
		why = fmt.Sprintf("renewed %s ago: its client may use other servers", humanize.Duration(now.Sub(l.Renewed)))
	}
	return fmt.Sprintf("On %d of %d servers, which is no majority: %s.", votes, len(l.Votes), why)
}

// split finds Redlocks with several tokens and no majority.
func split(l *Lock, now time.Time) string {
	tokens, most, silent := countTokens(l)
	if l.State(now) != Partial || tokens < 2 || most+silent >= Quorum(len(l.Votes)) || beingAcquired(l, now) || votesLost(l, now) != "" {
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
			text := fmt.Sprintf("%s has not been connected for %s", h.Name(), humanize.Duration(now.Sub(h.DisconnectedAt)))
			if closed := h.Closed(); closed != "" {
				text += ": " + closed
			}
			return text + "."
		}
	}
	return ""
}
