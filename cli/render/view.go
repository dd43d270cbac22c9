// Package render writes locks, events and findings as text: tables, CSV, JSON, and sentences.
// It escapes every character from Redis that a terminal may interpret.
package render

import "locktop/keyspace"

// View is a snapshot with its findings.
type View struct {
	keyspace.Snapshot
	Findings  map[keyspace.ID][]keyspace.Finding
	Databases bool // the locks are in more than one database
}

// NewView returns a view of a snapshot. Lines for people name the database if databases is true.
func NewView(snap keyspace.Snapshot, databases bool) View {
	byLock := map[keyspace.ID][]keyspace.Finding{}
	for _, f := range keyspace.Findings(snap) {
		byLock[f.Lock] = append(byLock[f.Lock], f)
	}
	return View{snap, byLock, databases}
}

// Troubled returns the number of locks with findings.
func (v View) Troubled() int {
	n := 0
	for _, l := range v.Locks {
		if len(v.Findings[l.ID()]) > 0 {
			n++
		}
	}
	return n
}
