package tui

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// privacy replaces keys, owners and addresses by hashes, so that the user can show the screen
// to others. The salt is random for each run, because hashes of short names could be guessed.
type privacy struct {
	on   bool
	salt [16]byte
}

// redact returns a name for display: escaped, or in privacy mode its hash after a prefix.
func (s *state) redact(prefix, name string) string {
	if !s.privacy.on || name == "" {
		return widget.Plain(name)
	}
	sum := sha256.Sum256(append(s.privacy.salt[:], name...))
	return prefix + hex.EncodeToString(sum[:4])
}

// redactKey returns a key for display.
func (s *state) redactKey(key string) string { return s.redact("key-", key) }

// redactOwner returns the name of an owner or a waiter for display.
func (s *state) redactOwner(name string) string { return s.redact("owner-", name) }

// redactAddr returns an address for display.
func (s *state) redactAddr(addr string) string { return s.redact("node-", addr) }

// redactText returns a sentence about a lock, or about the servers, for display. If the lock is
// unknown in privacy mode, it returns an ellipsis.
func (s *state) redactText(about keyspace.ID, text string) string {
	if !s.privacy.on {
		return widget.Plain(text)
	}
	hidden := redactions{}
	switch l, ok := s.current().lock(about); {
	case about == (keyspace.ID{}):
		snap := &s.current().snap
		hidden[snap.Server.Addr] = s.redactAddr(snap.Server.Addr)
		for i := range snap.Nodes {
			hidden[snap.Nodes[i].Addr] = s.redactAddr(snap.Nodes[i].Addr)
		}
	case !ok:
		return s.screen.glyphs.Ellipsis
	default:
		s.redactLock(hidden, &l)
		s.redactDeadlocks(hidden, about)
	}
	return widget.Plain(hidden.apply(text))
}

// redactDeadlocks adds the names in the finding of a deadlock, which are also those of other
// locks.
func (s *state) redactDeadlocks(hidden redactions, of keyspace.ID) {
	for _, d := range s.current().review.Deadlocks {
		if slices.ContainsFunc(d.Waits, func(w keyspace.Wait) bool { return w.Lock.ID() == of }) {
			for _, w := range d.Waits {
				s.redactLock(hidden, w.Lock)
			}
		}
	}
}

// redactions has the replacements of names.
type redactions map[string]string

// apply replaces all names in a text. Longer names have priority: replacing a prefix would
// reveal the rest.
func (m redactions) apply(text string) string {
	delete(m, "")
	var pairs []string
	for _, name := range slices.SortedFunc(maps.Keys(m), func(a, b string) int { return len(b) - len(a) }) {
		pairs = append(pairs, name, m[name])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (s *state) redactLock(m redactions, l *keyspace.Lock) {
	m[l.Key], m[l.Node] = s.redactKey(l.Key), s.redactAddr(l.Node)
	for i := range l.Holders {
		id, label := l.Holders[i].ID, l.Holders[i].Label
		m[id], m[label] = s.redactOwner(id), s.redactOwner(label)
	}
	for i := range l.Waiters {
		m[l.Waiters[i].ID] = s.redactOwner(l.Waiters[i].ID)
	}
}

// togglePrivacy toggles privacy mode.
func (s *state) togglePrivacy() {
	s.privacy.on = !s.privacy.on
	if s.privacy.on {
		s.notify(s.keymap.named("keys and owners are hashed; {privacy} shows them again"))
		return
	}
	s.notify("keys and owners are shown")
}
