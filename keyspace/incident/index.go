package incident

import (
	"bytes"
	"encoding/gob"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"locktop/keyspace"
	"locktop/keyspace/holds"
)

// NewIndexer returns a Builder that makes the indexes of the parts of a recording. An index has what a
// Builder learns from the frames of its part, and [Builder.Load] reads it far faster than they are read.
func NewIndexer() *Builder {
	b := NewBuilder(nil)
	b.past.OfLock, b.past.Waits, b.past.Ended = math.MaxInt, math.MaxInt, nil
	return b
}

// index is an index.
type index struct {
	Locks   holds.Parts
	Cycles  []*cycle
	Notices []keyspace.Notice
	Gaps    []span
	Policy  string
	Last    time.Time // of the last frame
}

// Index returns the index of the frames that were added since the last call. The result is for
// a Builder that knows the frames before these.
func (b *Builder) Index() []byte {
	i := index{Cycles: b.cycles, Notices: b.notices, Gaps: b.gaps, Policy: b.policy, Last: b.last}
	for _, id := range slices.SortedFunc(maps.Keys(b.locks), keyspace.ID.Compare) {
		part := b.past.Cut(id)
		part.Format = b.locks[id].format
		i.Locks = append(i.Locks, part)
	}
	clear(b.locks)
	b.cycles = slices.DeleteFunc(slices.Clone(b.cycles), func(c *cycle) bool { return b.last.Sub(c.To) > gapLength })
	b.notices, b.gaps = nil, nil
	var out bytes.Buffer
	if err := gob.NewEncoder(&out).Encode(i); err != nil {
		return nil // it is no index
	}
	return out.Bytes()
}

// Load reads an index, also while the Builder is used. It returns a function that adds its frames; nil: it is malformed.
func (b *Builder) Load(in io.Reader) (add func()) {
	var i index
	if gob.NewDecoder(in).Decode(&i) != nil {
		return nil
	}
	return func() { b.load(&i) }
}

// load adds the frames of an index.
func (b *Builder) load(i *index) {
	for _, l := range i.Locks {
		if b.track(l.Lock, l.Format) != nil {
			b.past.Take(l)
		}
	}
	for _, n := range i.Notices {
		b.notice(n)
	}
	for _, c := range i.Cycles {
		*b.cycle(c.Name, c.From) = *c
	}
	b.gaps, b.policy, b.last = append(b.gaps, i.Gaps...), i.Policy, i.Last
	b.forget()
}
