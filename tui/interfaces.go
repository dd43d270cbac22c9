package tui

import (
	"context"
	"time"

	"locktop/keyspace"
	"locktop/loadgen"
)

// Source is where the pictures come from.
type Source interface {
	// Snapshot returns the newest picture. It blocks until there is one or ctx
	// ends; the screen asks for one at a time.
	Snapshot(context.Context) (keyspace.Snapshot, error)
}

// Load is the traffic generator, as the screen drives it. All methods may be
// called from any goroutine. Nil where there is no server that may be loaded.
type Load interface {
	Start() error                 // begins, or begins again after Stop
	Stop() error                  // ends all clients and releases what they hold
	Apply(loadgen.Scenario) error // also while running
	Inject(loadgen.Fault) error   // makes something go wrong now
	Metrics() loadgen.Metrics
	Events(seen uint64) []loadgen.Event // since the event of that number
	Scenario() loadgen.Scenario
	Beside() []loadgen.Compared // the runs that it is compared with
}

// Loader opens a load on the server that is looked at; the user is asked before.
// Nil: there is no load to be had there.
type Loader interface {
	Open(context.Context) (Load, error)
}

// ForceReleaser changes locks that others hold, each only if it still is as it was
// seen, and writes down what it does. Nil: the screen only reads.
type Breaker interface {
	ForceRelease(context.Context, keyspace.Lock) (keyspace.AuditRecord, error)
	Extend(context.Context, keyspace.Lock, time.Duration) (keyspace.AuditRecord, error)
	Expire(context.Context, keyspace.Lock, time.Duration) (keyspace.AuditRecord, error)
}

// Connector leads to other locks of the same servers. Nil: what is looked at stays
// as it is.
type Connector interface {
	// Connect returns the world as it is from another point of view. What the
	// screen had before from this guide is of no use then.
	Connect(context.Context, Target) (Config, error)
}

// Target is which locks to look at; what is empty stays as it is.
type Target struct {
	DB    string // a number, or all
	Match string // a glob for the keys; * is all
}

// Store knows what the servers have under the keys of a lock. Nil: what is
// stored is not shown.
type Store interface {
	// Stored returns the keys of a lock that exist, its own first, of each as
	// much as anybody wants to read.
	Stored(context.Context, keyspace.Lock) ([]RawEntry, error)
}

// RawEntry is a key as a server has it.
type RawEntry struct {
	Node  string
	Entry keyspace.Entry
}

// Clipboard takes what the user copies. Nil: there is none.
type Clipboard interface {
	Copy(text string) error
}

// FrameSaver keeps frames that the user saves. Nil: they cannot be saved.
type FrameSaver interface {
	// Save writes a file that was not there before, and returns where it is.
	// The name has an ending, such as "frame.svg"; the album makes it one of
	// its own.
	Save(name string, data []byte) (where string, err error)
}

// Player plays a recording; the Source then is one, too. All methods may be
// called from any goroutine. Nil: this is live.
type Player interface {
	Pause(on bool)
	Seek(to time.Time) // on the recording's clock; beyond an end it is that end
	SetSpeed(factor float64)
	Playing() PlaybackState
}

// PlaybackState is where a player is.
type PlaybackState struct {
	At, First, Last time.Time // on the recording's clock
	Speed           float64
	Paused          bool
	Damage          string // what is wrong with the recording, "" if nothing is
}

// CommandStats knows every Redis command that was sent. Nil: nobody counts.
type CommandStats interface {
	Commands() []CommandStat
}

// CommandStat is how often one command was sent.
type CommandStat struct {
	Name   string // "get", "client setname" …
	Count  int64
	Errors int64         // answers that were errors
	Took   time.Duration // all of them together, from the request to the answer; those of a pipeline share its time
	Last   time.Time
}
