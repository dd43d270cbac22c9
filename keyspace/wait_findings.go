package keyspace

import (
	"fmt"
	"time"

	"locktop/internal/humanize"
)

// Thresholds of what the past of a lock says.
const (
	contendedFor = 10 * time.Second       // with waiters all the time
	heldAtMost   = 0.7                    // share of that time in which the lock is held, at most
	regularFrom  = 3                      // renewals
	renewalLag   = 200 * time.Millisecond // by which a renewal is read late, at most
	spare        = 10                     // renewals that a hold can miss without danger
	missed       = 3                      // renewals after which they have stopped, however far the deadline is
)

// MaxBreak is how long no waiter may be seen while clients wait without a break: some locks show
// only the waiter that is next, once it has polled.
const MaxBreak = time.Second

// slowHandOff finds locks whose waiters take longer to notice a release than the holds take. A request
// of a client does not make it a waiter here: clients that try once for each run of a job are
// refused, too, and leave the lock free until the next run. And a client that is seen to ask again
// and again asks at least every 2 s, so it notices a release within 2 s, but only during holds of
// more than 2 s is that seen.
func slowHandOff(l *Lock, now time.Time) string {
	p := l.Past
	if p == nil || l.WaiterCount() == 0 && now.Sub(p.WaiterSeen) > MaxBreak || p.ContendedAt.IsZero() || now.Sub(p.ContendedAt) < contendedFor ||
		l.MedianHold == 0 || p.HandOffP50 <= l.MedianHold {
		return ""
	}
	free, passed := p.Free, now.Sub(p.FreeSince)
	if len(l.Holders) == 0 && !l.UnheldSince.IsZero() {
		free += min(passed, now.Sub(l.UnheldSince))
	}
	if float64(passed-free) >= heldAtMost*float64(passed) {
		return ""
	}
	waiters := "waiters poll"
	if n := l.WaiterCount(); n > 0 {
		waiters = counted(n, "waiter polls", " waiters poll")
	}
	return fmt.Sprintf("Between two holds the lock is free for %s, and the holds take %s: its %s too slowly.",
		humanize.Duration(p.HandOffP50), humanize.Duration(l.MedianHold), waiters)
}

// renewalsStopped finds holds that were renewed regularly, and whose next renewal is late. If the
// deadline is far away, compared with the renewals, several of them must be missing.
func renewalsStopped(l *Lock, now time.Time) string {
	late := l.renewalLate(now)
	left, expires := l.TTL(now)
	if late == 0 || l.Renewals < regularFrom || l.SoleHolder() == "" || !expires || left <= 0 || left > spare*l.RenewedEvery && late < (missed-1)*l.RenewedEvery {
		return ""
	}
	return fmt.Sprintf("Renewed every %s, and the next renewal is %s late: the lock ends in %s.",
		humanize.Duration(l.RenewedEvery), humanize.Duration(late), humanize.Duration(left))
}

// renewalLate returns by how much the next renewal is late: at least half a period, or 0. It is 0 if no period is known.
func (l *Lock) renewalLate(at time.Time) time.Duration {
	late := at.Sub(l.Renewed) - l.RenewedEvery
	if l.RenewedEvery <= 0 || late < max(l.RenewedEvery/2, renewalLag) {
		return 0
	}
	return late
}

// readerLapsed finds readers that a lock still lists although their own leases are over.
func readerLapsed(l *Lock, now time.Time) string {
	for _, h := range l.Holders {
		at := Earliest(now, l.ReadAt)
		over := !h.Expires.IsZero() && (h.Expires.Equal(l.ReadAt) || at.Sub(h.Expires) > stampGrace)
		if over && h.Mode == Read && l.Expires.After(at) {
			return fmt.Sprintf("The lease of %s is over, and its entry keeps writers out until the lock ends.", h.Name())
		}
	}
	return ""
}

// longWaitRemedy is the remedy of all severities of a long wait.
const longWaitRemedy = "Find out whether the holder still works, and what it waits for itself. Shorten the holds, or use several keys."

// longWait returns a rule that finds locks with a long wait of a severity.
func longWait(severity Severity) func(*Lock, time.Time) string {
	return func(l *Lock, now time.Time) string {
		if wait, how := l.LongestWait(now); wait.Duration >= waitNoticed && how == severity {
			return fmt.Sprintf("A client has been waiting for %s.", wait)
		}
		return ""
	}
}

// Limits of long waits.
const (
	waitNoticed  = 5 * time.Second // Info
	waitLong     = 30 * time.Second
	waitCritical = time.Minute
)

// LongestWait returns the longest wait of a living waiter of a held lock, and how severe it is:
// Info from 5 s on, Warning from 30 s, Critical from 60 s. It is zero if no wait lasts for 5 s.
// Waits for a hold that is renewed, such as that of a leader, and within a limit that is
// configured for the holds, are only Info.
func (l *Lock) LongestWait(now time.Time) (Age, Severity) {
	var longest Age
	for i := range l.Waiters {
		if w := &l.Waiters[i]; w.DeadFor(now) == 0 {
			longest = longerAge(longest, w.Age(now))
		}
	}
	switch {
	case longest.Duration < waitNoticed || len(l.Holders) == 0:
		return Age{}, Info
	case longest.Duration < waitLong || l.Renewals > 0 || l.OverdueIn > 0 && l.Age(now).Duration <= l.OverdueIn:
		return longest, Info
	case longest.Duration < waitCritical:
		return longest, Warning
	default:
		return longest, Critical
	}
}

// ttlTooShort finds locks that expire while they are held, and says which TTL would have fitted.
func ttlTooShort(l *Lock, _ time.Time) string {
	if l.ExpiryStreak < overruns {
		return ""
	}
	text := fmt.Sprintf("The last %d holds ended by expiry, and none of them by a release", l.ExpiryStreak)
	p := l.Past
	if p == nil || p.TTL == 0 || p.HoldP99 == 0 {
		return text + "."
	}
	sign := ""
	if p.AtLeast {
		sign = "≥ "
	}
	return fmt.Sprintf("%s: hold p99 %s%s, TTL %s.", text, sign, humanize.Duration(p.HoldP99), humanize.Duration(p.TTL))
}
