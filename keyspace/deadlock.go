package keyspace

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Deadlock is a cycle of owners, each of which waits for a lock that the next one holds. No
// holder of these locks can go on before one of their deadlines.
type Deadlock struct {
	Waits   []Wait    // the cycle; the owner of the first has the first name in the order of names
	Certain bool      // each owner is one thread, and was seen to wait for 1 s
	Expires time.Time // the first deadline of a lock of the cycle; zero = none has one
}

// Wait is an owner that waits for a lock.
type Wait struct {
	Owner string // as [Holder.Name]
	Lock  *Lock
	For   string // the owner that holds the lock
}

// Deadlocks finds the deadlocks of a snapshot, one cycle for each group of owners that wait
// for each other. It reads only locks with waiters.
//
// An owner is the label or the ID of a holder. Locks of libraries that make a new token for
// each hold and each wait have no deadlock that can be seen. If an owner is a process, the
// thread that waits may be another one than the thread that holds: then the deadlock is not
// certain. Nor is it in a single read, which does not show how long they wait. A semaphore blocks its waiters only if no holder of a permit can go on, and a
// waiting reader waits only for a writer.
func Deadlocks(s Snapshot) []Deadlock {
	g := newWaitGraph(s, nil)
	g.release()
	var all []Deadlock
	seen := make(map[string]bool)
	for _, owner := range g.owners() {
		if seen[owner] {
			continue
		}
		cycle := g.cycle(owner)
		if len(cycle) > 1 && !slices.ContainsFunc(cycle, func(w Wait) bool { return seen[w.Owner] }) {
			if d, ok := g.deadlock(cycle); ok {
				all = append(all, d)
			}
		}
		for _, w := range cycle {
			seen[w.Owner] = true
		}
	}
	return all
}

// waitGraph is who waits for whom.
type waitGraph struct {
	now   time.Time
	names map[string]string  // of owners, by ID and by the label that begins a token of package lock
	holds map[string][]*Lock // the locks of an owner
	waits map[string][]edge  // the waits of an owner, unless it can go on
}

// edge is a wait for a lock and for all, or for one, of some owners.
type edge struct {
	lock   *Lock
	waiter *Waiter
	owners []string // that hold the lock against it
	any    bool     // one of them is enough
}

// newWaitGraph returns the graph of the locks with waiters, and of another lock, which may be
// nil.
func newWaitGraph(s Snapshot, other *Lock) *waitGraph {
	g := &waitGraph{now: s.At, names: make(map[string]string), holds: make(map[string][]*Lock), waits: make(map[string][]edge)}
	var contended []*Lock
	for i := range s.Locks {
		if len(s.Locks[i].Waiters) > 0 {
			contended = append(contended, s.Locks[i])
		}
	}
	if other != nil {
		g.addHolders(other)
	} else if len(contended) < 2 {
		return g
	}
	for _, l := range contended {
		g.addHolders(l)
	}
	for _, l := range contended {
		for i := range l.Waiters {
			w := &l.Waiters[i]
			name := g.owner(w)
			e := edge{lock: l, waiter: w, owners: l.blocking(w), any: l.Kind == Semaphore}
			again := slices.Contains(e.owners, name) // it enters the lock again, or is a process with several threads
			if name != "" && (w.Expires.IsZero() || w.Expires.After(g.now)) && len(e.owners) > 0 && !again {
				g.waits[name] = append(g.waits[name], e)
			}
		}
	}
	return g
}

// addHolders adds the holders of a lock to the owners.
func (g *waitGraph) addHolders(l *Lock) {
	for _, h := range l.Holders {
		g.names[h.ID] = h.Name()
		if h.Label != "" {
			g.names[h.Label+"~"] = h.Label
		}
		g.holds[h.Name()] = append(g.holds[h.Name()], l)
	}
}

// owner returns the name of the owner that a waiter is; "" if it holds no lock of the graph.
func (g *waitGraph) owner(w *Waiter) string {
	if name := g.names[w.ID]; name != "" {
		return name
	}
	if label, _, labelled := strings.Cut(w.ID, "~"); labelled {
		return g.names[label+"~"]
	}
	return ""
}

