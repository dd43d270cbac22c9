package oracle

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"locktop/humanize"
)

// HistoryLimit is how many holds a [History] keeps. Each takes 64 bytes, and 64 more
// during the proof.
const HistoryLimit = 4_000_000

// History records the requests of the clients to the locks and the replies. Prove
// checks that the replies are linearizable: there is an order of all requests, each
// between its call and its reply, in which a single perfect lock gives the same
// replies. The zero value is empty. Safe for concurrent use.
type History struct {
	mu    sync.Mutex
	zero  time.Time
	keys  map[string]int32
	names []string
	parts [][]recordedHold // of partSize each, to avoid copies
	holds int64
	over  int64 // holds above the limit
}

// partSize is the number of holds per part.
const partSize = 4096

// recordedHold is one hold of a history. Times are in nanoseconds since the first request.
type recordedHold struct {
	asked, got  int64 // call of the acquire and its reply
	left, freed int64 // call of the release and its reply
	fence       int64
	hold        int64 // from 1
	key, client int32
	shared      bool
	released    bool // false: it ended without a release
}

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
	client int
	shared bool
	fence  int64
}

// Acquired records a request with a lease as its reply. It does nothing if h is nil.
func (h *History) Acquired(v *Occupancy, asked, now time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.keys == nil {
		h.keys, h.zero = make(map[string]int32), asked
	}
	if h.holds == HistoryLimit {
		h.over++
		return
	}
	name := v.section.name
	key, known := h.keys[name]
	if !known {
		key = int32(len(h.names))
		h.keys[name], h.names = key, append(h.names, name)
	}
	if h.holds%partSize == 0 {
		h.parts = append(h.parts, make([]recordedHold, 0, partSize))
	}
	h.holds++
	v.hold = h.holds
	part := &h.parts[len(h.parts)-1]
	*part = append(*part, recordedHold{
		asked: asked.Sub(h.zero).Nanoseconds(), got: now.Sub(h.zero).Nanoseconds(), left: notYet, freed: notYet,
		fence: v.participant.Fence, hold: v.hold, key: key, client: int32(v.participant.Client), shared: v.participant.Shared,
	})
}

// Ended records the end of a hold, and whether the client released it. It does nothing if h is nil.
func (h *History) Ended(v *Occupancy, left, now time.Time, released bool) {
	if h == nil || v.hold == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	r := &h.parts[(v.hold-1)/partSize][(v.hold-1)%partSize]
	if released {
		r.left, r.freed, r.released = left.Sub(h.zero).Nanoseconds(), now.Sub(h.zero).Nanoseconds(), true
		return
	}
	// Without a confirmed release, the hold ends at some time after the holder left or
	// after the deadline.
	r.left = earlier(left, v.lease.Deadline()).Sub(h.zero).Nanoseconds()
}

// Proof is the result of [History.Prove].
type Proof struct {
	Holds   int64  // checked holds
	LeftOut int64  // holds above the limit
	Sound   bool   // the replies are linearizable, or no violation was found
	Known   bool   // every part of the proof has finished in time
	Why     string // the first violation, "" if there is none

	drawn []recordedHold // holds for WriteHTML
}

// Prove checks that the history is linearizable. A lock is certainly held from the
// reply to its acquire until the call of its release. If these intervals of conflicting
// holds do not overlap, the order exists: each acquire at its reply, each release at
// its call. One pass over the sorted holds checks this. A hold that ended before its
// reply needs a search, which Prove gives up after within.
func (h *History) Prove(within time.Duration) Proof {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := Proof{Holds: h.holds, LeftOut: h.over, Sound: true, Known: true}
	all := slices.Concat(h.parts...)
	slices.SortFunc(all, func(a, b recordedHold) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.got, b.got), cmp.Compare(a.hold, b.hold))
	})
	for len(all) > 0 && p.Sound {
		n := 1
		for n < len(all) && all[n].key == all[0].key {
			n++
		}
		h.proveKey(&p, all[:n], within)
		all = all[n:]
	}
	return p
}

