package incident

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"locktop/keyspace"
)

// Indexer makes the indexes of the parts of a recording. An index has what a [Builder] learns
// from the frames of its part, and [Builder.Load] reads it far faster than they are read. It is
// not safe for concurrent use.
type Indexer struct{ Builder }

// NewIndexer returns an Indexer of all locks.
func NewIndexer() *Indexer {
	x := &Indexer{*NewBuilder(nil)}
	x.log = newIndexLog()
	return x
}

// An index is a list of entries: the kind and the values of each. A text is the number of an
// earlier one, or the next number and then the text itself; a lock is the same. A time is the
// distance to the time before it, in ns.
const (
	entryWait   = 'w' // lock, time, number of waiting clients
	entryHold   = 'h' // lock, time, a new hold
	entryEnded  = 'e' // lock, time, the hold as it has ended
	entryGap    = 'g' // time before it, time after it
	entryPolicy = 'p' // text
	entryNotice = 'n' // JSON
	entryCycle  = 'c' // JSON
	entryLast   = 'l' // time of the last frame; it is the last entry
)

// indexedCycle is a deadlock in an index.
type indexedCycle struct {
	Name     string
	Deadlock keyspace.Deadlock
	From, To time.Time
	Cost     []wait
}

// Index returns the index of the frames that were added since the last call. The result is for
// a Builder that knows the frames before these.
func (x *Indexer) Index() []byte {
	l := x.log
	for _, c := range x.cycles {
		l.json(entryCycle, indexedCycle{c.name, c.Deadlock, c.from, c.to, c.cost})
	}
	x.cycles = slices.DeleteFunc(x.cycles, func(c *cycle) bool { return x.last.Sub(c.to) > gapLength })
	needed := x.last
	for _, c := range x.cycles {
		needed = keyspace.Earliest(needed, c.from)
	}
	for _, n := range x.notices {
		l.json(entryNotice, n)
	}
	for _, g := range x.gaps {
		l.moment(entryGap, g.from)
		l.time(g.to)
	}
	l.buf = append(l.buf, entryPolicy)
	l.text(x.policy)
	for id, t := range x.locks {
		if !t.idle() {
			t.waits.forget(needed)
			continue
		}
		if _, told := l.locks[id]; !told { // nobody held it, and it exists
			l.wait(t, x.last, 0)
		}
		delete(x.locks, id)
	}
	l.moment(entryLast, x.last)
	x.notices, x.gaps = nil, nil
	index := l.buf
	*l = *newIndexLog()
	return index
}

// indexLog is an index that is being made. The methods of a nil indexLog do nothing.
type indexLog struct {
	buf   []byte
	at    time.Time // of the last entry
	texts map[string]int
	locks map[keyspace.ID]int
}

func newIndexLog() *indexLog {
	return &indexLog{at: time.Unix(0, 0), texts: make(map[string]int), locks: make(map[keyspace.ID]int)}
}

func (l *indexLog) int(n int64) { l.buf = binary.AppendVarint(l.buf, n) }
func (l *indexLog) time(t time.Time) {
	l.int(int64(t.Sub(l.at)))
	l.at = t
}

// moment begins an entry.
func (l *indexLog) moment(kind byte, at time.Time) {
	l.buf = append(l.buf, kind)
	l.time(at)
}

// numbered adds the number of a value, and reports whether it is a new one.
func numbered[T comparable](l *indexLog, all map[T]int, value T) (fresh bool) {
	n, known := all[value]
	if !known {
		n = len(all)
		all[value] = n
	}
	l.int(int64(n))
	return !known
}

func (l *indexLog) text(s string) {
	if numbered(l, l.texts, s) {
		l.bytes(s)
	}
}

func (l *indexLog) bytes(s string) {
	l.int(int64(len(s)))
	l.buf = append(l.buf, s...)
}

func (l *indexLog) json(kind byte, v any) {
	text, err := json.Marshal(v)
	if err == nil { // the values come from JSON
		l.buf = append(l.buf, kind)
		l.bytes(string(text))
	}
}

// lock begins an entry of a lock.
func (l *indexLog) lock(kind byte, t *track, at time.Time) {
	l.moment(kind, at)
	if numbered(l, l.locks, t.id) {
		l.int(int64(t.id.DB))
		l.bytes(t.id.Key)
		l.text(t.format)
	}
}

// wait records the number of waiting clients.
func (l *indexLog) wait(t *track, at time.Time, n int) {
	if l != nil {
		l.lock(entryWait, t, at)
		l.int(int64(n))
	}
}

