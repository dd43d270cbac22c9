package loadgen

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// HistoryLimit is how many holds of one key a [History] keeps: what can be
// proved in seconds.
const HistoryLimit = 10_000

// History is what the clients of a run asked of the locks and what they were
// answered, for a proof that the answers can be those of a lock: that there is an
// order of all requests, each between its call and its reply, in which one lock
// that knows nothing of networks and clocks would have answered the same. The
// zero value is empty. Safe for concurrent use.
type History struct {
	mu    sync.Mutex
	zero  time.Time
	ops   []porcupine.Operation
	takes map[string]int
	holds int64
	over  int64 // holds that were left out
}

// request is the input of an operation on one lock.
type request struct {
	key    string
	what   EventKind // Acquired, Released, or Lost: it ended without a release
	hold   int64
	client int
	shared bool
	fence  int64
}

// acquired keeps a request that was answered with a lease.
func (h *History) acquired(v *visit, asked, now time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := v.section.name
	if h.takes == nil {
		h.takes, h.zero = make(map[string]int), asked
	}
	if h.takes[key] == HistoryLimit {
		h.over++
		return
	}
	h.takes[key]++
	h.holds++
	v.hold = h.holds
	h.add(v, Acquired, asked, now)
}

// ended keeps the end of a hold.
func (h *History) ended(v *visit, left, now time.Time, how outcome) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case v.hold == 0:
	case how == released:
		h.add(v, Released, left, now)
	default:
		// Without an answer it is over at some time after its holder was out, or
		// its time was.
		if d := v.lease.Deadline(); d.Before(left) {
			left = d
		}
		h.add(v, Lost, left, time.Time{})
	}
}

func (h *History) add(v *visit, what EventKind, call, reply time.Time) {
	op := porcupine.Operation{
		ClientId: v.client,
		Input:    request{v.section.name, what, v.hold, v.client, v.shared, v.fence},
		Call:     call.Sub(h.zero).Nanoseconds(),
		Return:   reply.Sub(h.zero).Nanoseconds(),
	}
	if reply.IsZero() {
		op.Return = math.MaxInt64 // at the end, whenever that is
	}
	h.ops = append(h.ops, op)
}

// Proof is what became of a history.
type Proof struct {
	Holds   int64 // that were looked at
	LeftOut int64 // over the limit of their key
	Sound   bool  // the answers can be those of a lock
	Known   bool  // the proof was finished in time
	info    porcupine.LinearizationInfo
	model   porcupine.Model
}

// Prove looks for an order of all requests in which a lock would have answered
// the same. It gives up after a while.
func (h *History) Prove(within time.Duration) Proof {
	h.mu.Lock()
	defer h.mu.Unlock()
	ops := slices.Clone(h.ops)
	end := int64(0)
	for _, op := range ops {
		end = max(end, op.Call)
		if op.Return < math.MaxInt64 {
			end = max(end, op.Return)
		}
	}
	for i := range ops {
		ops[i].Return = min(ops[i].Return, end+1)
		// A deadline read back may lie before the call it belongs to by a rounding.
		ops[i].Return = max(ops[i].Return, ops[i].Call)
	}
	p := Proof{Holds: h.holds, LeftOut: h.over, model: lockModel()}
	result, info := porcupine.CheckOperationsVerbose(p.model, ops, within)
	p.info, p.Sound, p.Known = info, result == porcupine.Ok, result != porcupine.Unknown
	return p
}

// WriteHTML draws the history, and where the order breaks if it does.
func (p Proof) WriteHTML(w io.Writer) error {
	if err := porcupine.Visualize(p.model, p.info, w); err != nil {
		return fmt.Errorf("draw the history: %w", err)
	}
	return nil
}

// String says in one sentence what was proved.
func (p Proof) String() string {
	leftOut := ""
	if p.LeftOut > 0 {
		leftOut = fmt.Sprintf(" (%d more were left out: %d a key are enough)", p.LeftOut, HistoryLimit)
	}
	switch {
	case !p.Known:
		return fmt.Sprintf("the history of %d holds could not be checked in time%s", p.Holds, leftOut)
	case !p.Sound:
		return fmt.Sprintf("the history of %d holds is not that of a lock%s", p.Holds, leftOut)
	}
	return fmt.Sprintf("the history of %d holds is that of a lock%s", p.Holds, leftOut)
}

// held is the state of one lock.
type held struct {
	writer  int64 // hold; 0 = none
	readers int
	fence   int64
}

// lockModel is a lock that one process keeps in mind.
func lockModel() porcupine.Model {
	return porcupine.Model{
		Partition: byKey,
		Init:      func() any { return held{} },
		Step: func(state, input, _ any) (bool, any) {
			return state.(held).after(input.(request))
		},
		DescribeOperation: func(input, _ any) string {
			r := input.(request)
			mode := ""
			if r.shared {
				mode = " to read"
			}
			return fmt.Sprintf("%s %s%s", ownerOf(r.client+1), r.what, mode)
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

// after returns the state after a request, and whether a lock can be asked that
// in this state and answer yes.
func (s held) after(r request) (bool, any) {
	switch {
	case r.what == Acquired && r.shared:
		s.readers++
		return s.writer == 0, s
	case r.what == Acquired:
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

// byKey splits a history by lock.
func byKey(ops []porcupine.Operation) [][]porcupine.Operation {
	groups := make(map[string][]porcupine.Operation)
	for _, op := range ops {
		key := op.Input.(request).key
		groups[key] = append(groups[key], op)
	}
	keys := make([]string, 0, len(groups))
	for key := range groups {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, strings.Compare)
	split := make([][]porcupine.Operation, len(keys))
	for i, key := range keys {
		split[i] = groups[key]
	}
	return split
}
