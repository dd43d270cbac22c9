package keyspace

import (
	"cmp"
	"slices"
	"time"

	"locktop/keyspace/internal/sorted"
)

// Review is what the locks of a snapshot show together: their problems, their waiters and their
// order. It is immutable.
type Review struct {
	Findings  []Finding  // see [Findings]
	Deadlocks []Deadlock // see [Deadlocks]
	Waiters   int        // number of waiters of all locks
	AtLeast   bool       // there may be more waiters: clients ask for a lock that shows none
	CheckedAt time.Time  // time of the snapshot in which all locks were checked

	at      time.Time
	locks   []*Lock        // as in the snapshot
	byName  []*Lock        // the same in the order of names
	notable map[*Lock]bool // those with a finding or a waiter
}

// Next returns the review of the next snapshot. Unless all is set, it checks only the locks that
// have changed or had a finding or a waiter: to check 200,000 locks takes 200 ms. A finding
// that needs only time to pass, such as overdue, appears with the next check of all.
func (r *Review) Next(s Snapshot, all bool) *Review {
	n := &Review{CheckedAt: r.CheckedAt, at: s.At, locks: s.Locks}
	if len(r.locks) == 0 {
		n.byName = slices.SortedFunc(slices.Values(s.Locks), compareNames)
		all = true
	}
	check := n.take(r)
	if all {
		check, n.CheckedAt = s.Locks, s.At
	}
	s.Locks = check
	n.Deadlocks = Deadlocks(s)
	n.Findings = findings(s, n.Deadlocks)
	found := make(map[ID]bool, len(n.Findings))
	for i := range n.Findings {
		found[n.Findings[i].Lock] = true
	}
	n.notable = make(map[*Lock]bool, len(r.notable))
	for _, l := range check {
		waiters := l.LeastWaiters(s.At)
		n.Waiters, n.AtLeast = n.Waiters+waiters, n.AtLeast || waiters > l.WaiterCount()
		if waiters > 0 || len(found) > 0 && found[l.ID()] {
			n.notable[l] = true
		}
	}
	return n
}

// take takes the order of names over from the review before, and returns the locks that have
// changed since, or were notable then.
func (r *Review) take(before *Review) (check []*Lock) {
	replaced := make(map[*Lock]*Lock) // nil = gone
	var added []*Lock
	for was, is := range Pairs(before.locks, r.locks) {
		switch {
		case was == is:
			if before.notable[is] {
				check = append(check, is)
			}
			continue
		case was == nil:
			added = append(added, is)
		default:
			replaced[was] = is
		}
		if is != nil {
			check = append(check, is)
		}
	}
	if r.byName != nil {
		return check
	}
	r.byName = make([]*Lock, 0, len(r.locks))
	for _, l := range before.byName {
		if len(replaced) > 0 {
			if is, changed := replaced[l]; changed {
				l = is
			}
		}
		if l != nil {
			r.byName = append(r.byName, l)
		}
	}
	slices.SortFunc(added, compareNames)
	r.byName = sorted.Insert(r.byName, added, compareNames)
	return check
}

// Order returns the locks ordered by their most severe finding of some of the findings of the
// review, then by number of waiters times age, then by name. They are the locks of the snapshot,
// not copies. The result must not be changed.
func (r *Review) Order(findings []Finding) []*Lock {
	severest := make(map[ID]int)
	for i := range findings {
		f := &findings[i]
		severest[f.Lock] = max(severest[f.Lock], int(f.Severity)+1)
	}
	var first []rank
	for l := range r.notable {
		k := rank{l, 0, time.Duration(l.LeastWaiters(r.at)) * l.Age(r.at).Duration}
		if len(severest) > 0 {
			k.severity = severest[l.ID()]
		}
		if k.severity > 0 || k.totalWait > 0 {
			first = append(first, k)
		}
	}
	if len(first) == 0 {
		return r.byName
	}
	slices.SortFunc(first, func(a, b rank) int {
		return cmp.Or(cmp.Compare(b.severity, a.severity), cmp.Compare(b.totalWait, a.totalWait), compareNames(a.lock, b.lock))
	})
	locks := make([]*Lock, 0, len(r.byName))
	isFirst := make(map[*Lock]bool, len(first))
	for _, k := range first {
		locks, isFirst[k.lock] = append(locks, k.lock), true
	}
	for _, l := range r.byName { // most locks have no finding and no waiter
		if !isFirst[l] {
			locks = append(locks, l)
		}
	}
	return locks
}

// rank is what [Review.Order] compares.
type rank struct {
	lock      *Lock
	severity  int
	totalWait time.Duration
}

// compareNames orders locks by their names, and those of one name as in a snapshot.
func compareNames(a, b *Lock) int {
	return cmp.Or(CompareNames(a.Key, b.Key), CompareLocks(a, b))
}