// blocking returns the names of the holders that exclude a waiter.
func (l *Lock) blocking(w *Waiter) (names []string) {
	if l.Kind == Semaphore && l.Remaining > 0 {
		return nil
	}
	for _, h := range l.Holders {
		if w.Mode != Read || h.Mode != Read {
			names = append(names, h.Name())
		}
	}
	return names
}

// release removes the owners that can go on, until only those are left that wait for each
// other, or behind them.
func (g *waitGraph) release() {
	behind := make(map[string][]string) // owners that wait for an owner
	for owner, waits := range g.waits {
		for _, e := range waits {
			for _, other := range e.owners {
				behind[other] = append(behind[other], owner)
			}
		}
	}
	for check := g.owners(); len(check) > 0; {
		owner := check[len(check)-1]
		check = check[:len(check)-1]
		if waits := g.waits[owner]; waits != nil && !slices.ContainsFunc(waits, g.stuck) {
			delete(g.waits, owner)
			check = append(check, behind[owner]...)
		}
	}
}

// stuck reports whether no holder, or not every holder, that a wait needs can go on.
func (g *waitGraph) stuck(e edge) bool {
	waiting := func(owner string) bool { return g.waits[owner] != nil }
	if e.any {
		return !slices.ContainsFunc(e.owners, func(owner string) bool { return !waiting(owner) })
	}
	return slices.ContainsFunc(e.owners, waiting)
}

// owners returns the owners that are left, in order.
func (g *waitGraph) owners() []string { return slices.Sorted(maps.Keys(g.waits)) }

// cycle returns a shortest cycle of waits that begins with an owner, or nil.
func (g *waitGraph) cycle(first string) []Wait {
	came := map[string]Wait{} // by the owner that the wait is for
	for next := []string{first}; len(next) > 0; next = next[1:] {
		for _, e := range g.waits[next[0]] {
			if !g.stuck(e) {
				continue
			}
			for _, owner := range e.owners {
				if _, known := came[owner]; known || g.waits[owner] == nil {
					continue
				}
				came[owner] = Wait{Owner: next[0], Lock: e.lock, For: owner}
				if owner == first {
					return unwind(came, first)
				}
				next = append(next, owner)
			}
		}
	}
	return nil
}

// unwind returns the cycle through an owner, in its order.
func unwind(came map[string]Wait, first string) (cycle []Wait) {
	for at := first; len(cycle) == 0 || at != first; at = cycle[len(cycle)-1].Owner {
		cycle = append(cycle, came[at])
	}
	slices.Reverse(cycle)
	return cycle
}

// deadlock describes a cycle. It is false if a wait or a hold is too new: the locks of a snapshot
// are read one after the other, so a short cycle may be of different moments.
func (g *waitGraph) deadlock(cycle []Wait) (d Deadlock, ok bool) {
	d = Deadlock{Waits: cycle, Certain: true}
	for _, w := range cycle {
		for _, age := range g.ages(w) {
			if age > 0 && age < time.Second {
				return Deadlock{}, false
			}
			d.Certain = d.Certain && age > 0
		}
		d.Certain = d.Certain && IsThread(w.Owner)
		d.Expires = Earliest(d.Expires, w.Lock.Expires)
	}
	return d, true
}

// ages returns how long a wait, and the hold that it is for, have lasted at least; 0 =
// unknown.
func (g *waitGraph) ages(w Wait) (ages []time.Duration) {
	for _, h := range w.Lock.Holders {
		if h.Name() == w.For {
			ages = append(ages, h.Age(g.now).Duration)
		}
	}
	for _, e := range g.waits[w.Owner] {
		if e.lock == w.Lock {
			ages = append(ages, e.waiter.Age(g.now).Duration)
		}
	}
	return ages
}

