package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"

	"locktop/loadgen/external"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
)

// ErrClosed is the error of [Run.Start] after [Run.Close].
var ErrClosed = errors.New("load generator is closed")

// Run runs a scenario. It can be started, changed while it runs, stopped, and started
// again. All methods are safe for concurrent use, except Listen, Record and Witness.
type Run struct {
	fleetConfig // of the next start

	close context.CancelFunc // ends closing: it cannot be started any more

	changing sync.Mutex // held during start, stop, apply and close

	mu       sync.Mutex // guards what follows
	scenario Scenario
	fleet    *fleet // newest; nil before the first start
	running  bool
	over     chan struct{} // closed at the end of the duration or by Stop
	stopping sync.WaitGroup
}

// New returns a run of s that is not started. Each start uses the options of the
// servers' clients to open its own connections. The caller closes the clients.
func New(on Servers, s Scenario) (*Run, error) {
	return newRun(on, s, open)
}

func newRun(on Servers, s Scenario, open func(sessionConfig) (session, error)) (*Run, error) {
	shared := s.Keys.Prefix != ""
	s, err := on.prepare(s)
	if err != nil {
		return nil, err
	}
	r := &Run{fleetConfig: fleetConfig{servers: on, openBase: open, shared: shared}, scenario: s, over: make(chan struct{})}
	r.closing, r.close = context.WithCancel(context.Background())
	return r, nil
}

// Listen calls tell for each event, in order, from the next start on, beside those of other calls.
// Tell must return quickly. Call Listen before the first start.
func (r *Run) Listen(tell func(Event)) { r.tell = append(r.tell, tell) }

// Record adds the holds of the clients to h, from the next start on. Call Record before
// the first start.
func (r *Run) Record(h *oracle.History) { r.history = h }

// Witness shows the holds of the clients to w, from the next start on. Call Witness before
// the first start. The caller closes w after the run.
func (r *Run) Witness(w *witness.Witness) { r.witness = w }

// Start starts the run with new metrics and the same choices as before. It waits for a
// running Stop. It does nothing if the run is running. It returns ErrClosed after
// Close. If a server cannot be reached, the metrics count errors.
func (r *Run) Start() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	running, s := r.running, r.scenario
	r.mu.Unlock()
	switch {
	case r.closing.Err() != nil:
		return ErrClosed
	case running:
		return nil
	}
	hello, err := r.probe(s)
	if err != nil {
		return err
	}
	return r.start(hello)
}

// start is Start with r.changing held, for a run that is not running, and with the hello
// of its client processes.
func (r *Run) start(hello external.Hello) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := make(chan struct{})
	c := r.fleetConfig
	c.hello, c.expired = hello, func() { r.expire(over) }
	f, err := newFleet(r.scenario, c)
	if err != nil {
		return fmt.Errorf("start the load: %w", err)
	}
	r.fleet, r.running, r.over = f, true, over
	return nil
}

// expire stops the run at the end of its duration, unless it was stopped before.
func (r *Run) expire(over chan struct{}) {
	r.stopping.Go(func() {
		r.changing.Lock()
		defer r.changing.Unlock()
		r.mu.Lock()
		current := r.over == over
		r.mu.Unlock()
		if current {
			// The metrics count failed releases.
			_ = r.stop()
		}
	})
}

// Done returns a channel that is closed when the newest start has stopped.
func (r *Run) Done() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over
}

// Stop ends all clients and their work, releases what they hold, deletes the keys of
// the run, and waits for all of this. A server that does not answer delays Stop by some
// seconds. Stop returns the first error of a release; such a lease ends with its TTL.
// It does nothing if the run is not running.
func (r *Run) Stop() error {
	r.changing.Lock()
	defer r.changing.Unlock()
	return r.stop()
}

// stop is Stop with r.changing held.
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

// Close stops the run for good and waits until nothing of it is left. A start of client
// processes that is under way ends with an error. A second call does nothing.
func (r *Run) Close() error {
	r.close()
	err := r.Stop()
	r.stopping.Wait()
	return err
}

// Apply changes the scenario to s. Clients, rate, hold, think, patience and reads
// change immediately. For any other change, a running run stops and starts again with
// new metrics and new keys. An invalid s, and for a running run a client process that does
// not start, is an error and changes nothing.
func (r *Run) Apply(s Scenario) error {
	shared := s.Keys.Prefix != ""
	s, err := r.servers.prepare(s)
	if err != nil {
		return err
	}
	r.changing.Lock()
	defer r.changing.Unlock()
	r.mu.Lock()
	running, live := r.running, Live(r.scenario, s)
	r.mu.Unlock()
	var hello external.Hello
	if running && !live {
		if hello, err = r.probe(s); err != nil {
			return err
		}
		if err := r.stop(); err != nil {
			return err
		}
	}
	if !live && s.Keys.Prefix == r.Scenario().Keys.Prefix {
		s.Keys.Prefix = freshPrefix() // another kind of lock may be unable to read the old keys
		shared = false
	}
	r.mu.Lock()
	r.scenario = s
	if !live {
		r.shared = shared
	}
	f := r.fleet
	r.mu.Unlock()
	switch {
	case !running:
		return nil
	case live:
		return f.apply(s)
	}
	return r.start(hello)
}

