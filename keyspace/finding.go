package keyspace

import (
	"cmp"
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
	Lock     ID     // zero: it concerns the servers
	Server   string // address of the one that it concerns, if it is not about a lock; "": all of them
	Text     string // one sentence
	Remedy   string // the safe thing to do, one sentence
}

// Findings lists what is wrong with the locks of a snapshot, in the order of
// the locks, and of the rules for each.
func Findings(s Snapshot) []Finding {
	var all []Finding
	known := rules()
	for i := range s.Locks {
		l := &s.Locks[i]
		for _, r := range known {
			if text := r.check(l, s.At); text != "" {
				all = append(all, Finding{ID: r.id, Severity: r.severity, Lock: l.ID(), Text: text, Remedy: r.remedy})
			}
		}
	}
	return all
}

// SortBySeverity returns the locks of a snapshot, those that do most damage first:
// by the severest of their findings, then by how many wait times how long the
// lock is held, then in the order of the snapshot.
func SortBySeverity(s Snapshot, findings []Finding) []Lock {
	severest := make(map[ID]int)
	for _, f := range findings {
		severest[f.Lock] = max(severest[f.Lock], int(f.Severity)+1)
	}
	damages := make([]damage, len(s.Locks))
	for i := range s.Locks {
		l := &s.Locks[i]
		damages[i] = damage{severest[l.ID()], l.waited(s.At), i}
	}
	slices.SortFunc(damages, func(a, b damage) int {
		return cmp.Or(cmp.Compare(b.severity, a.severity), cmp.Compare(b.waited, a.waited), cmp.Compare(a.place, b.place))
	})
	locks := make([]Lock, len(damages))
	for i, d := range damages {
		locks[i] = s.Locks[d.place]
	}
	return locks
}

// damage is what a lock is ordered by: to move these is cheaper than to move
// locks.
type damage struct {
	severity int
	waited   time.Duration
	place    int // in the snapshot
}

// waited is how much time is lost to a lock, to compare it with others.
func (l Lock) waited(now time.Time) time.Duration {
	return time.Duration(l.WaiterCount()) * l.Age(now)
}