// Text describes the deadlock in one or two sentences, at a time of the server.
func (d Deadlock) Text(now time.Time) string {
	var waits []string
	for _, w := range d.Waits[:min(len(d.Waits), maxNamed)] {
		waits = append(waits, fmt.Sprintf("%s waits for %s of %s", w.Owner, w.Lock.Key, w.For))
	}
	if more := len(d.Waits) - maxNamed; more > 0 {
		waits = append(waits, humanize.Count(more)+" more")
	}
	name := "Possible deadlock between processes"
	if d.Certain {
		name = "Deadlock"
	}
	end := "No deadline ends it."
	if !d.Expires.IsZero() {
		end = fmt.Sprintf("The first deadline ends it in %s, unless it is renewed.", humanize.Duration(max(0, d.Expires.Sub(now))))
	}
	return fmt.Sprintf("%s: %s. %s", name, strings.Join(waits, ", "), end)
}

// maxNamed is the number of waits that the text of a deadlock names.
const maxNamed = 5

// Problem returns what kind of deadlock it is.
func (d Deadlock) Problem() Problem {
	p := Problem{"possible-deadlock", Warning, cause, "owners wait for each other, but each may have several threads, or may wait only briefly",
		"Stop one of the owners, or force-release one of the locks if its owner has done no work that the others rely on. Let all clients acquire these locks in the same order."}
	if d.Certain {
		p.ID, p.Severity, p.Meaning = "deadlock", Critical, "each owner waits for a lock that the next one holds"
	}
	return p
}

// Finding returns the deadlock as a finding of one of its locks.
func (d Deadlock) Finding(lock ID, now time.Time) Finding {
	return Finding{Problem: d.Problem(), Lock: lock, Text: d.Text(now)}
}

// deadlockFindings returns a finding for each lock of each deadlock.
func deadlockFindings(deadlocks []Deadlock, now time.Time) map[ID]Finding {
	all := make(map[ID]Finding)
	for _, d := range deadlocks {
		for _, w := range d.Waits {
			f := d.Finding(w.Lock.ID(), now)
			if known, found := all[f.Lock]; !found || known.Severity < f.Severity {
				all[f.Lock] = f
			}
		}
	}
	return all
}

// Chain is what the holders of a lock wait for, and who waits behind the lock.
type Chain struct {
	Paths   [][]Wait // for each holder that waits: its wait, then the wait of the owner that it waits for, and so on; one that ends with an earlier owner is a cycle
	Tree    []Branch // the locks that wait for each other, root first: the one at the end of the first path, or the lock itself
	Direct  int      // waiters of the lock
	Waiters int      // of the lock and of the locks that they hold, at any depth
	Longest Age      // of the waits that have a known start
}

// Branch is a lock of a wait-for tree. Its branches follow it, with a larger Depth.
type Branch struct {
	Lock    *Lock
	Owner   string // as [Holder.Name]: it holds Lock, and waits for the lock of the branch above; for the root, its first holder
	Depth   int    // 0 = the root
	Direct  int    // waiters of the lock
	Waiters int    // of the lock and of its branches
}

// Cycle reports whether a path ends with an owner that is in it already.
func Cycle(path []Wait) bool {
	return slices.ContainsFunc(path, func(w Wait) bool { return w.Owner == path[len(path)-1].For })
}

// ChainOf returns the chain of a lock of a snapshot. It recognises owners as [Deadlocks]
// does: a library that makes a new token for each hold and each wait has no chain that can be
// seen.
func ChainOf(s Snapshot, l *Lock) Chain {
	g := newWaitGraph(s, l)
	var c Chain
	root := l
	for _, h := range l.Holders {
		path := g.path(h.Name())
		if len(path) == 0 {
			continue
		}
		if c.Paths = append(c.Paths, path); len(c.Paths) == 1 && !Cycle(path) {
			root = path[len(path)-1].Lock
		}
	}
	behind := g.tree(l)
	c.Direct, c.Waiters = behind[0].Direct, behind[0].Waiters
	for _, b := range behind {
		for i := range b.Lock.Waiters {
			c.Longest = longerAge(c.Longest, b.Lock.Waiters[i].Age(g.now))
		}
	}
	if c.Tree = behind; root.ID() != l.ID() {
		c.Tree = g.tree(root)
	}
	return c
}

