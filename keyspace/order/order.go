// Package order finds the locks that owners acquire in different orders, before the owners
// deadlock. It does for distributed locks what lockdep does for those of a kernel: it records that
// an owner acquires a lock of one class while it holds one of another, and looks for cycles.
//
// The package is pure: it has no clock and no Redis. Its input are the events of a watch.
package order

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/keyspace"
)

// Bounds of a Graph.
const (
	maxEdges   = 10_000 // the oldest tenth goes
	maxOwners  = 10_000 // that hold a lock
	maxSession = 32     // holds of an owner that are compared: one with more locks at the same time is no thread
	maxCycles  = 100
	maxSteps   = 4 // of a cycle
)

// nestedTimes is how often an owner that may be several threads must have nested its holds.
const nestedTimes = 3

// resolution is the error of the time of an event at least.
const resolution = 2 * time.Millisecond

// Graph records in which order owners acquire locks. An owner is a token that holds several
// locks, or a label of package lock. The zero value is empty, and a nil Graph records nothing. It is
// safe for concurrent use.
//
// An order counts if both begins were seen, the first one earlier by more than the errors of both
// times, and the first hold lasted beyond the second begin.
type Graph struct {
	// Snoozed are orders that are no finding, as "cart:* then stock:*". It is set before the first use.
	Snoozed []string

	mu     sync.Mutex
	owners map[string]*session
	swept  time.Time // when the owners were looked through
	edges  map[edgeKey]*edge
	from   map[node][]*edge // edges by their first lock
	cycles [][]*edge
}

// session is the holds of an owner that overlap.
type session struct {
	holds []*hold // in the order in which they were read
	lasts int     // number of those that have not ended
}

// hold is one hold of an owner.
type hold struct {
	lock     keyspace.ID
	token    string
	reads    bool
	seen     bool          // its begin was seen
	from, to time.Time     // to: zero while it lasts
	err      time.Duration // of from
	deadline time.Time     // zero = none
}

// node is a class, or a key of a class of which an owner holds two.
type node struct {
	name string
	key  bool
}

// edgeKey is two classes, or two keys of one class.
type edgeKey struct{ first, second node }

// edge is an order of two classes, or of two keys.
type edge struct {
	keyspace.Step
	second                   node
	certain                  bool // the first owner is a thread
	firstWrites, secondWrite bool // not only readers hold the lock
	crossed                  bool // once, the first hold ended before the second, by more than the error: two threads of an owner do that
	gates                    []keyspace.ID
	last                     time.Time
}

// Learn records events of one server, in their order. late is how late they may have been read.
func (g *Graph) Learn(events []keyspace.Event, late time.Duration) {
	if g == nil || len(events) == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.owners == nil {
		g.owners, g.edges, g.from = make(map[string]*session), make(map[edgeKey]*edge), make(map[node][]*edge)
	}
	for i := range events {
		e := &events[i]
		owner := ownerOf(e)
		switch {
		case owner == "":
		case e.Kind.Ends():
			g.end(owner, e)
		case e.Kind == keyspace.Acquired, e.Kind == keyspace.Discovered:
			g.begin(owner, e, max(late, resolution))
		case e.Kind == keyspace.Renewed, e.Kind == keyspace.TTLLost:
			if h := g.owners[owner].find(e); h != nil {
				h.deadline = e.Holder.Expires
			}
		}
	}
}

// ownerOf returns the owner of a hold that an event is about; "" if another client may have the same
// name, and for a permit, which excludes nobody.
func ownerOf(e *keyspace.Event) string {
	l, token := &e.Lock, e.Holder.ID
	switch {
	case token == "" || l.Unchecked || keyspace.SharedValue(token) || l.Kind == keyspace.Semaphore:
		return ""
	case e.Holder.Label != "" && strings.HasPrefix(token, e.Holder.Label+"~"): // of package lock
		return e.Holder.Label
	default:
		return token
	}
}

