package loadgen

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// ErrClosed is returned by [Run.Start] after [Run.Close].
var ErrClosed = errors.New("load generator is closed")

// Run is a scenario that can be started, changed while it runs, stopped, and
// started again. All methods may be called from any goroutine.
type Run struct {
	servers Servers
	open    func(sessionConfig) (session, error) // what a fleet locks with
	history *History
	tell    func(Event)
	shared  bool // the prefix is not of our making: there may be keys of others

	changing sync.Mutex // one start, stop, change or close at a time

	mu       sync.Mutex // for what follows
	scenario Scenario
	fleet    *fleet // the newest; nil before the first start
	running  bool
	closed   bool
	over     chan struct{} // closed when the newest start has run its time or was stopped
	stopping sync.WaitGroup
}

// New returns a run of s that has not been started. At every start it takes the
// servers' options and dials connections of its own; their clients stay the
// caller's.
func New(on Servers, s Scenario) (*Run, error) {
	return newRun(on, s, open)
}

func newRun(on Servers, s Scenario, open func(sessionConfig) (session, error)) (*Run, error) {
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	shared := s.Keys.Prefix != ""
	s = s.WithDefaults()
	if err := on.supports(s); err != nil {
		return nil, fmt.Errorf("scenario: %w", err)
	}
	return &Run{servers: on, open: open, scenario: s, shared: shared, over: make(chan struct{})}, nil
}

// Listen has every event told to somebody, in order, as it happens, from the
// next start on; it must be quick. It is called before the first start, if at all.
func (r *Run) Listen(tell func(Event)) { r.tell = tell }

// Record keeps a history of what the clients did, from the next start on. It is
// called before the first start, if at all.
func (r *Run) Record(h *History) { r.history = h }

// Start begins, or begins again after Stop, with new figures and the same
// choices. It waits for a Stop that is under way, does nothing if the run is
// running, and returns ErrClosed after Close. A server that
// cannot be reached shows in the figures, as errors.
func (r *Run) Start() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.start()
}

// start is Start for those who are changing the run already.
func (r *Run) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.closed:
		return ErrClosed
	case r.running:
		return nil
	}
	over := make(chan struct{})
	f, err := newFleet(r.scenario, fleetConfig{
		servers: r.servers, open: r.open, tell: r.tell, history: r.history, shared: r.shared,
		over: func() { r.expire(over) },
	})
	if err != nil {
		return fmt.Errorf("start the load: %w", err)
	}
	r.fleet, r.running, r.over = f, true, over
	return nil
}

// expire stops the start whose time is over, unless it was stopped already.
func (r *Run) expire(over chan struct{}) {
	r.stopping.Go(func() {
		r.changing.Lock()
		defer r.changing.Unlock()
		r.mu.Lock()
		current := r.over == over
		r.mu.Unlock()
		if current {
			// What could not be released shows in the figures.
			_ = r.stop()
		}
	})
}

// Done returns a channel that is closed when the run, as it was last started,
// has stopped: because its time was over, or because of Stop.
func (r *Run) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// Stop ends all clients, cuts their work short, releases what they hold, removes
// the keys of the run, and waits until that is done; a server that does not
// answer delays it by some seconds. It returns the first error that kept a lease
// from being released; such a lease ends with its TTL. It does nothing if the run
// is not running.
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
	close(r.over)
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
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	err := r.stop()
	r.changing.Unlock()
	r.stopping.Wait()
	return err
}

// SetClients asks for n clients, 0 to MaxClients, now and at the next start. It
// does not wait: new clients begin at once, and those that are too many, the
// last ones first, finish what they hold.
func (r *Run) SetClients(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scenario.Clients = min(max(n, 0), MaxClients)
	if r.running {
		s := *r.fleet.scenario.Load()
		s.Clients = r.scenario.Clients
		if err := r.fleet.apply(s); err != nil {
			r.fleet.recorder.complain(err)
		}
	}
}

// Apply makes the run follow s from now on. Clients, rate, hold, think, patience
// and reads change at once; if anything else differs, a run that is running stops
// and starts again with new figures and new keys. An s that is not in order is
// refused, and nothing changes.
func (r *Run) Apply(s Scenario) error {
	if err := s.Validate(); err != nil {
		return fmt.Errorf("scenario: %w", err)
	}
	s = s.WithDefaults()
	if err := r.servers.supports(s); err != nil {
		return fmt.Errorf("scenario: %w", err)
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	running, live := r.running, sameButLive(r.scenario, s)
	r.mu.Unlock()
	if running && !live {
		if err := r.stop(); err != nil {
			return err
		}
	}
	shared := true
	if !live && s.Keys.Prefix == r.Scenario().Keys.Prefix {
		s.Keys.Prefix = freshPrefix() // another kind of lock may not read what this one left
		shared = false
	}
	r.mu.Lock()
	r.scenario = s
	r.shared = shared
	f := r.fleet
	r.mu.Unlock()
	switch {
	case !running:
		return nil
	case live:
		return f.apply(s)
	}
	return r.start()
}

// sameButLive reports whether two scenarios differ in nothing that needs a new
// start.
func sameButLive(a, b Scenario) bool {
	for _, s := range []*Scenario{&a, &b} {
		s.Clients, s.Rate, s.Hold, s.Think, s.Patience, s.Reads = 0, 0, Dist{}, Dist{}, 0, 0
		s.Name, s.Caption, s.Watch, s.Thresholds, s.Expect = "", "", "", nil, nil
	}
	return reflect.DeepEqual(a, b)
}

// Inject lets a fault strike now, or at the next moment at which it can. It
// returns an error if it never can.
func (r *Run) Inject(f Fault) error {
	f = f.withDefaults()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f.validate(r.scenario.Lock.Kind); err != nil {
		return fmt.Errorf("inject %s: %w", f.Kind, err)
	}
	if err := r.servers.canStrike(f, r.scenario); err != nil {
		return fmt.Errorf("inject %s: %w", f.Kind, err)
	}
	if !r.running {
		return fmt.Errorf("inject %s: the clients are not running", f.Kind)
	}
	r.fleet.inject(f)
	return nil
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

// Events returns what has happened since the event with a number, oldest first,
// but no more than the newest [HistoryEvents]. A start begins to count again at 1.
func (r *Run) Events(seen uint64) []Event {
	r.mu.Lock()
	f := r.fleet
	r.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.journal.since(seen)
}

// Scenario returns what is run, defaults filled in, with the clients that were
// asked for last.
func (r *Run) Scenario() Scenario {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scenario
}
