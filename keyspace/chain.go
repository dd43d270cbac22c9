package keyspace

import "slices"

// Chain is what the holders of a lock wait for, and who waits behind the lock.
type Chain struct {
	Paths   [][]Wait // for each holder that waits: its wait, then the wait of the owner that it waits for, and so on; one that ends with an earlier owner is a cycle
	Behind  []Behind // locks that the waiters hold while others wait for them, the nearest first
	Waiters int      // of the lock and of the locks in Behind
	Longest Age      // of the waits that have a known start
}

// Behind is a lock that an owner holds who waits behind another lock.
type Behind struct {
	Lock  *Lock
	Owner string // as [Holder.Name]
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
	for _, h := range l.Holders {
		if path := g.path(h.Name()); len(path) > 0 {
			c.Paths = append(c.Paths, path)
		}
	}
	c.count(g, l)
	seen := map[ID]bool{l.ID(): true}
	for next := []*Lock{l}; len(next) > 0; next = next[1:] {
		for _, owner := range g.behind(next[0]) {
			for _, held := range g.holds[owner] {
				if seen[held.ID()] {
					continue
				}
				seen[held.ID()] = true
				c.Behind = append(c.Behind, Behind{held, owner})
				c.count(g, held)
				next = append(next, held)
			}
		}
	}
	return c
}

// count adds the waiters of a lock.
func (c *Chain) count(g *waitGraph, l *Lock) {
	c.Waiters += l.WaiterCount()
	for _, w := range l.Waiters {
		if age := w.Age(g.now); age.Duration > c.Longest.Duration {
			c.Longest = age
		}
	}
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
