package tui

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"locktop/keyspace"
	"locktop/tui/widget"
)

// curtain hides who and what is on the screen, so that it can be shown to
// others: keys and owners become hashes. They are salted anew each time the
// program starts, or short names could be guessed.
type curtain struct {
	drawn bool
	salt  [16]byte
}

func newCurtain() curtain {
	var c curtain
	_, _ = rand.Read(c.salt[:]) // never fails
	return c
}

func (c curtain) hash(prefix, s string) string {
	sum := sha256.Sum256(append(c.salt[:], s...))
	return prefix + hex.EncodeToString(sum[:4])
}

// key is the name of a key as it may be shown.
func (s *state) key(key string) string {
	if s.veil.drawn {
		return s.veil.hash("key-", key)
	}
	return widget.Plain(key)
}

// who is the name of an owner or a waiter as it may be shown.
func (s *state) who(name string) string {
	if s.veil.drawn && name != "" {
		return s.veil.hash("owner-", name)
	}
	return widget.Plain(name)
}

// place is an address as it may be shown.
func (s *state) place(addr string) string {
	if s.veil.drawn && addr != "" {
		return s.veil.hash("node-", addr)
	}
	return widget.Plain(addr)
}

// says is a sentence about a lock of the picture, or about its servers, as it
// may be shown.
func (s *state) says(about keyspace.ID, text string) string {
	if !s.veil.drawn {
		return widget.Plain(text)
	}
	var hidden mask
	switch l, ok := s.shown().find(about); {
	case about == (keyspace.ID{}):
		s.maskServers(&hidden)
	case !ok:
		return s.glyphs.Ellipsis
	default:
		s.maskLock(&hidden, &l)
	}
	return widget.Plain(hidden.over(text))
}

// mask is names to be hidden.
type mask []alias

// alias is what is shown instead of a name.
type alias struct{ name, shown string }

func (m *mask) hide(name, shown string) {
	if name != "" {
		*m = append(*m, alias{name, shown})
	}
}

// over returns a text with all names hidden: of two that begin alike the longer one,
// lest its end be shown.
func (m mask) over(text string) string {
	slices.SortStableFunc(m, func(a, b alias) int { return len(b.name) - len(a.name) })
	var pairs []string
	for _, one := range m {
		pairs = append(pairs, one.name, one.shown)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

func (s *state) maskLock(m *mask, l *keyspace.Lock) {
	m.hide(l.Key, s.key(l.Key))
	m.hide(l.Node, s.place(l.Node))
	for i := range l.Holders {
		m.hide(l.Holders[i].ID, s.who(l.Holders[i].ID))
		m.hide(l.Holders[i].Label, s.who(l.Holders[i].Label))
	}
	for i := range l.Waiters {
		m.hide(l.Waiters[i].ID, s.who(l.Waiters[i].ID))
	}
}

func (s *state) maskServers(m *mask) {
	snap := &s.shown().snap
	m.hide(snap.Server.Addr, s.place(snap.Server.Addr))
	for i := range snap.Nodes {
		m.hide(snap.Nodes[i].Addr, s.place(snap.Nodes[i].Addr))
	}
}

// conceal draws the curtain, or opens it.
func (s *state) conceal() {
	s.veil.drawn = !s.veil.drawn
	if s.veil.drawn {
		s.tell("keys and owners are hashed; p shows them again")
		return
	}
	s.tell("keys and owners are shown")
}
