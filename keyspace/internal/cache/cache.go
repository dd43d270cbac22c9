// Package cache stores values in bounded memory.
package cache

// Size is the maximum number of entries in a generation; there are two generations.
const Size = 4096

// Map stores a value for each key. When the young generation is full it replaces the
// old one, whose unused entries are lost. The zero value is empty. It is for one
// goroutine at a time.
type Map[K comparable, V any] struct {
	young, old map[K]V
}

// Get returns the value of a key.
func (m *Map[K, V]) Get(key K) (V, bool) {
	if v, ok := m.young[key]; ok {
		return v, true
	}
	v, ok := m.old[key]
	return v, ok
}

// Put stores the value of a key.
func (m *Map[K, V]) Put(key K, v V) {
	if _, known := m.young[key]; !known && len(m.young) >= Size {
		m.young, m.old = nil, m.young
	}
	if m.young == nil {
		m.young = make(map[K]V)
	}
	m.young[key] = v
}

// PutAll stores all entries of other.
func (m *Map[K, V]) PutAll(other *Map[K, V]) {
	for _, generation := range []map[K]V{other.old, other.young} {
		for key, v := range generation {
			m.Put(key, v)
		}
	}
}
