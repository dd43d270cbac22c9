package oracle

import (
	"cmp"
	"container/heap"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"locktop/internal/humanize"
)

// HistoryLimit is how many holds a [History] keeps and proves. Each takes 56 bytes, and 56 more
// during the proof.
const HistoryLimit = 1_000_000

// History records the requests of the clients to the locks and the replies. Prove
// checks that the replies are linearizable: there is an order of all requests, each
// between its call and its reply, in which a single perfect lock gives the same
// replies. It is of a run ([History.Record]) or of one order ([History.Add]). Safe for concurrent use.
type History struct {
	Limit int // how many may have a key at once; 0 = 1

	mu    sync.Mutex
	zero  time.Time
	first int64 // the first request
	keys  map[string]int32
	names []string
	parts [][]recordedHold // of partSize each, to avoid copies
	holds int64
	cuts  []cut

	room    int // of holds that are added: then older ones are settled
	settled Crossings
}

// partSize is the number of holds per part.
const partSize = 4096

// recordedHold is one hold of a history. Times are in nanoseconds since the zero of the history.
type recordedHold struct {
	asked, got  int64 // call of the acquire and its reply
	since       int64 // the lock was acquired then, or later
	left        int64 // call of the release, or the end without one
	fence       int64
	key, client int32
	shared      bool
	settled     bool // it is counted if it crosses an earlier one
}

func (r recordedHold) owner() string { return ClientLabel(int(r.client) + 1) }

// moment returns a time since the first request.
func (h *History) moment(at int64) string { return humanize.Precise(time.Duration(at - h.first)) }

// notYet is the time of what has not happened.
const notYet = math.MaxInt64

// Record adds a hold that is over, and whether its client released it.
func (h *History) Record(v *Hold, left time.Time, released bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !released { // it ended at some time after the holder left or after the deadline
		left = earlier(left, v.Lease.Deadline())
	}
	if h.holds == 0 {
		h.zero = v.Asked
	}
	at := func(t time.Time) int64 { return t.Sub(h.zero).Nanoseconds() }
	for ; v != nil; v = v.next {
		if h.holds++; h.holds > HistoryLimit {
			h.parts = nil // nothing will be proved
			continue
		}
		if h.holds%partSize == 1 {
			h.parts = append(h.parts, make([]recordedHold, 0, partSize))
		}
		r := recordedHold{asked: at(v.Asked), got: at(v.Began), since: at(v.since), left: at(left), fence: v.Fence, key: h.key(v.section.name), client: int32(v.Client), shared: v.Shared}
		part := &h.parts[len(h.parts)-1]
		*part = append(*part, r)
		h.Limit, h.first = v.section.limit, min(h.first, r.asked)
	}
}

// key returns the number of a key.
func (h *History) key(name string) int32 {
	if h.keys == nil {
		h.keys = make(map[string]int32)
	}
	key, known := h.keys[name]
	if !known {
		key = int32(len(h.names))
		h.keys[name], h.names = key, append(h.names, name)
	}
	return key
}

// Proof is the result of [History.Prove].
type Proof struct {
	Holds   int64    // checked holds
	Cuts    []string // causes that deleted locks, at which the history was cut
	Unknown int64    // part of Holds: they are left out, because a cut may have ended them
	Sound   bool     // the replies are linearizable, or no violation was found
	Known   bool     // the proof is complete: there were at most [HistoryLimit] holds
	Why     string   // the first violation, "" if there is none
}

// Prove checks that the history is linearizable. A lock is certainly held from the
// reply to its acquire until the call of its release. If these intervals of conflicting
// holds do not overlap, and for a semaphore never more than its limit, the order exists: each acquire at its reply, each release at
// its call. One pass over the sorted holds checks this. A hold that ended before its
// reply needs only a moment between the two.
func (h *History) Prove() Proof {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Proof{Holds: h.holds, Sound: true, Known: h.holds <= HistoryLimit}
	for _, c := range h.cuts {
		p.Cuts = append(p.Cuts, string(c.cause))
	}
	for all := range byKey(slices.Concat(h.parts...)) {
		parts, unknown := h.split(all)
		p.Unknown += unknown
		for _, part := range parts {
			if p.Sound {
				h.proveKey(&p, part)
			}
		}
	}
	return p
}

// byKey sorts holds and yields those of each key, by the times of their replies.
func byKey(all []recordedHold) iter.Seq[[]recordedHold] {
	slices.SortFunc(all, func(a, b recordedHold) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.got, b.got), cmp.Compare(a.left, b.left))
	})
	return func(yield func([]recordedHold) bool) {
		for n := 0; len(all) > 0; all = all[n:] {
			for n = 1; n < len(all) && all[n].key == all[0].key; n++ {
			}
			if !yield(all[:n]) {
				return
			}
		}
	}
}

