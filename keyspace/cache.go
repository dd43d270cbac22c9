package keyspace

// maxPerGeneration is the maximum number of locks in a generation; there are two
// generations.
const maxPerGeneration = 4096

// twoGenCache stores a value for each lock in bounded memory. When the young generation
// is full it replaces the old one, whose unused entries are lost. The zero value is
// empty.
type twoGenCache[T any] struct {
	young, old map[ID]T
}

// get returns the value of a lock.
func (c *twoGenCache[T]) get(id ID) (T, bool) {
	if v, ok := c.young[id]; ok {
		return v, true
	}
	v, ok := c.old[id]
	return v, ok
}

// put stores the value of a lock.
func (c *twoGenCache[T]) put(id ID, v T) {
	if _, known := c.young[id]; !known && len(c.young) >= maxPerGeneration {
		c.young, c.old = nil, c.young
	}
	if c.young == nil {
		c.young = make(map[ID]T)
	}
	c.young[id] = v
}

// getOrAdd returns the value of a lock, or stores and returns the result of fresh.
func (c *twoGenCache[T]) getOrAdd(id ID, fresh func() T) T {
	v, known := c.get(id)
	if !known {
		v = fresh()
	}
	c.put(id, v)
	return v
}
