package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"locktop/loadgen"
)

// fleet is what the screen knows of the load, and wants of it.
type fleet struct {
	load     Load // nil: there is none
	metrics  loadgen.Metrics
	scenario loadgen.Scenario // its Clients as they were last asked for

	measuring bool // a measurement is under way
	resizing  bool // a change of the number of clients is under way
	resizes   int  // such changes so far
}

// measure asks for new figures, one request at a time.
func (f *fleet) measure() tea.Cmd {
	if f.load == nil || f.measuring {
		return nil
	}
	f.measuring = true
	return measure(f.load, f.resizes)
}

// measured takes new figures in. A number of clients from before the last
// change is not believed, so that keys pressed in a row add up.
func (f *fleet) measured(msg measuredMsg) {
	f.measuring = false
	wanted := f.scenario.Clients
	f.metrics, f.scenario = msg.metrics, msg.scenario
	if f.resizing || msg.resizes != f.resizes {
		f.scenario.Clients = wanted
	}
}

// resize asks for n clients. There is one change at a time, since two might
// overtake each other: what is wanted meanwhile follows when it is done.
func (f *fleet) resize(n int) tea.Cmd {
	f.scenario.Clients = n
	if f.resizing {
		return nil
	}
	f.resizing = true
	f.resizes++
	return setClients(f.load, n)
}

// resized notes that a change is done, and asks for what was wanted meanwhile.
func (f *fleet) resized(n int) tea.Cmd {
	f.resizing = false
	if f.scenario.Clients == n {
		return nil
	}
	return f.resize(f.scenario.Clients)
}
