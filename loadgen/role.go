package loadgen

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen/oracle"
)

// role is the part of a process in a run of several processes on the same keys. The zero
// value is the only process of a run.
type role struct {
	agent  int  // number of the process, from 1; 0 = none
	keeper bool // has no clients; applies the faults of servers, and deletes the keys
}

// first returns the number of the first client, from 0. Clients of different processes have
// different numbers.
func (r role) first() int { return r.agent * MaxClients }

// clients returns the number of clients of s in this process.
func (r role) clients(s Scenario) int {
	if r.keeper {
		return 0
	}
	return s.Clients
}

// sees returns what an oracle can check in this process: others have holders of the keys, too.
func (r role) sees(all oracle.Config) oracle.Config {
	if r.agent > 0 {
		all.Patience, all.Handoff = maxTime, nil
	}
	return all
}

// Join makes r the part of process agent, from 1, in a run of several processes on the same
// keys. The clients are counted from agent × [MaxClients] + 1 on. Start does not claim the
// prefix, and Stop leaves the keys to the keeper; see [Run.Keep]. The oracle of r sees the
// clients of r only: it does not look for stuck keys, and measures no hand-offs. Call Join
// before the first start.
func (r *Run) Join(agent int) { r.role = role{agent: agent} }

// Keep makes r the keeper of a run of several processes on the same keys. It has no
// clients. Start claims the prefix, Inject applies faults of servers, and Stop deletes all
// keys. Call Keep before the first start.
func (r *Run) Keep() { r.role = role{keeper: true} }

// ServerFault tells a run that has joined others that the keeper is about to apply a fault
// of servers or, if over is true, that the fault is over. node is the server, from 1; 0 = the
// default of the fault. It does nothing if the run is not running.
func (r *Run) ServerFault(kind FaultKind, node int, over bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running {
		return
	}
	fault := Fault{Kind: kind, Node: node}.withDefaults()
	if over {
		r.fleet.end(fault, oracle.Everybody)
	} else {
		r.fleet.begin(fault, oracle.Everybody)
	}
}

// Shares divides a scenario between the processes of a run: clients, rate, stages and the
// clients of faults. Faults of servers and what is judged at the end stay with the keeper.
// Each process chooses by a seed of its own. It returns an error if s cannot be divided.
func (s Scenario) Shares(agents int) ([]Scenario, error) {
	s = s.WithDefaults()
	switch {
	case agents < 1 || agents > MaxAgents:
		return nil, fmt.Errorf("agents must be 1 to %d, not %d", MaxAgents, agents)
	case s.Lock.Kind == Exec:
		return nil, fmt.Errorf("agents run no client processes (exec)")
	case len(s.Versus) > 0:
		return nil, fmt.Errorf("agents do not compare locks (versus)")
	case s.Clients < agents:
		return nil, fmt.Errorf("%d clients are too few for %d agents", s.Clients, agents)
	}
	for _, t := range s.Thresholds {
		if t.Figure == stuckKeys {
			return nil, fmt.Errorf("threshold %s: agents cannot see stuck keys", t)
		}
	}
	for i, f := range s.Faults {
		if f.Agent > agents {
			return nil, fmt.Errorf("fault %d: there is no agent %d", i+1, f.Agent)
		}
	}
	for i, stage := range s.Stages {
		if stage.Clients > 0 && stage.Clients < agents { // a share of 0 would mean no change
			return nil, fmt.Errorf("stage %d: %d clients are too few for %d agents", i+1, stage.Clients, agents)
		}
	}
	shares := make([]Scenario, agents)
	for i := range shares {
		shares[i] = s.share(i, agents)
		if err := shares[i].Validate(); err != nil {
			return nil, fmt.Errorf("share %d of %d: %w", i+1, agents, err)
		}
	}
	return shares, nil
}

// share returns the share of process i, from 0, of n.
func (s Scenario) share(i, n int) Scenario {
	var faults []Fault
	for _, f := range s.Faults {
		if mine, ok := s.Share(f, i, n); ok {
			faults = append(faults, mine)
		}
	}
	s.Faults = faults
	s.Clients = s.Part(i, n)
	s.Rate /= float64(n)
	s.Seed += uint64(i)
	s.Thresholds, s.Expect = nil, nil
	s.Stages = slices.Clone(s.Stages)
	for j := range s.Stages {
		s.Stages[j].Clients = part(s.Stages[j].Clients, i, n)
		s.Stages[j].Rate /= float64(n)
	}
	return s
}

// stuckKeys is the figure that no process of several can know.
const stuckKeys = string(oracle.StuckKey) + ".count"

// Seen returns s without the expectations that a run of several processes cannot check.
func (s Scenario) Seen() Scenario {
	s.Expect = slices.DeleteFunc(slices.Clone(s.Expect), func(t Threshold) bool { return t.Figure == stuckKeys })
	return s
}

// Part returns the number of clients in the share of process i, from 0, of n.
func (s Scenario) Part(i, n int) int { return part(s.Clients, i, n) }

// part returns part i, from 0, of total divided in n parts. The parts add up to total.
func part(total, i, n int) int { return total*(i+1)/n - total*i/n }

// Share returns the share of process i, from 0, of n in a fault of s. ok is false if it has
// none.
func (s Scenario) Share(f Fault, i, n int) (share Fault, ok bool) {
	f = f.withDefaults()
	if f.Kind.OnServers() || f.Agent > 0 && f.Agent != i+1 {
		return f, false
	}
	switch before := s.Clients * i / n; {
	case f.Agent > 0:
		if f.Client > 0 {
			f.Client += (i + 1) * MaxClients
		}
	case f.Client > 0:
		if f.Client <= before || f.Client > before+s.Part(i, n) {
			return f, false
		}
		f.Client += (i+1)*MaxClients - before
	default:
		// The first agents get what cannot be divided.
		f.Clients = f.Clients/n + min(max(f.Clients%n-i, 0), 1)
		if f.Clients == 0 {
			return f, false
		}
	}
	f.Agent = 0
	return f, true
}

// heldKey returns a lock that a client holds now. It waits for one until ctx ends.
func (f *fleet) heldKey(ctx context.Context) (key int, held bool) {
	find := f.oracle.Held
	if f.role.keeper {
		find = func() (int, bool) { return f.janitor.existingLock(ctx) }
	}
	for key, held = find(); !held && ctx.Err() == nil; key, held = find() {
		pause(ctx, time.Millisecond)
	}
	return key, held
}

// existingLock returns a random lock that exists.
func (j *janitor) existingLock(ctx context.Context) (key int, ok bool) {
	ctx, found := context.WithCancel(ctx)
	defer found()
	keys := slices.Clone(j.keys)
	rand.Shuffle(len(keys), func(a, b int) { keys[a], keys[b] = keys[b], keys[a] })
	_ = j.each(ctx, keys, func(key string) []string { return []string{key} }, redis.Pipeliner.Exists, func(name string, n int64) {
		if n > 0 {
			key, ok = slices.Index(j.keys, name), true
			found()
		}
	})
	return key, ok
}
