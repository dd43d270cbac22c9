// Package lockspec is what locks promise, as a state machine, and the locks that its tests use. Only
// tests import it: those of lab/simulate, which draw the orders of messages, and those of lab/explore,
// which enumerate them.
package lockspec

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"locktop/loadgen/oracle"
)

// Spec is what locks promise, as a state machine. Its events are what a test of the clients
// and the servers can observe: attempts and their outcomes, the ends of leases, deletions
// on purpose, and what the servers store at one moment. A method that returns texts returns
// the promises that its event breaks:
//
//   - leases that exclude each other are not valid together, and permits are never more
//     than the limit, in the clients and on the servers
//   - the fence of a grant is larger than those of the grants before it
//   - a valid lease has its keys, on as many servers as it needs, until its deadline; the
//     context of another one has ended
//   - only tokens of attempts for a key are stored in it, not for long after the attempt
//     has failed, with a TTL, and in all keys of the attempt or in none
//   - a client does not wait for a free lock
//
// The rule that decides which grants exclude each other is that of [oracle.History]. A Spec is not safe
// for concurrent use.
type Spec struct {
	Settle time.Duration // a fault has effects for so long after its end
	Grace  time.Duration // a failed attempt is undone within it
	Bound  time.Duration // a client that waits acquires a free lock within it

	grants   []*Grant
	attempts map[string]*Attempted // by owner
	waits    []*Wait
	fences   map[string]int64 // the largest by key
	deleted  map[string]int   // how often a key was deleted on purpose
}

// Grant is a lease in a [Spec], from [Spec.Granted] to [Spec.Ended].
type Grant struct {
	Lease
	Ended  func() bool // reports whether the context of the lease has ended
	Owner  string      // grants of one owner do not exclude each other
	Token  string
	Keys   []string
	Fence  int64 // 0 = none
	Shared bool  // only grants that are not shared exclude it
	Limit  int   // how many grants a key admits; 0 = 1
	Copies int   // how many servers must have the keys; 0 = 1
	Lost   bool  // a key was deleted on purpose, or may have been
}

// Lease is the part of a [lock.Lease] that changes without its holder.
type Lease interface {
	Valid() bool
	Deadline() time.Time
}

// Attempted is an attempt in a [Spec].
type Attempted struct {
	Keys   []string
	TTL    time.Duration
	Limit  int       // how many tokens a key has at most; 0 = any number
	failed time.Time // zero = it has not
	before int       // deletions of the keys when it began
}

// Wait is a call in a [Spec] that waits, from [Spec.Waits] to [Spec.Waited].
type Wait struct {
	Keys  []string
	Limit int  // how many grants a key admits; 0 = 1
	Split bool // a free lock may need several attempts, because votes are split

	Since time.Time
	free  time.Time // since when the keys are free; zero = they are not
}

// Stored is what a server stores: the copies by key.
type Stored map[string][]Copy

// Copy is a token that holds a key.
type Copy struct {
	Token string
	Left  time.Duration
}

// Forever is the time left of a copy that never expires.
const Forever = time.Duration(math.MaxInt64)

// Attempt records that an attempt of an owner begins, whose tokens begin with the owner and "~".
func (s *Spec) Attempt(owner string, a Attempted) {
	if s.attempts == nil {
		s.attempts, s.fences, s.deleted = map[string]*Attempted{}, map[string]int64{}, map[string]int{}
	}
	a.before = s.deletions(a.Keys)
	s.attempts[owner] = &a
}

// Failed records that the attempt of an owner has failed.
func (s *Spec) Failed(owner string, now time.Time) { s.attempts[owner].failed = now }

// Waits records that a client waits.
func (s *Spec) Waits(w *Wait) { s.waits = append(s.waits, w) }

// Waited records that a client waits no longer.
func (s *Spec) Waited(w *Wait) {
	s.waits = slices.DeleteFunc(s.waits, func(other *Wait) bool { return other == w })
}

// Deleted records that keys are deleted on purpose, and perhaps their fence counters, too.
func (s *Spec) Deleted(counters bool, keys ...string) {
	for _, key := range keys {
		if s.deleted != nil {
			s.deleted[key]++
		}
		if counters {
			delete(s.fences, key)
		}
		for _, g := range s.grants {
			g.Lost = g.Lost || slices.Contains(g.Keys, key)
		}
	}
}

// deletions returns how often keys were deleted on purpose.
func (s *Spec) deletions(keys []string) (n int) {
	for _, key := range keys {
		n += s.deleted[key]
	}
	return n
}

// Granted records that the attempt of an owner has returned a lease.
func (s *Spec) Granted(g *Grant) (broken []string) {
	a := s.attempts[g.Owner]
	g.Lost = g.Lost || a != nil && s.deletions(g.Keys) != a.before
	if g.Fence != 0 && !g.Shared && !g.Lost && g.Valid() {
		broken = s.checkFence(g)
	}
	s.grants = append(s.grants, g)
	return append(broken, s.checkTogether(g.Keys...)...)
}

