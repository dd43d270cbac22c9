package recording

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

	"locktop/keyspace"
)

// Redactor replaces tokens in snapshots by hashes, because a token permits its reader
// to release the lock. Each Redactor has its own salt and gives the same token always
// the same hash.
type Redactor struct{ salt [16]byte }

// NewRedactor returns a Redactor with a new salt.
func NewRedactor() *Redactor {
	r := &Redactor{}
	_, _ = rand.Read(r.salt[:]) // never fails
	return r
}

// Redact returns a copy of the snapshot without tokens.
func (r *Redactor) Redact(s keyspace.Snapshot) keyspace.Snapshot {
	same := func(text string) string { return text }
	s = mapTexts(s, same, r.hash)
	for i := range s.Locks {
		s.Locks[i].Why = nil // it may quote a token
	}
	for i := range s.Events {
		s.Events[i].Lock.Why = nil
	}
	return s
}

func (r *Redactor) hash(token string) string {
	if token == "" {
		return ""
	}
	sum := sha256.Sum256(append(r.salt[:], token...))
	return "redacted-" + hex.EncodeToString(sum[:6])
}