// begin adds a hold.
func (g *Graph) begin(owner string, e *keyspace.Event, err time.Duration) {
	s := g.owners[owner]
	if s == nil {
		if g.sweep(e.At); len(g.owners) >= maxOwners {
			return
		}
		s = new(session)
		g.owners[owner] = s
	}
	if s.find(e) != nil {
		return
	}
	s.holds = append(s.holds, &hold{
		lock: e.Lock.ID().OnAnyNode(), token: e.Holder.ID, reads: e.Holder.Mode == keyspace.Read,
		seen: e.Kind == keyspace.Acquired, from: e.At, err: err + e.Holder.Late, deadline: e.Holder.Expires,
	})
	s.lasts++
	if len(s.holds) > maxSession {
		g.settle(owner, s, e.At)
	}
}

// sweep forgets the owners whose holds are all over: an end may be missed. It looks at most once a second.
func (g *Graph) sweep(now time.Time) {
	if len(g.owners) < maxOwners || now.Sub(g.swept) < time.Second {
		return
	}
	g.swept = now
	lasts := func(h *hold) bool { return !h.until(now).Before(now) }
	for owner, s := range g.owners {
		if !slices.ContainsFunc(s.holds, lasts) {
			delete(g.owners, owner)
		}
	}
}

// end ends a hold. The holds of an owner are compared when the last one has ended.
func (g *Graph) end(owner string, e *keyspace.Event) {
	s := g.owners[owner]
	h := s.find(e)
	if h == nil {
		return
	}
	h.to = e.Ended()
	if s.lasts--; s.lasts == 0 {
		g.settle(owner, s, e.At)
		delete(g.owners, owner)
	}
}

// find returns the hold of an event that lasts, or nil.
func (s *session) find(e *keyspace.Event) *hold {
	if s == nil {
		return nil
	}
	id := e.Lock.ID().OnAnyNode()
	for _, h := range s.holds {
		if h.to.IsZero() && h.lock == id && h.token == e.Holder.ID {
			return h
		}
	}
	return nil
}

// until returns when a hold ended at the latest that counts: a hold whose end was missed ends at its deadline.
func (h *hold) until(now time.Time) time.Time {
	return cmp.Or(h.to, keyspace.Earliest(now, h.deadline))
}

// settle records the orders of a session, and forgets the holds that have ended. If too many last,
// it only forgets all.
func (g *Graph) settle(owner string, s *session, now time.Time) {
	if s.lasts > maxSession/2 {
		delete(g.owners, owner)
		return
	}
	for _, a := range s.holds {
		for _, b := range s.holds {
			late := a.err + b.err
			if (!a.to.IsZero() || !b.to.IsZero()) && a.seen && b.seen && b.from.Sub(a.from) > late && a.until(now).Sub(b.from) > late {
				g.add(owner, a, b, s.gates(a, b, now), b.to.IsZero() || b.to.Sub(a.until(now)) > late)
			}
		}
	}
	s.holds = slices.DeleteFunc(s.holds, func(h *hold) bool { return !h.to.IsZero() })
}

// gates returns the locks that the owner had acquired before both others and still held.
func (s *session) gates(a, b *hold, now time.Time) (all []keyspace.ID) {
	for _, h := range s.holds {
		if !h.reads && h.from.Before(a.from) && h.until(now).After(b.from) && h.lock != a.lock && h.lock != b.lock {
			all = append(all, h.lock)
		}
	}
	return all
}

