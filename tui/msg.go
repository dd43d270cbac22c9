package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
)

// tickMsg carries the current time. Messages are the screen's only source of time.
type tickMsg struct{ now time.Time }

// snapshotMsg carries a view model or an error.
type snapshotMsg struct {
	at      time.Time // local time of the answer
	picture *viewModel
	err     error
	jump    int // seeks of the player before the request
}

// metricsMsg carries the state of the load generator.
type metricsMsg struct {
	metrics  loadgen.Metrics
	scenario loadgen.Scenario
	beside   []loadgen.Compared
	events   []loadgen.Event // after those already received
	anew     bool            // another run than that of the request
	changes  int             // changes of the scenario before the request
}

// connectedMsg carries the result of a Connector.
type connectedMsg struct {
	view  Target
	world Config
	err   error
}

// storedMsg carries the raw values of a lock.
type storedMsg struct {
	id    keyspace.ID
	items []RawEntry
	err   error
}

// loadMsg carries the load that a Loader opened.
type loadMsg struct {
	load Load
	err  error
}

// appliedMsg reports that the load applies the scenario, or the error.
type appliedMsg struct{ err error }

// doneMsg reports the result of a command.
type doneMsg struct {
	text string
	err  error
}

// crashMsg carries a panic of a command to the event loop, which restores the terminal before
// it prints the panic.
type crashMsg struct {
	value any
	stack []byte
}

// openLockMsg requests the page of one lock.
type openLockMsg struct{ lock keyspace.Lock } // as last seen

// openPageMsg requests a page.
type openPageMsg struct{ to pageSet }

// viewChangedMsg reports that the screen shows another view model without a request to the
// server.
type viewChangedMsg struct{}

// actionDoneMsg reports the result of an action.
type actionDoneMsg struct {
	deed pendingAction
	done int   // locks with success
	err  error // first error
}