// hold records a hold as it is now.
func (l *indexLog) hold(kind byte, t *track, at time.Time, h *hold) {
	if l == nil {
		return
	}
	l.lock(kind, t, at)
	l.text(h.ID)
	if kind == entryHold {
		l.text(h.Label)
	} else {
		l.text(string(h.end))
		l.text(h.by)
	}
	l.text(h.Addr)
	l.int(int64(h.ttl))
	l.int(int64(h.renewals))
	times, known := h.times(kind), 0
	for i, one := range times {
		if !one.IsZero() {
			known |= 1 << i
		}
	}
	l.int(int64(known))
	for _, one := range times {
		if !one.IsZero() {
			l.time(*one)
		}
	}
}

// times returns the times of an entry. At its end the begin of a hold is known, mostly.
func (h *hold) times(kind byte) []*time.Time {
	all := []*time.Time{&h.ended, &h.expires, &h.renewed, &h.DisconnectedAt, &h.began, &h.read, &h.seen}
	if kind == entryEnded && !h.late {
		return all[:4]
	}
	return all
}

// errIndex means that an index is malformed.
var errIndex = errors.New("the index is malformed")

// Load adds the frames of an index. After an error the Builder must not be used.
func (b *Builder) Load(index []byte) error {
	r := indexReader{in: index, at: time.Unix(0, 0)}
	for r.err == nil {
		switch kind := append(r.bytes(1), 0)[0]; kind {
		case entryWait, entryHold, entryEnded:
			r.of(b, kind)
		case entryGap:
			from := r.time()
			b.gaps = append(b.gaps, span{from, r.time()})
		case entryPolicy:
			b.policy = r.text()
		case entryNotice:
			var n keyspace.Notice
			r.json(&n)
			b.notice(n)
		case entryCycle:
			var c indexedCycle
			r.json(&c)
			known := b.cycle(c.Name, c.From)
			known.Deadlock, known.to, known.cost = c.Deadlock, c.To, c.Cost
			if known.from.After(c.From) { // it began before the frames that were added
				b.price(known)
			}
		case entryLast:
			b.last = r.time()
			b.forget()
			return r.err
		default:
			r.err = errIndex
		}
	}
	return r.err
}

// indexReader reads the values of an index. After an error all are zero.
type indexReader struct {
	in    []byte
	at    time.Time
	texts []string
	locks []*track // nil: it is not selected
	err   error
}

func (r *indexReader) int() int64 {
	v, n := binary.Varint(r.in)
	if n <= 0 {
		r.err, r.in = errIndex, nil
		return 0
	}
	r.in = r.in[n:]
	return v
}

func (r *indexReader) bytes(n int64) []byte {
	if n < 0 || n > int64(len(r.in)) {
		r.err, r.in = errIndex, nil
		return nil
	}
	b := r.in[:n:n]
	r.in = r.in[n:]
	return b
}

func (r *indexReader) time() time.Time {
	r.at = r.at.Add(time.Duration(r.int()))
	return r.at
}

func (r *indexReader) json(v any) {
	if err := json.Unmarshal(r.bytes(r.int()), v); err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %w", errIndex, err)
	}
}

func (r *indexReader) text() string {
	return known(r, &r.texts, func() string { return string(r.bytes(r.int())) })
}

// known returns the value with the next number: an earlier one, or a new one that is read.
func known[T any](r *indexReader, all *[]T, read func() T) (value T) {
	n := r.int()
	if n == int64(len(*all)) {
		*all = append(*all, read())
	}
	if n < 0 || n >= int64(len(*all)) {
		r.err = errIndex
		return value
	}
	return (*all)[n]
}

// lock reads a lock.
func (r *indexReader) lock(b *Builder) *track {
	return known(r, &r.locks, func() *track {
		id := keyspace.ID{DB: int(r.int()), Key: string(r.bytes(r.int()))}
		return b.track(id, r.text())
	})
}

// of reads an entry of a lock, and applies it.
func (r *indexReader) of(b *Builder, kind byte) {
	at := r.time()
	t := r.lock(b)
	if kind == entryWait {
		if n := int(r.int()); t != nil && r.err == nil {
			t.wait(at, n)
		}
		return
	}
	var h hold
	i, id := -1, r.text()
	if t != nil {
		i = t.find(id)
	}
	if i >= 0 {
		h = t.open[i]
	}
	if h.ID = id; kind == entryHold {
		h.Label = r.text()
	} else {
		h.end, h.by = keyspace.EventKind(r.text()), r.text()
	}
	h.Addr, h.ttl, h.renewals = r.text(), time.Duration(r.int()), int(r.int())
	known := r.int()
	for i, one := range h.times(entryHold) {
		if known&(1<<i) != 0 {
			*one = r.time()
		} else if i < 4 {
			*one = time.Time{}
		}
	}
	switch {
	case t == nil || r.err != nil:
	case i < 0 && kind == entryHold:
		t.add(h, at)
	case i >= 0 && kind == entryEnded:
		t.finish(h, h.end, h.ended)
	}
}