// proveKey checks the holds of one key, sorted by the time of the reply.
func (h *History) proveKey(p *Proof, all []recordedHold, within time.Duration) {
	if p.drawn == nil {
		p.drawn = all[:min(len(all), maxDrawn)]
	}
	var late []int
	writer, reader := recordedHold{left: math.MinInt64}, recordedHold{left: math.MinInt64} // those with the latest end so far
	number := int64(0)
	for i, r := range all {
		if r.left < r.got {
			late = append(late, i) // it ended before its reply
			continue
		}
		before := writer
		if !r.shared && reader.left > before.left {
			before = reader
		}
		switch {
		case before.left > r.got:
			h.addViolation(p, all, i, fmt.Sprintf("%s had %s from %s to %s, and %s got it at %s", ClientLabel(int(before.client)+1), h.names[r.key],
				humanize.Precise(time.Duration(before.got)), humanize.Precise(time.Duration(before.left)), ClientLabel(int(r.client)+1), humanize.Precise(time.Duration(r.got))))
			return
		case !r.shared && r.fence > 0 && r.fence <= number:
			h.addViolation(p, all, i, fmt.Sprintf("on %s number %d came after number %d", h.names[r.key], r.fence, number))
			return
		case r.shared && r.left > reader.left:
			reader = r
		case !r.shared && r.left >= writer.left:
			writer = r
		}
		if !r.shared {
			number = max(number, r.fence)
		}
	}
	for _, i := range late {
		sound, known := fits(all, i, within)
		p.Known = p.Known && known
		if known && !sound {
			h.addViolation(p, all, i, fmt.Sprintf("there is no time at which %s can have had %s, which it got at %s",
				ClientLabel(int(all[i].client)+1), h.names[all[i].key], humanize.Precise(time.Duration(all[i].got))))
			return
		}
	}
}

// searchRadius is how many holds before and after a hold fits includes in its search.
const searchRadius = 30

// fits searches with porcupine for a place of hold i, which ended before its reply,
// among the holds around it.
func fits(all []recordedHold, i int, within time.Duration) (sound, known bool) {
	result, _ := porcupine.CheckOperationsVerbose(lockModel(), operations(all[max(0, i-searchRadius):min(len(all), i+searchRadius)]), within)
	return result == porcupine.Ok, result != porcupine.Unknown
}

// addViolation records a violation at hold i.
func (h *History) addViolation(p *Proof, all []recordedHold, i int, why string) {
	p.Sound, p.Why = false, why
	p.drawn = all[max(0, i-maxDrawn/2):min(len(all), i+maxDrawn/2)]
}

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
			ClientId: int(r.client), Input: request{what, r.hold, int(r.client), r.shared, r.fence},
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

// Limits of the HTML drawing: the number of holds and the time to compute it.
const (
	maxDrawn   = 200
	drawWithin = 10 * time.Second
)

// WriteHTML draws the holds around the violation or, without one, the first holds.
func (p Proof) WriteHTML(w io.Writer) error {
	model := lockModel()
	_, info := porcupine.CheckOperationsVerbose(model, operations(p.drawn), drawWithin)
	if err := porcupine.Visualize(model, info, w); err != nil {
		return fmt.Errorf("draw the history: %w", err)
	}
	return nil
}

// String describes the result in one sentence.
func (p Proof) String() string {
	leftOut := ""
	if p.LeftOut > 0 {
		leftOut = fmt.Sprintf(" (%d more were left out: %d are kept)", p.LeftOut, HistoryLimit)
	}
	switch {
	case !p.Sound:
		return fmt.Sprintf("the history of %d holds is not that of a lock%s: %s", p.Holds, leftOut, p.Why)
	case !p.Known:
		return fmt.Sprintf("the history of %d holds could not be checked in time%s", p.Holds, leftOut)
	}
	return fmt.Sprintf("the history of %d holds is that of a lock%s", p.Holds, leftOut)
}

// held is the state of one lock.
type held struct {
	writer  int64 // number of the hold; 0 = none
	readers int
	fence   int64
}

// lockModel is the porcupine model of a perfect lock.
func lockModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return held{} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(held).after(input.(request))
		},
		DescribeOperation: func(input, _ any) string {
			r := input.(request)
			mode := ""
			if r.shared {
				mode = " to read"
			}
			return fmt.Sprintf("%s %s%s", ClientLabel(r.client+1), r.what, mode)
		},
		DescribeState: func(state any) string {
			s := state.(held)
			switch {
			case s.writer != 0:
				return fmt.Sprintf("held, hold %d", s.writer)
			case s.readers > 0:
				return fmt.Sprintf("read by %d", s.readers)
			}
			return "free"
		},
	}
}

// after returns the state after a request, and whether a lock may grant the request in
// state s.
func (s held) after(r request) (bool, any) {
	switch {
	case r.what == acquire && r.shared:
		s.readers++
		return s.writer == 0, s
	case r.what == acquire:
		free := s.writer == 0 && s.readers == 0 && (r.fence == 0 || r.fence > s.fence)
		s.writer, s.fence = r.hold, max(s.fence, r.fence)
		return free, s
	case r.shared:
		s.readers--
		return s.readers >= 0, s
	}
	ours := s.writer == r.hold
	s.writer = 0
	return ours, s
}