// checkFence checks the fence of a new grant.
func (s *Spec) checkFence(g *Grant) []string {
	key := g.Keys[0]
	last := s.fences[key]
	s.fences[key] = max(g.Fence, last)
	if g.Fence <= last {
		return []string{fmt.Sprintf("%q: fence %d after %d", key, g.Fence, last)}
	}
	return nil
}

// Ended records that a client gives a lease back, or is done with it.
func (s *Spec) Ended(g *Grant) {
	s.grants = slices.DeleteFunc(s.grants, func(other *Grant) bool { return other == g })
}

// checkTogether checks that the valid grants of each key could have been granted together.
func (s *Spec) checkTogether(keys ...string) (broken []string) {
	for _, key := range keys {
		writers, readers := 0, 0
		var owners []string
		for _, g := range s.grants {
			if g.Lost || slices.Contains(owners, g.Owner) || !slices.Contains(g.Keys, key) || !g.Valid() {
				continue
			}
			owners = append(owners, g.Owner)
			if g.Shared {
				readers++
			} else {
				writers++
			}
			if !oracle.Admits(writers, readers, g.Limit) {
				broken = append(broken, fmt.Sprintf("%s hold %q together", strings.Join(owners, " and "), key))
			}
		}
	}
	return broken
}

// Look records what the servers store at a moment at which nothing runs. calm is since when
// there are no faults; zero = there are.
func (s *Spec) Look(now, calm time.Time, servers []Stored) (broken []string) {
	settled := !calm.IsZero() && now.Sub(calm) > s.Settle
	for _, g := range s.grants {
		broken = append(broken, s.checkTogether(g.Keys...)...)
		broken = append(broken, g.check(now, servers)...)
	}
	for _, stored := range servers {
		for key, copies := range stored {
			for _, c := range copies {
				broken = append(broken, s.checkCopy(now, calm, settled, stored, key, c)...)
			}
		}
	}
	for _, w := range s.waits {
		broken = append(broken, s.checkWait(w, now, calm, settled, servers)...)
	}
	slices.Sort(broken)
	return slices.Compact(broken)
}

// check checks a grant against the servers.
func (g *Grant) check(now time.Time, servers []Stored) []string {
	left := g.Deadline().Sub(now)
	switch {
	case !g.Valid() && left <= 0 && !g.Ended():
		return []string{fmt.Sprintf("the deadline of %s passed %v ago, and its context has not ended", g.Token, -left)}
	case !g.Valid() || g.Lost:
		return nil
	}
	kept := 0
	for _, stored := range servers {
		if !slices.ContainsFunc(g.Keys, func(key string) bool { return !stored.has(key, g.Token, left) }) {
			kept++
		}
	}
	if kept < max(g.Copies, 1) {
		return []string{fmt.Sprintf("%s of %q is valid for %v, and kept by %d servers: %v", g.Token, g.Keys, left, kept, servers)}
	}
	return nil
}

// has reports whether a token holds a key for at least left, in whole milliseconds.
func (s Stored) has(key, token string, left time.Duration) bool {
	return slices.ContainsFunc(s[key], func(c Copy) bool { return c.Token == token && c.Left >= left-time.Millisecond })
}

// checkCopy checks that a token is stored where it may be.
func (s *Spec) checkCopy(now, calm time.Time, settled bool, stored Stored, key string, c Copy) (broken []string) {
	owner, _, _ := strings.Cut(c.Token, "~")
	a := s.attempts[owner]
	if a == nil || !slices.Contains(a.Keys, key) {
		return []string{fmt.Sprintf("%q is held by %s, who does not want it", key, c.Token)}
	}
	if c.Left == Forever {
		broken = append(broken, fmt.Sprintf("%q is held by %s, and never expires", key, c.Token))
	}
	if n := len(stored[key]); a.Limit > 0 && n > a.Limit {
		broken = append(broken, fmt.Sprintf("%q admits %d, and is held by %v", key, a.Limit, stored[key]))
	}
	late := calm.Sub(a.failed) > a.TTL // the undo had given up when the network delivered the request
	if settled && !a.failed.IsZero() && now.Sub(a.failed) > s.Grace && !late {
		broken = append(broken, fmt.Sprintf("%q is held by %s, an attempt that failed %v ago", key, c.Token, now.Sub(a.failed)))
	}
	for _, other := range a.Keys {
		if s.deletions(a.Keys) == a.before && !stored.has(other, c.Token, 0) {
			broken = append(broken, fmt.Sprintf("%q is held by %s, and %q by %v: half of a set", key, c.Token, other, stored[other]))
		}
	}
	return broken
}

// checkWait checks that the keys are not free while a client waits.
func (s *Spec) checkWait(w *Wait, now, calm time.Time, settled bool, servers []Stored) []string {
	for _, stored := range servers {
		for _, key := range w.Keys {
			if w.Split || len(stored[key]) >= max(w.Limit, 1) {
				w.free = time.Time{}
				return nil
			}
		}
	}
	switch {
	case !settled:
		w.free = time.Time{}
	case w.free.IsZero():
		w.free = now
	case calm.After(w.free):
		w.free = calm
	case now.Sub(w.free) > s.Bound:
		return []string{fmt.Sprintf("a client waits for %q since %v, which is free since %v", w.Keys, now.Sub(w.Since), now.Sub(w.free))}
	}
	return nil
}
