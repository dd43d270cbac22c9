package tui

import (
	"slices"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/loadgen"
)

// loadState is the state of the load on the screen.
type loadState struct {
	load     Load           // nil if there is none
	begin    func() tea.Cmd // opens a load; nil if that is impossible
	failed   string         // why the clients did not start, until the next change; "" if they did
	metrics  loadgen.Metrics
	compared []loadgen.Compared // runs to compare this one with
	agents   agentsState        // empty if the clients run in this process
	scenario loadgen.Scenario   // as last requested
	seen     uint64             // number of the newest event
	faults   []faultSpan        // recent faults
	faultLog faultLog           // sentences about their effects

	measuring bool // a request for metrics is active
	changing  bool // a change of the scenario is active
	launching bool // a start of the same scenario is active
	changes   int  // number of changes so far
	pending   bool // another change must follow
	starting  bool // that change starts the load

	quorum []string // addresses of the Redlock's servers, in the load's order
	scenes []loadgen.Scenario
	scene  int // index of the current scene; -1 if none
}

// faultSpan is a fault with its start and end.
type faultSpan struct {
	kind     loadgen.FaultKind
	client   int
	from, to time.Time // local time; to is zero while the fault is active
}

// measure requests metrics unless a request is active.
func (f *loadState) measure() tea.Cmd {
	if f.load == nil || f.measuring {
		return nil
	}
	f.measuring = true
	return fetchMetrics(f.load, f.changes, f.metrics.Began, f.seen)
}

// measured stores the metrics. It ignores a scenario from before the last change, so that
// repeated key presses add up.
func (f *loadState) measured(msg metricsMsg) {
	f.measuring = false
	f.metrics, f.compared, f.agents = msg.metrics, msg.compared, msg.agents
	if !f.changing && msg.changes == f.changes {
		f.scenario = msg.scenario
	}
	if msg.newRun {
		f.endFaults(msg.metrics.Began)
	}
	if n := len(msg.events); n > 0 {
		f.seen = msg.events[n-1].Seq
	} else if msg.newRun {
		f.seen = 0
	}
	for i := range msg.events {
		f.onFault(&msg.events[i])
	}
	if !msg.metrics.Running {
		f.endFaults(msg.metrics.Began.Add(msg.metrics.Elapsed))
	}
	f.faultLog.calm = msg.scenario.Hold.Typical() >= 100*time.Millisecond
	f.faultLog.apply(loadgen.EachKey(msg.events), msg.newRun, msg.scenario.Lock, len(f.quorum))
}

// endFaults ends the active faults and discards those older than historyKept.
func (f *loadState) endFaults(at time.Time) {
	for i := range f.faults {
		if f.faults[i].to.IsZero() {
			f.faults[i].to = at
		}
	}
	f.faults = slices.DeleteFunc(f.faults, func(x faultSpan) bool { return at.Sub(x.to) > historyKept })
}

// faultsKept is the number of faults that are drawn.
const faultsKept = 512

// onFault records the start or end of a fault.
func (f *loadState) onFault(e *loadgen.Event) {
	switch e.Kind {
	case loadgen.FaultBegan:
		f.faults = append(f.faults, faultSpan{e.Fault, e.Client, e.At, time.Time{}})
		f.faults = f.faults[max(0, len(f.faults)-faultsKept):]
	case loadgen.FaultEnded:
		for i := len(f.faults) - 1; i >= 0; i-- {
			if x := &f.faults[i]; x.kind == e.Fault && x.client == e.Client && x.to.IsZero() {
				x.to = e.At
				return
			}
		}
	}
}

// request applies another scenario, and starts the load if start is set. Only one change is
// active at a time, because two could finish in the wrong order. The latest scenario that was
// requested during a change follows it, with a start if one of these requests had it.
func (f *loadState) request(s loadgen.Scenario, start bool) tea.Cmd {
	f.scenario, f.failed = s, ""
	if f.changing {
		f.pending, f.starting = true, f.starting || start
		return nil
	}
	f.changing, f.pending = true, false
	f.changes++
	return apply(f.load, s, start)
}

// applied ends a change and starts the pending one.
func (f *loadState) applied() tea.Cmd {
	f.changing = false
	if !f.pending {
		return nil
	}
	start := f.starting
	f.starting = false
	return f.request(f.scenario, start)
}

// startScene starts the scene with the given index, which wraps around.
func (f *loadState) startScene(scene int) tea.Cmd {
	n := len(f.scenes)
	f.scene = (scene + n) % n
	return f.request(f.scenes[f.scene], true)
}