// tree returns the tree of the locks behind a lock. Each lock is in it once, near the root.
func (g *waitGraph) tree(root *Lock) []Branch {
	nodes := []Branch{{Lock: root, Direct: root.WaiterCount()}}
	if len(root.Holders) > 0 {
		nodes[0].Owner = root.Holders[0].Name()
	}
	below := map[int][]int{} // branches by the one that they wait behind
	seen := map[ID]bool{root.ID(): true}
	for i := 0; i < len(nodes); i++ { // breadth first
		for _, owner := range g.behind(nodes[i].Lock) {
			for _, held := range g.holds[owner] {
				if seen[held.ID()] {
					continue
				}
				seen[held.ID()] = true
				below[i] = append(below[i], len(nodes))
				nodes = append(nodes, Branch{Lock: held, Owner: owner, Depth: nodes[i].Depth + 1, Direct: held.WaiterCount()})
			}
		}
	}
	all := make([]Branch, 0, len(nodes))
	var add func(i int) (waiters int)
	add = func(i int) int { // depth first
		at, waiters := len(all), nodes[i].Direct
		all = append(all, nodes[i])
		for _, child := range below[i] {
			waiters += add(child)
		}
		all[at].Waiters = waiters
		return waiters
	}
	add(0)
	return all
}

// path returns the first wait of an owner, then that of the owner that it waits for, and so
// on, until one that does not wait or that is in the path already.
func (g *waitGraph) path(owner string) (path []Wait) {
	seen := make(map[string]bool)
	for waits := g.waits[owner]; len(waits) > 0 && !seen[owner]; waits = g.waits[owner] {
		seen[owner] = true
		path = append(path, Wait{Owner: owner, Lock: waits[0].lock, For: waits[0].owners[0]})
		owner = waits[0].owners[0]
	}
	return path
}

// behind returns the owners that wait for a lock, in the order of its waiters.
func (g *waitGraph) behind(l *Lock) (owners []string) {
	for i := range l.Waiters {
		if name := g.owner(&l.Waiters[i]); name != "" && !slices.Contains(owners, name) {
			owners = append(owners, name)
		}
	}
	return owners
}

// Inversion is a cycle of locks that owners acquire in different orders. The owners can deadlock,
// also if they never did.
type Inversion struct {
	Steps   []Step // at least two: the second lock of each is the first one of the next, and that of the last one the first one of the first
	Certain bool   // each owner of the examples is one thread
}

// Step is an order in which owners acquire two locks: the second one during a hold of the first.
type Step struct {
	First, Second string // two classes, see [ClassOf], or two keys of one class
	Count         int    // number of times
	Owner         string // of the first time that was seen, as [Holder.Name]
	Locks         [2]ID  // of that time
}

// Order returns the two locks in their order.
func (s *Step) Order() string { return s.First + " then " + s.Second }

// Problem returns what kind of inversion it is.
func (i Inversion) Problem() Problem {
	p := Problem{"possible-lock-order", Info, finding, "processes acquire locks in different orders, maybe in several threads",
		"Look whether one thread acquires both locks. If so, let all clients acquire them in one order, for example by name, or both at once."}
	if i.Certain {
		p.ID, p.Severity, p.Meaning = "lock-order", Warning, "threads acquire locks in different orders, and can deadlock"
	}
	return p
}

// Text describes the inversion in two sentences.
func (i Inversion) Text() string {
	orders, owners := make([]string, len(i.Steps)), make([]string, len(i.Steps))
	for n, s := range i.Steps {
		orders[n] = fmt.Sprintf("%s (%s)", s.Order(), humanize.Plural(s.Count, "time"))
		owners[n] = s.Owner
	}
	who, so := "Threads", "they can deadlock"
	if !i.Certain {
		who, so = "Processes", "if one thread of each does so, they can deadlock"
	}
	return fmt.Sprintf("%s acquire %s: %s. First seen of %s.", who, strings.Join(orders, ", "), so, strings.Join(owners, ", "))
}

// Finding returns the inversion as a finding of the lock that is acquired first.
func (i Inversion) Finding() Finding {
	return Finding{Problem: i.Problem(), Lock: i.Steps[0].Locks[0], Text: i.Text()}
}

// IsThread reports whether an owner is one thread, as Redisson and its likes store it: a UUID and a number.
func IsThread(owner string) bool {
	client, thread, _ := strings.Cut(owner, ":")
	return isUUID(client) && thread != "" && digits(thread) == thread
}
