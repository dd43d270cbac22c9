package tui

import (
	"context"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"locktop/keyspace"
	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// Source delivers snapshots.
type Source interface {
	// Snapshot returns the newest snapshot. It blocks until there is one or ctx ends. The
	// screen does not call it concurrently.
	Snapshot(context.Context) (keyspace.Snapshot, error)
}

// Load is the load generator. All methods are safe for concurrent use. A nil Load means that
// there is no server for a load.
type Load interface {
	Start() error                 // starts the clients, also after Stop
	Stop() error                  // stops all clients and releases their locks
	Apply(loadgen.Scenario) error // changes the scenario, also of a running load
	Inject(loadgen.Fault) error   // injects a fault now
	Check(loadgen.Scenario) error // returns an error if its servers or its agents cannot run the scenario
	Metrics() loadgen.Metrics
	Events(seen uint64) []loadgen.Event // events after number seen
	Scenario() loadgen.Scenario
	Beside() []loadgen.Compared // runs to compare this one with
}

// AgentLoad is a Load whose clients run in other processes, the agents.
type AgentLoad interface {
	Load
	Agents() []loadgen.AgentState // of the newest start, by number, also while it waits for them
	Incomplete() []string         // reasons why the figures are not complete
	Witness() *witness.Results    // nil if there is no witness
}

// Loader opens a load on the current server after the user has confirmed it. A nil Loader means
// that no load is possible.
type Loader interface {
	Open(context.Context) (Load, error)
}

// Executor changes locks of other clients. It changes a lock only if the lock is unchanged since
// the snapshot, and audits every change. With a nil Executor, the screen is read-only.
type Executor interface {
	Act(ctx context.Context, what keyspace.Action, seen keyspace.Lock, ttl time.Duration) (keyspace.AuditRecord, error)
	// Recheck reads a lock again after an action with the outcome Unanswered, until its servers answer
	// or ctx ends. It returns what it has found, also as a sentence.
	Recheck(context.Context, keyspace.AuditRecord, keyspace.Lock) (keyspace.Outcome, string, error)
	Refused(context.Context) string // why no action is possible; "" = it is, or that is not known
}

// Writer switches whether the screen may act, and returns its Executor from then on.
type Writer func(ctx context.Context, on bool) (Executor, error)

// Connector connects to other locks of the same servers. With a nil Connector, the target
// cannot be changed.
type Connector interface {
	// Connect returns the Config for a target. It invalidates the sources in earlier Configs.
	Connect(context.Context, Target) (Config, error)
}

// Target selects locks. An empty field keeps its value.
type Target struct {
	DB    string // a number, or "all"
	Match string // a glob for keys; * matches all
}

// Store reads the raw values of locks. With a nil Store, the screen does not show them.
type Store interface {
	// Stored returns the existing keys of a lock from its servers, the lock's own key first.
	// It cuts long values.
	Stored(context.Context, keyspace.Lock) ([]RawEntry, error)
}

// Finder finds the clients that hold locks. With a nil Finder, the screen does not look for
// them.
type Finder interface {
	// Clients lists the clients of the server that has a lock, without those of locktop. If they are
	// too many, it lists only those with the known IDs, and all is false.
	Clients(ctx context.Context, l keyspace.Lock, known []int64) (list []keyspace.Client, all bool, err error)
	// WatchHolder watches a lock until the client of a holder is named by coincidence, or
	// until ctx ends, which is not an error. others are further locks of the same owner.
	WatchHolder(ctx context.Context, l keyspace.Lock, h keyspace.Holder, others []*keyspace.Lock) (keyspace.Suspicion, error)
}

// RawEntry is a key on one server.
type RawEntry struct {
	Node  string
	Entry keyspace.Entry
}

// Runner runs programs of the user in the terminal, in place of the screen.
type Runner interface {
	// Command returns the run of a program with its arguments. It ends with ctx.
	Command(ctx context.Context, args []string) tea.ExecCommand
}

// Notifier draws the user's attention to a terminal that is not in focus. With a nil Notifier, the
// screen never does.
type Notifier interface {
	Notify(text string) error // of one line, without control characters
}

// Clipboard receives copied text. Nil means that there is no clipboard.
type Clipboard interface {
	Copy(text string) error
}

// FrameSaver saves files for the user. With a nil FrameSaver, saving is disabled.
type FrameSaver interface {
	// Save writes a new file and returns its path. It never overwrites a file: it derives a
	// unique name from name, such as "frame.svg", and keeps the extension.
	Save(name string, data []byte) (where string, err error)
}

// Player controls the playback of a recording, which is also the Source. All methods are safe
// for concurrent use. A nil Player means a live view.
type Player interface {
	Pause(on bool)
	Seek(to time.Time) // time of the recording, limited to its first and last moment
	SetSpeed(factor float64)
	Playing() PlaybackState
}

// PlaybackState is the state of a Player.
type PlaybackState struct {
	At, First, Last time.Time // times of the recording
	Speed           float64
	Paused          bool
	Damage          string // what is wrong with the recording, "" if nothing is

	GapFrom, GapUntil time.Time // nothing was recorded in between, and the last snapshot is of GapFrom; zero: no gap
}
