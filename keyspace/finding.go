package keyspace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Severity orders findings.
type Severity uint8

// From a hint to something that does damage now.
const (
	Info Severity = iota
	Warning
	Critical
)

// String returns the word of the JSON contract.
func (s Severity) String() string { return [...]string{"info", "warning", "critical"}[s] }

// Finding is something wrong with a lock, in one sentence, with what to do about it.
type Finding struct {
	ID       string // stable: never-expires, overdue …
	Severity Severity
	Lock     ID
	Text     string // one sentence
	Remedy   string // the safe thing to do, one sentence
}

// rule looks for one thing that can be wrong with a lock.
type rule struct {
	id       string
	severity Severity
	remedy   string
	// check returns what is wrong, in one sentence, or "".
	check func(l Lock, now time.Time) string
}

// rules lists all of them, in the order in which their findings are listed.
func rules() []rule {
	return []rule{
		{
			id: "never-expires", severity: Critical, check: neverExpires,
			remedy: "Find out whether the holder still works; if it does not, give the key a deadline with PEXPIRE rather than delete it, so that nobody loses a lock by mistake.",
		},
		{
			id: "overdue", severity: Warning, check: overdue,
			remedy: "Ask the holder what keeps it, and stop it there: to break the lock would let somebody else in while it still works.",
		},
	}
}

// Findings lists what is wrong with the locks of a snapshot, in the order of
// the locks, and of the rules for each.
func Findings(s Snapshot) []Finding {
	var all []Finding
	for _, l := range s.Locks {
		for _, r := range rules() {
			if text := r.check(l, s.At); text != "" {
				all = append(all, Finding{ID: r.id, Severity: r.severity, Lock: l.ID(), Text: text, Remedy: r.remedy})
			}
		}
	}
	return all
}

// neverExpires finds locks that nothing will end if their holder dies.
func neverExpires(l Lock, now time.Time) string {
	if l.State() != Stuck {
		return ""
	}
	age := l.Age(now)
	if age == 0 {
		return "Held without a deadline: if its holder dies, nothing will ever free it."
	}
	return fmt.Sprintf("Held for %s without a deadline: if its holder dies, nothing will ever free it.", rough(age))
}

// What is long for a hold.
const (
	longHold    = 10 * time.Minute
	unusualHold = 30 * time.Second // below it, being unusually long is harmless
	unusual     = 20               // times the median
)

// overdue finds locks that are held for very long, or much longer than they
// use to be.
func overdue(l Lock, now time.Time) string {
	age := l.Age(now)
	switch {
	case l.Typical > 0 && age > unusual*l.Typical && age > unusualHold:
		return fmt.Sprintf("Held for %s, where half of its holds are over in %s.", rough(age), rough(l.Typical))
	case age > longHold:
		return fmt.Sprintf("Held for %s.", rough(age))
	}
	return ""
}

// rough drops what nobody wants to know of a duration.
func rough(d time.Duration) time.Duration {
	switch {
	case d >= time.Minute:
		return d.Round(time.Second)
	case d >= time.Second:
		return d.Round(100 * time.Millisecond)
	default:
		return d.Round(time.Millisecond)
	}
}

// ByDamage returns the locks of a snapshot, those that do most damage first:
// by the severest of their findings, then by how many wait times how long the
// lock is held, then in the order of the snapshot.
func ByDamage(s Snapshot, findings []Finding) []Lock {
	severest := make(map[ID]int)
	for _, f := range findings {
		severest[f.Lock] = max(severest[f.Lock], int(f.Severity)+1)
	}
	locks := slices.Clone(s.Locks)
	slices.SortStableFunc(locks, func(a, b Lock) int {
		return cmp.Or(
			cmp.Compare(severest[b.ID()], severest[a.ID()]),
			cmp.Compare(b.waited(s.At), a.waited(s.At)),
		)
	})
	return locks
}

// waited is how much time is lost to a lock, to compare it with others.
func (l Lock) waited(now time.Time) time.Duration {
	return time.Duration(l.Crowd()) * l.Age(now)
}