// proveKey checks the holds of one key, sorted by the time of the reply.
func (h *History) proveKey(p *Proof, all []recordedHold) {
	var late []recordedHold // ended before their replies
	all = slices.DeleteFunc(all, func(r recordedHold) bool {
		if r.left < r.got {
			late = append(late, r)
		}
		return r.left < r.got
	})
	for r, before := range overlapping(all, h.Limit) {
		if !p.Sound {
			break // the first one is named
		}
		had := fmt.Sprintf("%s had %s", before.owner(), h.names[r.key])
		if h.Limit > 1 {
			had = fmt.Sprintf("%d clients had %s, %s among them", h.Limit, h.names[r.key], before.owner())
		}
		p.fail(fmt.Sprintf("%s from %s to %s, and %s got it at %s", had, h.moment(before.got), h.moment(before.left), r.owner(), h.moment(r.got)))
	}
	number := int64(0)
	for _, r := range all {
		if r.shared || h.Limit > 1 || r.fence <= 0 || !p.Sound {
			continue
		}
		if r.fence <= number {
			p.fail(fmt.Sprintf("on %s number %d came after number %d", h.names[r.key], r.fence, number))
		}
		number = r.fence
	}
	if p.Sound && len(late) > 0 {
		h.proveLate(p, all, late)
	}
}

// overlapping yields each hold of one key that begins while others exclude it, with the one of them
// that ends last, or of as many as the limit, first. All are sorted by their begins.
func overlapping(all []recordedHold, limit int) iter.Seq2[recordedHold, recordedHold] {
	return func(yield func(r, before recordedHold) bool) {
		writers := lastHolds{limit: max(limit, 1)}
		reader := recordedHold{left: math.MinInt64} // the one with the latest end so far
		for _, r := range all {
			before := writers.earliest()
			if !r.shared && reader.left > before.left {
				before = reader
			}
			if before.left > r.got && !yield(r, before) {
				return
			}
			switch {
			case !r.shared:
				writers.add(r)
			case r.left > reader.left:
				reader = r
			}
		}
	}
}

// proveLate checks the holds of one key that ended before their replies, beside the certain ones,
// which are sound. Such a hold needs a moment after its request and its end, and before its reply, at
// which the certain ones leave room, and with a fence between the holds with smaller ones and those
// with larger ones. A hold that begins and ends in this moment takes no room from another.
func (h *History) proveLate(p *Proof, certain, late []recordedHold) {
	var writers, readers crowd
	var numbered []recordedHold // by fence, and so by time
	for _, r := range certain {
		if r.shared {
			readers.add(r)
			continue
		}
		writers.add(r)
		if r.fence > 0 {
			numbered = append(numbered, r)
		}
	}
	slices.Sort(writers.left)
	slices.Sort(readers.left)
	slices.SortStableFunc(late, func(a, b recordedHold) int { return cmp.Compare(a.fence, b.fence) })
	last := recordedHold{got: math.MinInt64} // the late one with the largest fence so far, at its moment
	for _, r := range late {
		at, until, twice := max(r.asked, r.left), r.got, false
		ordered := !r.shared && h.Limit <= 1 && r.fence > 0
		if ordered {
			next, known := slices.BinarySearchFunc(numbered, r.fence, func(o recordedHold, fence int64) int { return cmp.Compare(o.fence, fence) })
			twice = known || r.fence == last.fence
			at = max(at, last.got)
			if next > 0 {
				at = max(at, numbered[next-1].left)
			}
			if next < len(numbered) {
				until = min(until, numbered[next].got)
			}
		}
		for at <= until && !Admits(writers.inside(at)+1, readers.inside(at), h.Limit) && !(r.shared && writers.inside(at) == 0) {
			at = min(writers.next(at), readers.next(at))
		}
		if twice || at > until {
			p.fail(fmt.Sprintf("there is no time at which %s can have had %s, which it got at %s", r.owner(), h.names[r.key], h.moment(r.got)))
			return
		}
		if ordered {
			last = recordedHold{got: at, fence: r.fence}
		}
	}
}

// crowd counts the holds of one kind that certainly last at a moment. Both slices are sorted.
type crowd struct{ got, left []int64 }

func (c *crowd) add(r recordedHold) {
	if r.left > r.got {
		c.got, c.left = append(c.got, r.got), append(c.left, r.left)
	}
}

// inside returns the number of holds that begin before at and end after it.
func (c *crowd) inside(at int64) int {
	begun, _ := slices.BinarySearch(c.got, at)
	ended, _ := slices.BinarySearch(c.left, at+1)
	return begun - ended
}

// next returns the first end after a moment, notYet if there is none.
func (c *crowd) next(at int64) int64 {
	if n, _ := slices.BinarySearch(c.left, at+1); n < len(c.left) {
		return c.left[n]
	}
	return notYet
}

