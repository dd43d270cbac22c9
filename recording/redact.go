package recording

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"

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

// Redact returns a copy of the snapshot without the secrets.
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
