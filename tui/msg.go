package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
)

// tickMsg carries the time: nothing else on the screen knows what o'clock it is.
type tickMsg struct{ now time.Time }

// snapshotMsg answers a look at the server. It has a picture or an error.
type snapshotMsg struct {
	at      time.Time // our clock, when the answer had come
	picture *viewModel
	err     error
	jump    int // jumps of the player before it was asked
}

// metricsMsg is what the generator is doing.
type metricsMsg struct {
	metrics  loadgen.Metrics
	scenario loadgen.Scenario
	beside   []loadgen.Compared
	events   []loadgen.Event // since those that were seen
	anew     bool            // another run than the one that was seen
	changes  int             // of the scenario, before it was asked
}

// connectedMsg is where a guide has led to.
type connectedMsg struct {
	view  Target
	world Config
	err   error
}

// storedMsg says what is stored of a lock.
type storedMsg struct {
	id    keyspace.ID
	items []RawEntry
	err   error
}

// loadMsg has the load that was opened on the server that is looked at.
type loadMsg struct {
	load Load
	err  error
}

// appliedMsg says that the load follows what was asked for, or why it does not.
type appliedMsg struct{ err error }

// doneMsg tells how something turned out that a key had asked for.
type doneMsg struct {
	text string
	err  error
}

// crashMsg is a panic in a command, on its way to where the terminal can be
// restored before anything is printed.
type crashMsg struct {
	value any
	stack []byte
}

// openLockMsg asks for the page of one lock.
type openLockMsg struct{ lock keyspace.Lock } // as it was last seen

// openPageMsg asks for the page at a place.
type openPageMsg struct{ to pageSet }

// viewChangedMsg says that another picture is shown, with no look at the server.
type viewChangedMsg struct{}

// actionDoneMsg says what became of a deed.
type actionDoneMsg struct {
	deed pendingAction
	done int   // locks to which it was done
	err  error // the first one
}
