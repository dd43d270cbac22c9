package recording

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"locktop/keyspace"
)

// redactor replaces the secret parts of tokens by hashes. It has its own salt, and gives the same part always the same
// hash.
type redactor struct{ salt [16]byte }

// newRedactor returns a redactor with a new salt.
func newRedactor() *redactor {
	r := &redactor{}
	_, _ = rand.Read(r.salt[:]) // never fails
	return r
}

// saltName is the file with the salt of a directory. With the salt, a token can be tried,
// so only the owner of the recording can read it.
const saltName = "salt"

// redactorIn returns the redactor of a directory of segments: the same token has the same
// hash in all of them. If the salt cannot be stored, it is a new one.
func redactorIn(dir string) *redactor {
	name := filepath.Join(dir, saltName)
	r := newRedactor()
	stored, err := os.ReadFile(name)
	if err == nil && len(stored) == len(r.salt) {
		copy(r.salt[:], stored)
		return r
	}
	_ = os.WriteFile(name, r.salt[:], 0o600) // without it, only a restart is worse
	return r
}

// hash returns a token without its secret parts. A host, a process ID or the name of a client stays: they are what
// a reader follows to a log. A longer token of one part is secret as a whole, also if it is a number.
func (r *redactor) hash(token string) string {
	var b strings.Builder
	alone := len(token) > 6 && !strings.ContainsAny(token, tokenSeparators+"-._")
	for token != "" {
		n := strings.IndexAny(token, tokenSeparators)
		switch {
		case n < 0:
			n = len(token)
		case n == 0:
			b.WriteByte(token[0])
			token = token[1:]
			continue
		}
		if part := token[:n]; !alone && readable.MatchString(part) {
			b.WriteString(part)
		} else {
			sum := sha256.Sum256(append(r.salt[:], part...))
			b.WriteString(keyspace.RedactedToken + hex.EncodeToString(sum[:6]))
		}
		token = token[n:]
	}
	return b.String()
}

// tokenSeparators stand between the parts of a token.
const tokenSeparators = ":@|~#,; "

// readable matches a part of a token that is no secret: a number or a time, or names joined by - . or _, such as a host or a
// pod. A name has at most 8 letters in a row: by chance, few random texts look so.
var readable = regexp.MustCompile(`^([0-9]{1,13}|[0-9]{1,3}(\.[0-9]{1,3}){3}|([A-Za-z]?[a-z]{0,7}|[A-Z]{1,8})[0-9]{0,4}([-._]([A-Za-z]?[a-z]{0,7}[0-9]{0,5}|[0-9a-f]{8,10}|[0-9a-z]{5}))*)$`)

// JSON strings cannot hold arbitrary bytes, but keys and tokens can. A text that is
// not UTF-8 is stored as U+0000 and its base64 form.
const binaryMark = "\x00"

func escapeText(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, binaryMark) {
		return s
	}
	return binaryMark + base64.StdEncoding.EncodeToString([]byte(s))
}

// unescapeText reverses escapeText. It returns other texts unchanged.
func unescapeText(s string) string {
	encoded, binary := strings.CutPrefix(s, binaryMark)
	if !binary {
		return s
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return s
	}
	return string(raw)
}

// mapLock returns a copy of l with name applied to keys and labels, and token to tokens and
// IDs.
func mapLock(l keyspace.Lock, name, token func(string) string) keyspace.Lock {
	l.Key = name(l.Key)
	l.Holders, l.Waiters, l.Votes, l.Evidence = slices.Clone(l.Holders), slices.Clone(l.Waiters), slices.Clone(l.Votes), slices.Clone(l.Evidence)
	for i := range l.Holders {
		l.Holders[i].ID, l.Holders[i].Label = token(l.Holders[i].ID), name(l.Holders[i].Label)
	}
	for i := range l.Waiters {
		l.Waiters[i].ID = token(l.Waiters[i].ID)
	}
	for i := range l.Votes {
		l.Votes[i].Token = token(l.Votes[i].Token)
	}
	for i := range l.Evidence {
		l.Evidence[i] = name(l.Evidence[i])
	}
	return l
}