// Live reports whether a running run can change from a to b without a new start.
func Live(a, b Scenario) bool {
	for _, s := range []*Scenario{&a, &b} {
		for _, f := range fieldsOf(reflect.ValueOf(s).Elem()) {
			if f.is("live") {
				f.value.SetZero()
			}
		}
	}
	return reflect.DeepEqual(a, b)
}

// Check returns an error if the servers of the run cannot run a scenario.
func (r *Run) Check(s Scenario) error { return r.servers.Supports(s) }

// Inject applies a fault now, or when a client reaches its moment. It returns an error
// if the fault is impossible.
func (r *Run) Inject(f Fault) error {
	f = f.withDefaults()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := f.validate(r.scenario.Lock.Kind); err != nil {
		return fmt.Errorf("inject %s: %w", f.Kind, err)
	}
	if err := r.servers.canApply(f, r.scenario); err != nil {
		return fmt.Errorf("inject %s: %w", f.Kind, err)
	}
	if !r.running {
		return fmt.Errorf("inject %s: the clients are not running", f.Kind)
	}
	if why := r.fleet.unsupported(f); why != "" {
		return fmt.Errorf("inject %s: %s", f.Kind, why)
	}
	r.fleet.inject(f)
	return nil
}

// Metrics returns the current metrics. After Stop, it returns the last ones.
func (r *Run) Metrics() Metrics {
	if f := r.newest(); f != nil {
		return f.metrics()
	}
	return Metrics{}
}

// Events returns the events after number seen, oldest first, at most the newest
// [HistoryEvents]. Numbers begin at 1 with each start.
func (r *Run) Events(seen uint64) []Event {
	if f := r.newest(); f != nil {
		return f.events.since(seen)
	}
	return nil
}

// newest returns the newest fleet, nil before the first start.
func (r *Run) newest() *fleet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fleet
}

// Scenario returns the scenario with all defaults and the newest number of clients.
func (r *Run) Scenario() Scenario {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.scenario
}

// Group is a [Run] with the runs that it is compared with: one for each lock in Versus.
// Start, Stop, Apply, Inject and Close affect all runs. All other methods of Run
// concern the first run only. All methods are safe for concurrent use, except Listen
// and Record.
type Group struct {
	*Run

	changing sync.Mutex // held during start, stop, apply, inject and close

	mu     sync.Mutex // guards others; writers also hold changing
	others []*Run
}

// NewGroup returns a group that is not started.
func NewGroup(servers Servers, s Scenario) (*Group, error) {
	run, err := New(servers, s)
	if err != nil {
		return nil, err
	}
	g := &Group{Run: run}
	if err := g.follow(run.Scenario()); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// follow creates, changes and closes the other runs so that they match s. It must not
// run concurrently with itself.
func (g *Group) follow(s Scenario) error {
	sides := s.Sides()[1:]
	others := slices.Clone(g.others[:min(len(g.others), len(sides))])
	gone := g.others[len(others):]
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.others = others
	}()
	for _, r := range gone {
		if err := r.Close(); err != nil {
			return err
		}
	}
	for i, side := range sides {
		if i < len(others) {
			if err := others[i].Apply(side); err != nil {
				return err
			}
			continue
		}
		run, err := New(g.servers, side)
		if err != nil {
			return err
		}
		others = append(others, run)
	}
	return nil
}

// Start starts all runs. See [Run.Start].
func (g *Group) Start() error { return g.each((*Run).Start) }

// Stop stops all runs. See [Run.Stop].
func (g *Group) Stop() error { return g.each((*Run).Stop) }

// each calls change for all runs, one after another, and returns the first error.
func (g *Group) each(change func(*Run) error) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := change(g.Run)
	for _, r := range g.others {
		err = cmp.Or(err, change(r))
	}
	return err
}

// Apply changes the scenario of all runs. See [Run.Apply].
func (g *Group) Apply(s Scenario) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	if err := g.Run.Apply(s); err != nil {
		return err
	}
	known := len(g.others)
	err := g.follow(g.Run.Scenario())
	if !g.Run.Metrics().Running {
		return err
	}
	for _, r := range g.others[min(known, len(g.others)):] {
		err = cmp.Or(err, r.Start())
	}
	return err
}

// Inject applies a fault to all runs. See [Run.Inject].
func (g *Group) Inject(f Fault) error {
	return g.each(func(r *Run) error { return r.Inject(f) })
}

// Close stops all runs for good. See [Run.Close].
func (g *Group) Close() error {
	g.mu.Lock()
	for _, r := range append([]*Run{g.Run}, g.others...) {
		r.close() // a start that is under way holds g.changing
	}
	g.mu.Unlock()
	return g.each((*Run).Close)
}

// Compared is the result so far of a run that the first run is compared with.
type Compared struct {
	Lock    Lock
	Metrics Metrics
}

// Beside returns the results of the other runs, nil if there are none.
func (g *Group) Beside() []Compared {
	g.mu.Lock()
	defer g.mu.Unlock()
	var all []Compared
	for _, r := range g.others {
		all = append(all, Compared{r.Scenario().Lock, r.Metrics()})
	}
	return all
}