// add records that an owner acquired one lock while it held another.
func (g *Graph) add(owner string, a, b *hold, gates []keyspace.ID, crossed bool) {
	key := edgeKey{node{name: keyspace.ClassOf(a.lock.Key)}, node{name: keyspace.ClassOf(b.lock.Key)}}
	if key.first == key.second {
		key = edgeKey{node{a.lock.Key, true}, node{b.lock.Key, true}}
	}
	e := g.edges[key]
	if e == nil {
		e = &edge{second: key.second, gates: gates}
		e.First, e.Second = key.first.name, key.second.name
		g.edges[key], g.from[key.first] = e, append(g.from[key.first], e)
		g.forget()
	}
	if thread := keyspace.IsThread(owner); e.Count == 0 || thread && !e.certain {
		e.Owner, e.Locks, e.certain = owner, [2]keyspace.ID{a.lock, b.lock}, thread
	}
	e.gates = slices.DeleteFunc(e.gates, func(id keyspace.ID) bool { return !slices.Contains(gates, id) })
	e.firstWrites, e.secondWrite, e.crossed = e.firstWrites || !a.reads, e.secondWrite || !b.reads, e.crossed || crossed
	if e.last = b.from; e.Count == 0 && len(g.cycles) < maxCycles {
		if way := g.way(key, e); way != nil {
			g.cycles = append(g.cycles, way)
		}
	}
	e.Count++
}

// forget drops the oldest edges if there are too many, and the cycles with them.
func (g *Graph) forget() {
	if len(g.edges) <= maxEdges {
		return
	}
	var times []time.Time
	for _, e := range g.edges {
		times = append(times, e.last)
	}
	slices.SortFunc(times, time.Time.Compare)
	limit := times[maxEdges/10]
	old := func(e *edge) bool { return e.Count > 0 && !e.last.After(limit) }
	for key, e := range g.edges {
		if old(e) {
			delete(g.edges, key)
		}
	}
	for first, all := range g.from {
		if g.from[first] = slices.DeleteFunc(all, old); len(g.from[first]) == 0 {
			delete(g.from, first)
		}
	}
	g.cycles = slices.DeleteFunc(g.cycles, func(c []*edge) bool {
		return slices.ContainsFunc(c, old)
	})
}

// way returns a shortest cycle that begins with a new edge, or nil.
func (g *Graph) way(key edgeKey, first *edge) []*edge {
	came := map[node][]*edge{key.second: {first}}
	for next := []node{key.second}; len(next) > 0; next = next[1:] {
		at := came[next[0]]
		if len(at) == maxSteps {
			return nil
		}
		for _, e := range g.from[next[0]] {
			if came[e.second] != nil {
				continue
			}
			came[e.second] = append(slices.Clip(at), e)
			if e.second == key.first {
				return came[e.second]
			}
			next = append(next, e.second)
		}
	}
	return nil
}

// Orders returns the orders that were recorded, the most frequent first.
func (g *Graph) Orders() []keyspace.Step {
	g.mu.Lock()
	defer g.mu.Unlock()
	all := make([]keyspace.Step, 0, len(g.edges))
	for _, e := range g.edges {
		all = append(all, e.Step)
	}
	slices.SortFunc(all, func(a, b keyspace.Step) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Order(), b.Order()))
	})
	return all
}

// Inversions returns the cycles of the orders that were recorded, in the order in which they were
// found, without those with a snoozed order. Readers alone deadlock with nobody, nor do owners that always hold a third lock. Owners that
// are no threads count only if they nest the holds, each time and several times: the threads of a process that
// use two locks independently end their holds in any order.
func (g *Graph) Inversions() (all []keyspace.Inversion) {
	if g == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, cycle := range g.cycles {
		i := keyspace.Inversion{Certain: true}
		shared, blocks, nested := slices.Clone(cycle[0].gates), true, true
		for n, e := range cycle {
			i.Steps, i.Certain = append(i.Steps, e.Step), i.Certain && e.certain
			shared = slices.DeleteFunc(shared, func(id keyspace.ID) bool { return !slices.Contains(e.gates, id) })
			blocks = blocks && (e.secondWrite || cycle[(n+1)%len(cycle)].firstWrites)
			nested = nested && !e.crossed && e.Count >= nestedTimes
			blocks = blocks && !slices.Contains(g.Snoozed, e.Order())
		}
		if blocks && len(shared) == 0 && (i.Certain || nested) {
			all = append(all, i)
		}
	}
	return all
}
