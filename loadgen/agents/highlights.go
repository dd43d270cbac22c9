package agents

import (
	"slices"
	"sync"

	"locktop/loadgen"
)

// highlights collects the few events of an agent that its coordinator shows: the faults of
// its clients, and the first violation of each kind on each key since the newest fault. The
// zero value is empty. Safe for concurrent use.
type highlights struct {
	mu    sync.Mutex
	holds map[int]string     // key that a client holds
	known map[[2]string]bool // violations since the newest fault: kind and key
	news  []sentEvent        // that are not sent
}

// sentEvent is an event in a message. Unlike [loadgen.Event], it can be read again from JSON.
type sentEvent loadgen.Event

// maxHighlights is the number of events that wait to be sent. Later ones are left out.
const maxHighlights = 100

// note adds an event of the run, if it is one to show. A fault gets the key that its client
// holds.
func (h *highlights) note(e loadgen.Event) {
	switch e.Kind {
	case loadgen.Arrived, loadgen.TimedOut, loadgen.Refused, loadgen.Failed, loadgen.StageBegan:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holds == nil {
		h.holds, h.known = make(map[int]string), make(map[[2]string]bool)
	}
	switch e.Kind {
	case loadgen.Acquired:
		h.holds[e.Client] = e.Key
		return
	case loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Abandoned:
		delete(h.holds, e.Client)
		return
	case loadgen.FaultBegan, loadgen.FaultEnded:
		if e.Fault.OnServers() {
			return // the coordinator has applied it
		}
		if e.Kind == loadgen.FaultBegan {
			e.Key = h.holds[e.Client]
			clear(h.known)
		}
	default:
		on := [2]string{string(e.Kind), e.Key}
		if h.known[on] {
			return
		}
		h.known[on] = true
	}
	if len(h.news) < maxHighlights {
		h.news = append(h.news, sentEvent(e))
	}
}

// unsent returns the events that are not sent, oldest first.
func (h *highlights) unsent() []sentEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.news)
}

// sent removes the oldest n events.
func (h *highlights) sent(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news = slices.Delete(h.news, 0, n)
}