// cut is a trouble that deleted the locks of some keys. Times are those of a recordedHold.
type cut struct {
	cause    Cause
	key      int32 // Everybody = all
	from, to int64
}

// Cut cuts the history at troubles that deleted locks; see [Oracle.Losses]. Names are those of
// the keys that the troubles number. Of a hold that such a trouble may have ended, [History.Prove]
// uses only the part before it, and holds before and after it are compared with their like.
func (h *History) Cut(names []string, losses []Trouble) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range losses {
		c := cut{cause: t.Cause, key: Everybody, from: t.From.Sub(h.zero).Nanoseconds(), to: t.To.Sub(h.zero).Nanoseconds()}
		if t.lasting {
			c.to = notYet
		}
		if t.Key != Everybody {
			key, known := h.keys[names[t.Key]]
			if !known {
				continue // no client had it
			}
			c.key = key
		}
		h.cuts = append(h.cuts, c)
	}
}

// split returns the holds of one key, in the same order, in the parts between its cuts, and
// the number of holds that are left out: the lock may have been acquired before a cut, and
// the reply came after it.
func (h *History) split(all []recordedHold) (parts [][]recordedHold, leftOut int64) {
	var cuts []cut // one after another
	for _, c := range slices.SortedFunc(slices.Values(h.cuts), func(a, b cut) int { return cmp.Compare(a.from, b.from) }) {
		switch n := len(cuts); {
		case c.key != Everybody && c.key != all[0].key:
		case n > 0 && c.from <= cuts[n-1].to:
			cuts[n-1].to = max(cuts[n-1].to, c.to)
		default:
			cuts = append(cuts, c)
		}
	}
	if cuts == nil {
		return [][]recordedHold{all}, 0
	}
	parts = make([][]recordedHold, len(cuts)+1)
	for _, r := range all {
		i, _ := slices.BinarySearchFunc(cuts, r.since, func(c cut, since int64) int { return cmp.Compare(c.to, since) })
		if i < len(cuts) && r.got >= cuts[i].from {
			leftOut++
		} else {
			parts[i] = append(parts[i], r)
		}
	}
	return parts, leftOut
}

// Admits reports whether a lock that limit clients may hold at once, 0 = 1, can have these holders:
// readers share it with each other, and with nobody else.
func Admits(writers, readers, limit int) bool {
	return writers == 0 || readers == 0 && writers <= max(limit, 1)
}

// fail records a violation.
func (p *Proof) fail(why string) { p.Sound, p.Why = false, why }

// lastHolds are the holds with the latest ends so far, as many as the limit: a heap
// with the earliest of these ends first.
type lastHolds struct {
	limit int
	heap  []recordedHold
}

// earliest returns the hold of them that ends first. If it has not ended when another
// one begins, more than the limit have the lock.
func (l *lastHolds) earliest() recordedHold {
	if len(l.heap) < l.limit {
		return recordedHold{left: math.MinInt64}
	}
	return l.heap[0]
}

func (l *lastHolds) add(r recordedHold) {
	switch {
	case len(l.heap) < l.limit:
		heap.Push(l, r)
	case r.left >= l.heap[0].left:
		l.heap[0] = r
		heap.Fix(l, 0)
	}
}

// Implementation of [heap.Interface].
func (l *lastHolds) Len() int           { return len(l.heap) }
func (l *lastHolds) Less(i, j int) bool { return l.heap[i].left < l.heap[j].left }
func (l *lastHolds) Swap(i, j int)      { l.heap[i], l.heap[j] = l.heap[j], l.heap[i] }
func (l *lastHolds) Push(r any)         { l.heap = append(l.heap, r.(recordedHold)) }
func (l *lastHolds) Pop() any           { panic("never removed") }

// String describes the result in one sentence.
func (p Proof) String() string {
	leftOut, holds := "", humanize.Plural(p.Holds, "hold")
	if len(p.Cuts) > 0 {
		leftOut = fmt.Sprintf(" (cut %s, at %s, which deleted locks: nothing is known of %s)", humanize.Times(len(p.Cuts)), strings.Join(slices.Compact(slices.Sorted(slices.Values(p.Cuts))), ", "), humanize.Plural(p.Unknown, "hold"))
	}
	switch {
	case !p.Sound:
		return fmt.Sprintf("The history of %s is not that of a lock%s: %s", holds, leftOut, p.Why)
	case !p.Known:
		return fmt.Sprintf("The history of %s is not proved: only that of %s would be%s", holds, humanize.Plural(HistoryLimit, "hold"), leftOut)
	}
	return fmt.Sprintf("The history of %s is that of a lock%s", holds, leftOut)
}
