package keyspace

import "slices"

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
	type edge struct {
		branch int // of the lock in nodes
		above  int
	}
	nodes := []Branch{{Lock: root, Direct: root.WaiterCount()}}
	if len(root.Holders) > 0 {
		nodes[0].Owner = root.Holders[0].Name()
	}
	below := map[int][]int{} // branches by the one above
	var edges []edge
	seen := map[ID]bool{root.ID(): true}
	for i := 0; i < len(nodes); i++ { // breadth first
		for _, owner := range g.behind(nodes[i].Lock) {
			for _, held := range g.holds[owner] {
				if seen[held.ID()] {
					continue
				}
				seen[held.ID()] = true
				edges = append(edges, edge{len(nodes), i})
				below[i] = append(below[i], len(nodes))
				nodes = append(nodes, Branch{Lock: held, Owner: owner, Depth: nodes[i].Depth + 1, Direct: held.WaiterCount()})
			}
		}
	}
	for i := range nodes {
		nodes[i].Waiters = nodes[i].Direct
	}
	for _, e := range slices.Backward(edges) { // the deepest first
		nodes[e.above].Waiters += nodes[e.branch].Waiters
	}
	all := make([]Branch, 0, len(nodes))
	for next := []int{0}; len(next) > 0; { // depth first
		i := next[len(next)-1]
		next = next[:len(next)-1]
		all = append(all, nodes[i])
		for _, child := range slices.Backward(below[i]) {
			next = append(next, child)
		}
	}
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
