package tui

import (
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
)

// tickMsg carries the time: nothing else on the screen knows what o'clock it is.
type tickMsg struct{ now time.Time }

// lookedMsg answers a look at the server. Exactly one of its parts is set.
type lookedMsg struct {
	at      time.Time // our clock, when the answer had come
	picture *picture
	err     error
}

// measuredMsg is what the generator is doing.
type measuredMsg struct {
	metrics  loadgen.Metrics
	scenario loadgen.Scenario
	resizes  int // changes of the number of clients before it was asked
}

// resizedMsg says that the load has been told to have so many clients.
type resizedMsg struct{ clients int }

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

// showMsg asks for the page of one lock.
type showMsg struct{ id keyspace.ID }

// turnMsg asks for the page at a place.
type turnMsg struct{ to place }

// stillMsg says that another picture is shown, with no look at the server.
type stillMsg struct{}

// actedMsg says what became of a deed.
type actedMsg struct {
	deed deed
	done int   // locks to which it was done
	err  error // the first one
}
