package loadgen

import (
	"cmp"
	"errors"
	"slices"
	"sync"
)

// Group is a [Run] with the runs that it is compared with: one for each lock in Versus.
// Start, Stop, Apply, Inject and Close affect all runs. All other methods of Run
// concern the first run only. All methods are safe for concurrent use, except Listen
// and Record.
type Group struct {
	*Run
	servers Servers

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
	g := &Group{Run: run, servers: servers}
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
func (g *Group) Start() error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := g.Run.Start()
	for _, r := range g.others {
		err = cmp.Or(err, r.Start())
	}
	return err
}

// Stop stops all runs. See [Run.Stop].
func (g *Group) Stop() error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := g.Run.Stop()
	for _, r := range g.others {
		err = errors.Join(err, r.Stop())
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
	if err := g.follow(g.Run.Scenario()); err != nil {
		return err
	}
	if !g.Run.Metrics().Running {
		return nil
	}
	for _, r := range g.others[min(known, len(g.others)):] {
		if err := r.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Inject applies a fault to all runs. See [Run.Inject].
func (g *Group) Inject(f Fault) error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := g.Run.Inject(f)
	for _, r := range g.others {
		err = errors.Join(err, r.Inject(f))
	}
	return err
}

// Close stops all runs for good. See [Run.Close].
func (g *Group) Close() error {
	g.changing.Lock()
	defer g.changing.Unlock()
	err := g.Run.Close()
	for _, r := range g.others {
		err = errors.Join(err, r.Close())
	}
	return err
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
