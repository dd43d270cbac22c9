package metrics

import (
	"slices"
	"time"

	"locktop/keyspace"
)

// view has the numbers of one reading.
type view struct {
	groups   map[groupID]groupGauges
	findings findings
	copies   map[copyState]int   // of Redlocks; nil if there are none
	locks    map[lockID]lockView // of Options.Locks
	classes  map[classID]classGauges
}

// lockView is a lock of Options.Locks.
type lockView struct {
	held            bool
	deadline, since time.Time // zero = there is none, or it is unknown
}

// copyState is what a server has of a Redlock.
type copyState string

// States of copies.
const (
	copyHeld        copyState = "held"        // the token that most servers have
	copyOther       copyState = "other"       // another token
	copyMissing     copyState = "missing"     // no token
	copyUnreachable copyState = "unreachable" // the server did not answer
)

// copyStates lists all states of copies.
func copyStates() []copyState {
	return []copyState{copyHeld, copyOther, copyMissing, copyUnreachable}
}

// newView counts what r shows.
func newView(r Reading, o Options) view {
	v := view{
		groups: make(map[groupID]groupGauges), findings: make(findings),
		locks: make(map[lockID]lockView), classes: make(map[classID]classGauges),
	}
	for i := range r.Locks {
		l := r.Locks[i]
		v.addLock(l, r.At)
		v.addCopies(l.Votes)
		if slices.Contains(o.Locks, l.Key) {
			v.addListed(l, r.At)
		}
		if o.Classes {
			id := classID{l.DB, keyspace.ClassOf(l.Key)}
			c := v.classes[id]
			c.locks++
			c.waiters += l.WaiterCount()
			v.classes[id] = c
		}
	}
	count := func(f keyspace.Finding, class classID) {
		v.findings.add(keyspace.FindingKind{ID: f.ID, Severity: f.Severity}, class, 1)
	}
	for _, f := range keyspace.Findings(r.Snapshot) {
		class := noClass
		if o.Classes {
			class = classID{f.Lock.DB, keyspace.ClassOf(f.Lock.Key)}
		}
		count(f, class)
	}
	for _, f := range keyspace.ServerFindings(r.Snapshot) {
		count(f, noClass)
	}
	return v
}

// addLock counts a lock in its group.
func (v *view) addLock(l *keyspace.Lock, now time.Time) {
	id := groupID{l.DB, l.Format}
	g, ok := v.groups[id]
	if !ok {
		g.locks = make(map[keyspace.State]int)
	}
	g.locks[l.State(now)]++
	g.waiters += l.WaiterCount()
	g.oldest = earliest(g.oldest, since(l))
	v.groups[id] = g
}

// addListed adds a lock of Options.Locks. Of several servers with the key, one holder is
// enough.
func (v *view) addListed(l *keyspace.Lock, now time.Time) {
	switch l.State(now) {
	case keyspace.Free, keyspace.Waiting:
		if id := (lockID{l.DB, l.Key}); !v.locks[id].held {
			v.locks[id] = lockView{}
		}
	default:
		v.locks[lockID{l.DB, l.Key}] = lockView{true, l.Expires, since(l)}
	}
}

// addCopies counts the copies of a Redlock.
func (v *view) addCopies(votes []keyspace.Vote) {
	if len(votes) == 0 {
		return
	}
	if v.copies == nil {
		v.copies = make(map[copyState]int)
	}
	most := mostFrequent(votes)
	for _, vote := range votes {
		switch {
		case vote.Unreachable:
			v.copies[copyUnreachable]++
		case vote.Token == "":
			v.copies[copyMissing]++
		case vote.Token == most:
			v.copies[copyHeld]++
		default:
			v.copies[copyOther]++
		}
	}
}

// mostFrequent returns the token that most servers have; of several, the first one.
func mostFrequent(votes []keyspace.Vote) (token string) {
	counts, most := make(map[string]int), 0
	for _, v := range votes {
		if v.Token != "" {
			counts[v.Token]++
			most = max(most, counts[v.Token])
		}
	}
	for _, v := range votes {
		if v.Token != "" && counts[v.Token] == most {
			return v.Token
		}
	}
	return ""
}

// since returns the earliest begin of a hold of l, or when it was first seen; zero if
// neither is known.
func since(l *keyspace.Lock) (first time.Time) {
	for _, h := range l.Holders {
		first = earliest(first, earliest(h.Since, h.Seen))
	}
	return first
}

// earliest returns the earlier of two times. A zero time is unknown.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
