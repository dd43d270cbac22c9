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

// hash returns a name for display: escaped, or in privacy mode its hash after a prefix.
func (p *privacy) hash(prefix, name string) string {
	if !p.on || name == "" {
		return widget.Plain(name)
	}
	sum := sha256.Sum256(append(p.salt[:], name...))
	return prefix + hex.EncodeToString(sum[:4])
}

// key returns a key for display.
func (p *privacy) key(key string) string { return p.hash("key-", key) }

// owner returns the name of an owner or a waiter for display.
func (p *privacy) owner(name string) string { return p.hash("owner-", name) }

// addr returns an address for display.
func (p *privacy) addr(addr string) string { return p.hash("node-", addr) }

// redactText returns a sentence about a lock, or about the servers, for display. If the lock is
// unknown in privacy mode, it returns an ellipsis.
func (s *state) redactText(about keyspace.ID, text string) string {
	if !s.privacy.on {
		return widget.Plain(text)
	}
	p, model, hidden := &s.privacy, s.current(), redactions{}
	switch l, ok := model.lock(about); {
	case about == (keyspace.ID{}):
		hidden[model.snap.Server.Addr] = p.addr(model.snap.Server.Addr)
		for i := range model.snap.Nodes {
			hidden[model.snap.Nodes[i].Addr] = p.addr(model.snap.Nodes[i].Addr)
		}
	case !ok:
		return s.screen.glyphs.Ellipsis
	default:
		hidden.add(p, &l)
		for _, d := range model.review.Deadlocks { // the finding names the other locks too
			if slices.ContainsFunc(d.Waits, func(w keyspace.Wait) bool { return w.Lock.ID() == about }) {
				for _, w := range d.Waits {
					hidden.add(p, w.Lock)
				}
			}
		}
	}
	return widget.Plain(hidden.apply(text))
}

// redactions has the replacements of names.
type redactions map[string]string

// add adds the names of a lock.
func (m redactions) add(p *privacy, l *keyspace.Lock) {
	m[l.Key], m[l.Node] = p.key(l.Key), p.addr(l.Node)
	for i := range l.Holders {
		id, label := l.Holders[i].ID, l.Holders[i].Label
		m[id], m[label] = p.owner(id), p.owner(label)
	}
	for i := range l.Waiters {
		m[l.Waiters[i].ID] = p.owner(l.Waiters[i].ID)
	}
}

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
