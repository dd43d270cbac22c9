package tui

import (
	"context"

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
	Start() error     // begins, or begins again after Stop
	Stop() error      // ends all clients and releases what they hold
	SetClients(n int) // more or fewer, also while running
	Metrics() loadgen.Metrics
	Scenario() loadgen.Scenario
}
