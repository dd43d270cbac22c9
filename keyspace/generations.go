package keyspace

// locksKept is how many locks a generation remembers; there are two.
const locksKept = 4096

// generations remembers something of each lock, in bounded memory: when the
// young generation is full it becomes the old one, and what nobody has touched
// since is forgotten. The zero value is empty.
type generations[T any] struct {
	young, old map[ID]T
}

// find returns what is remembered of a lock.
func (g *generations[T]) find(id ID) (T, bool) {
	if v, ok := g.young[id]; ok {
		return v, true
	}
	v, ok := g.old[id]
	return v, ok
}

// put remembers v.
func (g *generations[T]) put(id ID, v T) {
	if _, known := g.young[id]; !known && len(g.young) >= locksKept {
		g.young, g.old = nil, g.young
	}
	if g.young == nil {
		g.young = make(map[ID]T)
	}
	g.young[id] = v
}

// entry returns what is remembered of a lock, or remembers what fresh makes.
func (g *generations[T]) entry(id ID, fresh func() T) T {
	v, known := g.find(id)
	if !known {
		v = fresh()
	}
	g.put(id, v)
	return v
}
