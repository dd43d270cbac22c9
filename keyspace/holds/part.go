package holds

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"locktop/keyspace"
)

// Part is what happened to a lock in a time, for another ledger.
type Part struct {
	Lock   keyspace.ID
	Format string  // of the lock; the ledger does not know it
	Holds  []*Hold // that ended, in the order of their ends; without the depths, and all renewals but the last
	Waits  []Wait  // in the order in which they were seen; some of them last
}

// Cut returns what has happened to a lock since the last call. The ledger forgets what has ended, and the
// lock if nothing lasts.
func (g *Ledger) Cut(id keyspace.ID) Part {
	a := g.locks[id]
	if a == nil {
		return Part{Lock: id}
	}
	part, open := Part{Lock: id, Waits: slices.Collect(a.Waits)}, []*Hold(nil)
	for _, h := range a.Holds {
		if h.Lasts() {
			open = append(open, h)
			continue
		}
		ended := *h
		ended.Holder.Since, ended.Seen, ended.Depth = time.Time{}, time.Time{}, nil
		ended.Renewed = newest(h.Renewed, 1)
		part.Holds = append(part.Holds, &ended)
	}
	slices.SortStableFunc(part.Holds, func(a, b *Hold) int { return a.ended().Compare(b.ended()) })
	slices.SortStableFunc(part.Waits, func(a, b Wait) int { return a.Seen.Compare(b.Seen) })
	if a.Holds, a.ended = open, nil; len(open)+len(a.waiting) == 0 {
		delete(g.locks, id)
	}
	return part
}

// ended returns the latest time at which a hold may have ended.
func (h *Hold) ended() time.Time {
	ended, _ := h.To.Latest()
	return ended
}

// Take adds a part that another ledger has cut to the account of its lock, and owns its holds. A hold or a wait that is
// known already has lasted until then.
func (g *Ledger) Take(a *Account, part Part) {
	waits := part.Waits
	for _, h := range part.Holds {
		for len(waits) > 0 && !waits[0].Seen.After(h.ended()) {
			a.takeWait(waits[0])
			waits = waits[1:]
		}
		a.take(g, h)
	}
	for _, w := range waits {
		a.takeWait(w)
	}
}

// take adds a hold that has ended. One that is known already began as it is known.
func (a *Account) take(g *Ledger, h *Hold) {
	end, to := h.End, h.To
	h.End, h.To = End{}, Moment{}
	if i := a.find(h.Holder.ID); i >= 0 {
		h.From, h.Found, h.serial = a.Holds[i].From, a.Holds[i].Found, a.Holds[i].serial
		a.Holds[i] = h
	} else {
		a.insert(g, h)
	}
	g.finish(a, h, end, to)
}

// takeWait adds a wait.
func (a *Account) takeWait(w Wait) {
	if i := a.waits(w.Waiter); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
	if w.Lasts() {
		a.waiting = append(a.waiting, w)
	} else {
		a.waited(w, w.To)
	}
}

// Parts is what happened to several locks. Its binary form is read several times faster than one that names its
// fields; it is for files that can be made again, because a change of a field changes the form.
type Parts []Part

// MarshalBinary implements [encoding.BinaryMarshaler].
func (p Parts) MarshalBinary() ([]byte, error) {
	c := coder{numbers: make(map[string]int)}
	c.parts(&p)
	return c.data, nil
}

// UnmarshalBinary implements [encoding.BinaryUnmarshaler].
func (p *Parts) UnmarshalBinary(data []byte) error {
	c := coder{data: data, reads: true}
	if c.parts(p); c.bad {
		return errors.New("malformed parts of a ledger")
	}
	return nil
}

// coder writes fields, or reads them in the same order. A field is a number of variable length: a time is the
// difference to the time before in ns, and a text that came before is its number.
type coder struct {
	data    []byte // that is written, or still to read
	reads   bool
	bad     bool // the data are too short, or say what cannot be
	last    int64
	texts   []string // that were read
	numbers map[string]int
}

