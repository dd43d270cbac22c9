package agents

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// Config describes a load by agents.
type Config struct {
	Control  redis.Cmdable   // the control server; the caller closes it
	Servers  loadgen.Servers // the servers that are loaded, as the coordinator reaches them
	Target   Target          // the same servers, for the agents
	Scenario loadgen.Scenario
	Agents   int
	Patience time.Duration // time to wait for agents; 0 = 1 min
	Note     func(string)  // tells the user what happens, in one line
}

// Load is a load by agents, seen by its coordinator. It can be started, changed while it
// runs, stopped, and started again. All methods are safe for concurrent use.
type Load struct {
	config Config

	closing context.Context // ends with Close
	close   context.CancelFunc

	changing sync.Mutex // held during start, stop and apply

	mu       sync.Mutex // guards what follows
	scenario loadgen.Scenario
	prefix   string                  // that the user chose; "" = a random one for each start
	newest   *session                // nil before the first start
	opening  *session                // of a start that waits for agents; nil: there is none
	cancel   context.CancelCauseFunc // of that start
}

// New returns a load that is not started. It returns an error if the scenario cannot be
// divided between the agents.
func New(c Config) (*Load, error) {
	if _, err := c.Scenario.Shares(c.Agents); err != nil {
		return nil, err
	}
	c.Patience = cmp.Or(c.Patience, time.Minute)
	l := &Load{config: c, prefix: c.Scenario.Keys.Prefix, scenario: c.Scenario.WithDefaults().Seen()}
	l.closing, l.close = context.WithCancel(context.Background())
	return l, nil
}

// Start waits for the agents and starts the load on all of them, at the same time. It
// returns an error if too few come in time, or if one refuses. It does nothing if the load
// is running.
func (l *Load) Start() error {
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.start()
}

func (l *Load) start() error {
	if l.closing.Err() != nil {
		return loadgen.ErrClosed
	}
	if s := l.current(); s != nil && s.over.Err() == nil {
		return nil
	}
	l.mu.Lock()
	scenario := l.scenario
	if l.prefix == "" && l.newest != nil {
		scenario.Keys.Prefix = ""
		scenario = scenario.WithDefaults()
	}
	l.mu.Unlock()
	s, err := l.open(scenario)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scenario, l.newest = scenario, s
	return nil
}

func (l *Load) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// Done returns a channel that is closed when the newest start has stopped. Before the first
// start it is nil.
func (l *Load) Done() <-chan struct{} {
	if s := l.current(); s != nil {
		return s.over.Done()
	}
	return nil
}

// Stop ends the clients of all agents, deletes the keys of the run, and waits for this. A
// start that waits for agents ends with an error.
func (l *Load) Stop() error {
	l.mu.Lock()
	if l.opening != nil {
		l.cancel(ErrStartCancelled)
	}
	l.mu.Unlock()
	l.changing.Lock()
	defer l.changing.Unlock()
	return l.stop()
}

func (l *Load) stop() error {
	s := l.current()
	if s == nil {
		return nil
	}
	s.ask()
	<-s.over.Done()
	return s.failed
}

// CancelStart ends a start that waits for agents with an error. Later starts fail, too.
func (l *Load) CancelStart() { l.close() }

// Close stops the load for good. A start that is under way ends with an error.
func (l *Load) Close() error {
	l.close()
	return l.Stop()
}

// Apply changes the scenario. Clients, rate, hold, think, patience and reads change
// immediately. For any other change, a running load stops and starts again.
func (l *Load) Apply(scenario loadgen.Scenario) error {
	if err := l.Check(scenario); err != nil {
		return err
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	old := l.Scenario()
	if scenario.Keys.Prefix != "" && scenario.Keys.Prefix != old.Keys.Prefix {
		l.prefix = scenario.Keys.Prefix
	}
	scenario = scenario.WithDefaults().Seen()
	s := l.current()
	running := s != nil && s.over.Err() == nil
	if running && loadgen.Live(old, scenario) {
		if err := s.order(order{Order: orderScenario, Scenario: string(scenario.Marshal())}); err != nil {
			return fmt.Errorf("tell the agents: %w", err)
		}
		l.set(scenario)
		return nil
	}
	if running {
		if err := l.stop(); err != nil {
			return err
		}
	}
	l.set(scenario)
	if running {
		return l.start()
	}
	return nil
}

// Check returns an error if the agents cannot run the scenario.
func (l *Load) Check(scenario loadgen.Scenario) error {
	if _, err := scenario.Shares(l.config.Agents); err != nil {
		return err
	}
	return l.config.Servers.Supports(scenario)
}

func (l *Load) set(s loadgen.Scenario) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scenario = s
}

// Inject applies a fault now: of clients by the agents, of servers by the coordinator. A
// fault of one random client strikes one of the agents that run, at random.
func (l *Load) Inject(f loadgen.Fault) error {
	s := l.current()
	switch {
	case s == nil || s.over.Err() != nil:
		return fmt.Errorf("inject %s: the clients are not running", f.Kind)
	case f.Agent > l.config.Agents:
		return fmt.Errorf("inject %s: there is no agent %d", f.Kind, f.Agent)
	}
	return s.inject(f)
}

// Scenario returns the scenario with all defaults.
func (l *Load) Scenario() loadgen.Scenario {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.scenario
}

// Metrics returns the sums of all agents. They are up to 1 s old.
func (l *Load) Metrics() loadgen.Metrics {
	if s := l.current(); s != nil {
		return s.metrics()
	}
	return loadgen.Metrics{}
}

// Witness returns the results of the witness, nil before the first start.
func (l *Load) Witness() *witness.Results {
	s := l.current()
	if s == nil {
		return nil
	}
	r := s.witness.Results()
	return &r
}

// Events returns the faults, the first violations after each fault and the losses of agents
// in the newest start, after number seen. Times are those of the control server. All events
// of an agent are in its own file only.
func (l *Load) Events(seen uint64) []loadgen.Event {
	s := l.current()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.noted - uint64(len(s.events)) // number of the newest event that is forgotten
	return slices.Clone(s.events[min(max(seen, known)-known, uint64(len(s.events))):])
}

// Beside returns nil: agents do not compare locks.
func (l *Load) Beside() []loadgen.Compared { return nil }

// Agents returns the state of each agent of the newest start, by number. While a start
// waits for agents, they are those of this start.
func (l *Load) Agents() []loadgen.AgentState {
	l.mu.Lock()
	s := cmp.Or(l.opening, l.newest)
	l.mu.Unlock()
	if s != nil {
		return s.states()
	}
	return nil
}

// Incomplete returns a sentence for each reason why the figures of the newest start are
// not those of all agents for the whole time.
func (l *Load) Incomplete() []string {
	s := l.current()
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.incomplete)
}
