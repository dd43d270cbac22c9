package tui

import (
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/loadgen"
)

// loadState is what the screen knows of the load, and wants of it.
type loadState struct {
	load     Load    // nil: there is none
	begin    tea.Cmd // opens one; nil: there is none to be had
	metrics  loadgen.Metrics
	beside   []loadgen.Compared // the runs that it is compared with
	scenario loadgen.Scenario   // as it was last asked for
	seen     uint64             // the newest event
	faults   []faultSpan        // that struck lately
	account  faultLog           // of what they led to

	measuring bool // a measurement is under way
	changing  bool // a change of the scenario is under way
	changes   int  // such changes so far
	pending   bool // another one has to follow

	quorum []string // the addresses of its Redlock's servers, in its order
	scenes []loadgen.Scenario
	scene  int // the one that plays; -1: none of them
}

// faultSpan is a fault, from when to when it lasted.
type faultSpan struct {
	kind     loadgen.FaultKind
	client   int
	from, to time.Time // our clock; to is zero while it goes on
}

// measure asks for new figures, one request at a time.
func (f *loadState) measure() tea.Cmd {
	if f.load == nil || f.measuring {
		return nil
	}
	f.measuring = true
	return fetchMetrics(f.load, f.changes, f.metrics.Began, f.seen)
}

// measured takes new figures in. A scenario from before the last change is not
// believed, so that keys pressed in a row add up.
func (f *loadState) measured(msg metricsMsg) {
	f.measuring = false
	f.metrics, f.beside = msg.metrics, msg.beside
	if !f.changing && msg.changes == f.changes {
		f.scenario = msg.scenario
	}
	if msg.anew {
		f.over(msg.metrics.Began)
	}
	if n := len(msg.events); n > 0 {
		f.seen = msg.events[n-1].Seq
	} else if msg.anew {
		f.seen = 0
	}
	for i := range msg.events {
		f.onFault(&msg.events[i])
	}
	if !msg.metrics.Running {
		f.over(msg.metrics.Began.Add(msg.metrics.Elapsed))
	}
	f.account.apply(msg.events, msg.anew, len(f.quorum))
}

// over ends the faults that go on, and forgets those that no timeline reaches.
func (f *loadState) over(at time.Time) {
	for i := range f.faults {
		if f.faults[i].to.IsZero() {
			f.faults[i].to = at
		}
	}
	f.faults = slices.DeleteFunc(f.faults, func(x faultSpan) bool { return at.Sub(x.to) > historyKept })
}

// onFault remembers the faults among the events.
func (f *loadState) onFault(e *loadgen.Event) {
	switch e.Kind {
	case loadgen.FaultBegan:
		f.faults = append(f.faults, faultSpan{e.Fault, e.Client, e.At, time.Time{}})
		f.faults = f.faults[max(0, len(f.faults)-maxHolds):]
	case loadgen.FaultEnded:
		for i := len(f.faults) - 1; i >= 0; i-- {
			if x := &f.faults[i]; x.kind == e.Fault && x.client == e.Client && x.to.IsZero() {
				x.to = e.At
				return
			}
		}
	}
}

// request asks for another scenario. There is one change at a time, since two might
// overtake each other: what is wanted meanwhile follows when it is done.
func (f *loadState) request(s loadgen.Scenario, start bool) tea.Cmd {
	f.scenario = s
	if f.changing {
		f.pending = true
		return nil
	}
	f.changing, f.pending = true, false
	f.changes++
	return apply(f.load, s, start)
}

// applied notes that a change is done, and asks for what was wanted meanwhile.
func (f *loadState) applied() tea.Cmd {
	f.changing = false
	if !f.pending {
		return nil
	}
	return f.request(f.scenario, false)
}

// startScenario begins the scene that is so many further on.
func (f *loadState) startScenario(scene int) tea.Cmd {
	n := len(f.scenes)
	f.scene = (scene + n) % n
	return f.request(f.scenes[f.scene], true)
}
