package recording

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"locktop/keyspace"
)

// Redactor takes out of snapshots what is a secret: tokens, which would let
// whoever has the recording release the locks, become hashes. The hashes are
// salted anew each time, and the same token has the same one all along.
type Redactor struct{ salt [16]byte }

// NewRedactor returns a redactor with a salt of its own.
func NewRedactor() *Redactor {
	r := &Redactor{}
	_, _ = rand.Read(r.salt[:]) // never fails
	return r
}

// Redact returns the snapshot without the secrets.
func (r *Redactor) Redact(s keyspace.Snapshot) keyspace.Snapshot {
	s.Locks = slices.Clone(s.Locks)
	for i := range s.Locks {
		s.Locks[i] = r.lock(s.Locks[i])
	}
	s.Events = slices.Clone(s.Events)
	for i := range s.Events {
		e := &s.Events[i]
		e.Lock, e.Holder.ID, e.Waiter.ID = r.lock(e.Lock), r.hash(e.Holder.ID), r.hash(e.Waiter.ID)
	}
	return s
}

func (r *Redactor) lock(l keyspace.Lock) keyspace.Lock {
	l.Holders, l.Waiters, l.Votes, l.Why = slices.Clone(l.Holders), slices.Clone(l.Waiters), slices.Clone(l.Votes), nil
	for i := range l.Holders {
		l.Holders[i].ID = r.hash(l.Holders[i].ID)
	}
	for i := range l.Waiters {
		l.Waiters[i].ID = r.hash(l.Waiters[i].ID)
	}
	for i := range l.Votes {
		l.Votes[i].Token = r.hash(l.Votes[i].Token)
	}
	return l
}

func (r *Redactor) hash(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256(append(r.salt[:], token...))
	return "redacted-" + hex.EncodeToString(sum[:6])
}
