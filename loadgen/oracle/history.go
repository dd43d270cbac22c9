package oracle

import (
	"cmp"
	"container/heap"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"locktop/internal/humanize"
)

// HistoryLimit is how many holds a [History] keeps and proves. Each takes 72 bytes, and 72 more
// during the proof.
const HistoryLimit = 1_000_000

// History records the requests of the clients to the locks and the replies. Prove
// checks that the replies are linearizable: there is an order of all requests, each
// between its call and its reply, in which a single perfect lock gives the same
// replies. The zero value is empty. Safe for concurrent use.
type History struct {
	mu    sync.Mutex
	zero  time.Time
	keys  map[string]int32
	names []string
	limit int              // how many may have a key at once; 0 = 1
	parts [][]recordedHold // of partSize each, to avoid copies
	holds int64
	cuts  []cut
}

// partSize is the number of holds per part.
const partSize = 4096

// recordedHold is one hold of a history. Times are in nanoseconds since the first request.
type recordedHold struct {
	asked, got  int64 // call of the acquire and its reply
	since       int64 // the lock was acquired then, or later
	left, freed int64 // call of the release and its reply
	fence       int64
	hold        int64 // from 1
	key, client int32
	shared      bool
	released    bool // false: it ended without a release
}

func (r recordedHold) owner() string { return ClientLabel(int(r.client) + 1) }

func moment(at int64) string { return humanize.Precise(time.Duration(at)) }

// notYet is the time of an event that had not happened at the end of the run.
const notYet = math.MaxInt64

// What a request does.
const (
	acquire = "acquire"
	release = "release"
	lost    = "lost" // an end without a release
)

// request is the input of a porcupine operation.
type request struct {
	what   string
	hold   int64
	shared bool
	fence  int64
}

// Acquired records a request with a lease as its reply. It does nothing if h is nil.
func (h *History) Acquired(v *Hold, asked, now time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; v != nil; v = v.next {
		h.add(v, asked, now)
	}
}

func (h *History) add(v *Hold, asked, now time.Time) {
	if h.keys == nil {
		h.keys, h.zero = make(map[string]int32), asked
	}
	h.limit = v.section.limit
	name := v.section.name
	key, known := h.keys[name]
	if !known {
		key = int32(len(h.names))
		h.keys[name], h.names = key, append(h.names, name)
	}
	if h.holds++; h.holds > HistoryLimit {
		h.parts = nil // nothing will be proved
		return
	}
	if h.holds%partSize == 1 {
		h.parts = append(h.parts, make([]recordedHold, 0, partSize))
	}
	v.hold = h.holds
	part := &h.parts[len(h.parts)-1]
	*part = append(*part, recordedHold{
		asked: asked.Sub(h.zero).Nanoseconds(), since: v.since.Sub(h.zero).Nanoseconds(), got: now.Sub(h.zero).Nanoseconds(), left: notYet, freed: notYet,
		fence: v.Fence, hold: v.hold, key: key, client: int32(v.Client), shared: v.Shared,
	})
}

// Ended records the end of a hold, and whether the client released it. It does nothing if h is nil.
func (h *History) Ended(v *Hold, left, now time.Time, released bool) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for ; v != nil; v = v.next {
		if v.hold == 0 || h.parts == nil {
			continue
		}
		r := &h.parts[(v.hold-1)/partSize][(v.hold-1)%partSize]
		if released {
			r.left, r.freed, r.released = left.Sub(h.zero).Nanoseconds(), now.Sub(h.zero).Nanoseconds(), true
		} else { // the hold ends at some time after the holder left or after the deadline
			r.left = earlier(left, v.Lease.Deadline()).Sub(h.zero).Nanoseconds()
		}
	}
}

// Proof is the result of [History.Prove].
type Proof struct {
	Holds   int64    // checked holds
	Cuts    []string // causes that deleted locks, at which the history was cut
	Unknown int64    // part of Holds: they are left out, because a cut may have ended them
	Sound   bool     // the replies are linearizable, or no violation was found
	Known   bool     // the proof is complete: there were at most [HistoryLimit] holds, and each search found an answer
	Why     string   // the first violation, "" if there is none

	searches int
}

// Prove checks that the history is linearizable. A lock is certainly held from the
// reply to its acquire until the call of its release. If these intervals of conflicting
// holds do not overlap, and for a semaphore never more than its limit, the order exists: each acquire at its reply, each release at
// its call. One pass over the sorted holds checks this. A hold that ended before its
// reply needs a search. The proof ends without a result when one takes longer than within.
func (h *History) Prove(within time.Duration) Proof {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Proof{Holds: h.holds, Sound: true, Known: h.holds <= HistoryLimit}
	for _, c := range h.cuts {
		p.Cuts = append(p.Cuts, string(c.cause))
	}
	all := slices.Concat(h.parts...)
	slices.SortFunc(all, func(a, b recordedHold) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.got, b.got), cmp.Compare(a.hold, b.hold))
	})
	for len(all) > 0 && p.Sound {
		n := 1
		for n < len(all) && all[n].key == all[0].key {
			n++
		}
		parts, unknown := h.split(all[:n])
		p.Unknown += unknown
		for _, part := range parts {
			if p.Sound {
				h.proveKey(&p, part, within)
			}
		}
		all = all[n:]
	}
	return p
}