func number[T ~int | ~int64 | ~uint8](c *coder, n *T) {
	if !c.reads {
		c.data = binary.AppendVarint(c.data, int64(*n))
		return
	}
	v, size := binary.Varint(c.data)
	if size <= 0 {
		c.bad, c.data, v, size = true, nil, 0, 0
	}
	*n, c.data = T(v), c.data[size:]
}

func flag(c *coder, b *bool) {
	n := 0
	if *b {
		n = 1
	}
	number(c, &n)
	*b = n == 1
}

func text[T ~string](c *coder, s *T) {
	n := c.numbers[string(*s)]
	if number(c, &n); n > 0 {
		if c.reads && n <= len(c.texts) {
			*s = T(c.texts[n-1])
		} else if c.reads {
			c.bad = true
		}
		return
	}
	size := len(*s)
	number(c, &size)
	switch {
	case !c.reads:
		c.data = append(c.data, *s...)
		c.numbers[string(*s)] = len(c.numbers) + 1
	case size < 0 || size > len(c.data):
		c.bad, c.data = true, nil
	default:
		*s = T(c.data[:size])
		c.texts, c.data = append(c.texts, string(*s)), c.data[size:]
	}
}

// times codes times; 0 is no time.
func (c *coder) times(all ...*time.Time) {
	for _, t := range all {
		var n int64
		if !c.reads && !t.IsZero() {
			if n = t.UnixNano() - c.last; n >= 0 {
				n++
			}
		}
		if number(c, &n); n == 0 {
			continue
		}
		if n > 0 {
			n--
		}
		c.last += n
		if c.reads {
			*t = time.Unix(0, c.last).UTC()
		}
	}
}

// list codes the elements of a slice.
func list[T any](c *coder, all *[]T, code func(*coder, *T)) {
	n := len(*all)
	if number(c, &n); n < 0 || c.reads && n > len(c.data) { // an element has a byte at least
		c.bad = true
		return
	}
	if c.reads && n > 0 {
		*all = make([]T, n)
	}
	for i := range *all {
		code(c, &(*all)[i])
	}
}

func (c *coder) parts(p *Parts) {
	list(c, (*[]Part)(p), func(c *coder, p *Part) {
		text(c, &p.Lock.Node)
		number(c, &p.Lock.DB)
		text(c, &p.Lock.Key)
		text(c, &p.Format)
		list(c, &p.Holds, func(c *coder, h **Hold) {
			if c.reads {
				*h = new(Hold)
			}
			c.hold(*h)
		})
		list(c, &p.Waits, (*coder).wait)
	})
}

func (c *coder) moment(m *Moment) {
	number(c, &m.Grade)
	c.times(&m.At, &m.Upto)
}

// hold codes the fields that [Ledger.Cut] leaves.
func (c *coder) hold(h *Hold) {
	text(c, &h.Holder.ID)
	text(c, &h.Holder.Label)
	text(c, &h.Holder.Addr)
	text(c, &h.Holder.Mode)
	number(c, &h.Holder.Depth)
	number(c, &h.Holder.Late)
	c.moment(&h.From)
	list(c, &h.Renewed, func(c *coder, t *time.Time) { c.times(t) })
	c.moment(&h.To)
	c.times(&h.Holder.Seen, &h.Holder.Renewed, &h.Holder.Expires, &h.Holder.DisconnectedAt, &h.Holder.ConnectedAt)
	moved := h.Moved != nil
	if flag(c, &moved); moved {
		if c.reads {
			h.Moved = new(Move)
		}
		c.times(&h.Moved.At, &h.Moved.From, &h.Moved.To)
	}
	flag(c, &h.Shared)
	flag(c, &h.Found)
	text(c, &h.End.Kind)
	number(c, &h.End.Proof)
	number(c, &h.TTL)
	number(c, &h.Renewals)
	number(c, &h.First)
}

func (c *coder) wait(w *Wait) {
	text(c, &w.Waiter)
	number(c, &w.Clients)
	text(c, &w.Source)
	c.moment(&w.From)
	c.moment(&w.To)
	c.times(&w.Seen, &w.Proven)
}
