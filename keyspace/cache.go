package keyspace

// maxPerGeneration is how many locks a generation remembers; there are two.
const maxPerGeneration = 4096

// twoGenCache remembers something of each lock, in bounded memory: when the
// young generation is full it becomes the old one, and what nobody has touched
// since is forgotten. The zero value is empty.
type twoGenCache[T any] struct {
	young, old map[ID]T
}

// get returns what is remembered of a lock.
func (c *twoGenCache[T]) get(id ID) (T, bool) {
	if v, ok := c.young[id]; ok {
		return v, true
	}
	v, ok := c.old[id]
	return v, ok
}

// put remembers v.
func (c *twoGenCache[T]) put(id ID, v T) {
	if _, known := c.young[id]; !known && len(c.young) >= maxPerGeneration {
		c.young, c.old = nil, c.young
	}
	if c.young == nil {
		c.young = make(map[ID]T)
	}
	c.young[id] = v
}

// getOrAdd returns what is remembered of a lock, or remembers what fresh makes.
func (c *twoGenCache[T]) getOrAdd(id ID, fresh func() T) T {
	v, known := c.get(id)
	if !known {
		v = fresh()
	}
	c.put(id, v)
	return v
}