// proveKey checks the holds of one key, sorted by the time of the reply.
func (h *History) proveKey(p *Proof, all []recordedHold, within time.Duration) {
	var late []int
	writers := lastHolds{limit: max(h.limit, 1)}
	reader := recordedHold{left: math.MinInt64} // the one with the latest end so far
	number := int64(0)
	for i, r := range all {
		if r.left < r.got {
			late = append(late, i) // it ended before its reply
			continue
		}
		before := writers.earliest()
		if !r.shared && reader.left > before.left {
			before = reader
		}
		switch {
		case before.left > r.got:
			had := fmt.Sprintf("%s had %s", before.owner(), h.names[r.key])
			if h.limit > 1 {
				had = fmt.Sprintf("%d clients had %s, %s among them", h.limit, h.names[r.key], before.owner())
			}
			p.fail(fmt.Sprintf("%s from %s to %s, and %s got it at %s", had, moment(before.got), moment(before.left), r.owner(), moment(r.got)))
			return
		case !r.shared && h.limit <= 1 && r.fence > 0 && r.fence <= number:
			p.fail(fmt.Sprintf("on %s number %d came after number %d", h.names[r.key], r.fence, number))
			return
		case r.shared && r.left > reader.left:
			reader = r
		case !r.shared:
			writers.add(r)
		}
		if !r.shared {
			number = max(number, r.fence)
		}
	}
	for _, i := range late {
		if p.searches++; p.searches > maxSearches || !p.Known {
			p.Known = false
			return
		}
		// porcupine searches for a place of hold i among the holds around it.
		result, _ := porcupine.CheckOperationsVerbose(lockModel(h.limit), operations(all[max(0, i-searchRadius):min(len(all), i+searchRadius)]), within)
		p.Known = result != porcupine.Unknown
		if result == porcupine.Illegal {
			p.fail(fmt.Sprintf("there is no time at which %s can have had %s, which it got at %s", all[i].owner(), h.names[all[i].key], moment(all[i].got)))
			return
		}
	}
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

// maxSearches is how many searches a proof makes. Each takes about 0.1 ms.
const maxSearches = 10_000

// searchRadius is how many holds before and after a hold a search includes.
const searchRadius = 30

// operations converts holds to porcupine operations.
func operations(all []recordedHold) []porcupine.Operation {
	end := int64(0)
	for _, r := range all {
		for _, at := range []int64{r.got, r.left, r.freed} {
			if at != notYet {
				end = max(end, at)
			}
		}
	}
	var ops []porcupine.Operation
	add := func(r recordedHold, what string, call, reply int64) {
		call = min(call, end+1)
		ops = append(ops, porcupine.Operation{
			ClientId: int(r.client), Input: request{what, r.hold, r.shared, r.fence},
			// Rounding may move a deadline before its call.
			Call: call, Return: max(min(reply, end+1), call),
		})
	}
	for _, r := range all {
		add(r, acquire, r.asked, r.got)
		switch {
		case r.left == notYet:
		case r.released:
			add(r, release, r.left, r.freed)
		default:
			add(r, lost, r.left, notYet)
		}
	}
	return ops
}

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
		return fmt.Sprintf("The history of %s is not proved: that would take too long%s", holds, leftOut)
	}
	return fmt.Sprintf("The history of %s is that of a lock%s", holds, leftOut)
}

// held is the state of one lock.
type held struct {
	writers string // the holds that exclude others; see [held.enter]
	readers int
	fence   int64
}

// lockModel is the porcupine model of a perfect lock that limit clients may hold at once.
func lockModel(limit int) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return held{} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(held).after(input.(request), max(limit, 1))
		},
	}
}

// Grants are the grants of one lock at one moment, in the model of [History.Prove]; the zero value
// is a free lock.
type Grants struct{ held }

// Add returns the grants with one more, and whether a lock with a limit may grant it beside the others.
func (g Grants) Add(hold int64, shared bool, limit int) (Grants, bool) {
	ok, next := g.after(request{what: acquire, hold: hold, shared: shared}, limit)
	return Grants{next.(held)}, ok
}

// after returns the state after a request, and whether a lock may grant the request in
// state s.
func (s held) after(r request, limit int) (bool, any) {
	writers := strings.Count(s.writers, ",")
	switch {
	case r.what == acquire && r.shared:
		s.readers++
		return writers == 0, s
	case r.what == acquire:
		free := writers < limit && s.readers == 0 && (limit > 1 || r.fence == 0 || r.fence > s.fence)
		s.enter(r.hold)
		s.fence = max(s.fence, r.fence)
		return free, s
	case r.shared:
		s.readers--
		return s.readers >= 0, s
	}
	ours := s.leave(r.hold)
	return ours, s
}

// enter adds a hold. The text is the same for the same holds, because porcupine compares
// states: their numbers, sorted, each with a comma behind it.
func (s *held) enter(hold int64) {
	all := strings.SplitAfter(s.writers, ",")
	all[len(all)-1] = strconv.FormatInt(hold, 10) + ","
	slices.Sort(all)
	s.writers = strings.Join(all, "")
}

// leave removes a hold and reports whether it was there.
func (s *held) leave(hold int64) bool {
	all := strings.SplitAfter(s.writers, ",")
	i := slices.Index(all, strconv.FormatInt(hold, 10)+",")
	if i >= 0 {
		s.writers = strings.Join(slices.Delete(all, i, i+1), "")
	}
	return i >= 0
}
