package loadgen

import (
	"errors"
	"fmt"
	"sync"

	"github.com/redis/go-redis/v9"
)

// ErrClosed is returned by [Run.Start] after [Run.Close].
var ErrClosed = errors.New("load generator is closed")

// Run is a scenario that can be started, changed while it runs, stopped, and
// started again. All methods may be called from any goroutine.
type Run struct {
	open func(Scenario) (identity, error) // what a fleet locks with

	changing sync.Mutex // one start, stop or close at a time

	mu       sync.Mutex // for what follows
	scenario Scenario
	fleet    *fleet // the newest; nil before the first start
	running  bool
	closed   bool
}

// New returns a run of s that has not been started. At every start it takes
// rdb's options and dials connections of its own; rdb stays the caller's.
func New(rdb redis.UniversalClient, s Scenario) (*Run, error) {
	return newRun(s, func(s Scenario) (identity, error) { return openMutexes(rdb, s) })
}

func newRun(s Scenario, open func(Scenario) (identity, error)) (*Run, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return &Run{open: open, scenario: s.WithDefaults()}, nil
}

// Start begins, or begins again after Stop, with new figures and the same
// choices. It waits for a Stop that is under way, does nothing if the run is
// running, and returns ErrClosed after Close. It asks the server nothing: one
// that cannot be reached shows in the figures, as errors.
func (r *Run) Start() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.running:
		return nil
	}
	root, err := r.open(r.scenario)
	if err != nil {
		return fmt.Errorf("start the load: %w", err)
	}
	r.fleet = newFleet(r.scenario, root)
	r.running = true
	return nil
}

// Stop ends all clients, cuts their work short, releases what they hold, and
// waits until that is done; a server that does not answer delays it by some
// seconds. It returns the first error that kept a lease from being released;
// such a lease ends with its TTL. It does nothing if the run is not running.
func (r *Run) Stop() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.stop()
}

// stop is Stop for those who are changing the run already.
func (r *Run) stop() error {
	r.mu.Lock()
	f, running := r.fleet, r.running
	r.mu.Unlock()
	if !running {
		return nil
	}
	err := f.stop()
	r.mu.Lock()
	r.running = false
	r.mu.Unlock()
	if err != nil {
		return fmt.Errorf("stop the load: %w", err)
	}
	return nil
}

// Close stops the run for good; nothing of it is left when it returns. It may be
// called again, and then does nothing.
func (r *Run) Close() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	return r.stop()
}

// SetClients asks for n clients, 0 to MaxClients, now and at the next start. It
// does not wait: new clients begin at once, and those that are too many, the
// last ones first, finish what they hold.
func (r *Run) SetClients(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scenario.Clients = min(max(n, 0), MaxClients)
	if r.running {
		r.fleet.resize(r.scenario.Clients)
	}
}

// Metrics returns a picture of this moment. After Stop, it is the last one.
func (r *Run) Metrics() Metrics {
	r.mu.Lock()
	f := r.fleet
	r.mu.Unlock()
	if f == nil {
		return Metrics{}
	}
	return f.metrics()
}

// Scenario returns what is run, defaults filled in, with the clients that were
// asked for last.
func (r *Run) Scenario() Scenario {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scenario
}
