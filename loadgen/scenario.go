// Package loadgen is a fleet of simulated clients that fight over locks, and an
// oracle that watches whether the locks keep their promise.
//
// The clients use nothing but the public API of the lock packages: what they
// show is what a user gets.
//
// # Driving a run
//
// A [Scenario] is plain data: what the clients do, when, and what goes wrong
// meanwhile. A [Run] plays one:
//
//	run, err := loadgen.New(loadgen.Servers{Redis: rdb}, scenario)
//	run.Start()                             // clients begin; Stop ends and releases everything
//	run.Apply(changed)                      // live knobs: the run becomes what the scenario says
//	run.Inject(loadgen.Fault{Kind: loadgen.Freeze, For: 10*time.Second})
//	m := run.Metrics()                      // a picture of this moment: figures, cells, violations
//	events := run.Events(seen)              // what happened since event number seen, to the microsecond
//	verdict := m.Verdict(run.Scenario())    // in words
//	run.Close()
//
// Everything is a value or may be called from any goroutine. Apply changes
// clients, rate, hold, think, patience and reads without a stop; anything else
// about the scenario (the kind of lock, its TTL, the keys) ends the clients and
// begins again, with new figures and new keys.
//
// package loadgen/scenarios has the scenarios that come with the program.
package loadgen

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The largest scenarios that [Scenario.Validate] accepts.
const (
	MaxClients = 10_000
	MaxKeys    = 100_000
	MaxRate    = 100_000 // arrivals a second
	maxDepth   = 100
)

// maxTime bounds every time of a scenario: beyond it nobody watches any more.
const maxTime = 24 * time.Hour

// Scenario says what a fleet does. The zero value of a field means its default,
// which [Scenario.WithDefaults] fills in.
type Scenario struct {
	Name    string
	Caption string // two sentences for people who watch
	Watch   string // where to look

	Lock   Lock
	Versus []Lock // run beside it, each with clients and keys of its own, to compare: see [Scenario.Sides]
	Keys   Keys

	Clients  int           // how many at the start; default 20. With a rate: how many there are to take the arrivals
	Rate     float64       // arrivals a second, on schedule (open model); 0: a client comes when it has thought (closed model)
	Arrivals Arrivals      // how they are spaced; default even
	Hold     Dist          // time inside the critical section; default exp:20ms
	Think    Dist          // time between two attempts, without a rate; default exp:50ms
	Reads    float64       // share of readers, 0 to 1; for kinds that know them
	Depth    int           // how often a reentrant lock is entered; default 1
	Patience time.Duration // gives up waiting after this; 0 = never
	Conns    int           // how many connections there are at most, as many as processes would have: up to so many clients each have one of their own, further ones share them, and those that share one queue in memory like goroutines of one process; default 100

	Stages     []Stage
	Faults     []Fault     // in the order of their times
	Thresholds []Threshold // what must hold at the end
	Expect     []Threshold // what shows that a scene showed what it is for

	Seed     uint64        // same seed, same sequence of choices per client; 0 = random
	Warmup   time.Duration // the figures begin after this; what must not happen counts from the start
	Duration time.Duration // 0 = until it is stopped, or as long as the stages are
}

// Arrivals says how the arrivals of the open model are spaced.
type Arrivals string

// How arrivals are spaced.
const (
	Even    Arrivals = "even"    // evenly
	Poisson Arrivals = "poisson" // at random, independent of each other, at the rate on average
)

// Keys are what the clients fight over.
type Keys struct {
	Pick   Pick    // default uniform
	N      int     // how many; default 3
	Skew   float64 // zipf: above 0, default 1.1; hotspot: share of the arrivals that want the first key, default 0.9
	Prefix string  // in front of every key; default "load:{<random>}:"
}

// Pick says which of the keys a client wants.
type Pick string

// How keys are picked.
const (
	PickUniform Pick = "uniform" // any, with equal chances
	PickOne     Pick = "one"     // always the first
	PickZipf    Pick = "zipf"    // the n-th with chances of n to the power of -skew
	PickHotspot Pick = "hotspot" // the first with chances of skew, else any other
)

// Picks returns all ways to pick.
func Picks() []Pick { return []Pick{PickUniform, PickOne, PickZipf, PickHotspot} }

// Stage is a part of a run. After the last one the run is over.
type Stage struct {
	For     time.Duration
	Clients int     // 0 = as before
	Rate    float64 // 0 = as before
}

// WithDefaults returns s with every default filled in, random ones too: what it
// returns can be run again and makes the same choices.
func (s Scenario) WithDefaults() Scenario {
	s.Lock = s.Lock.withDefaults()
	s.Clients = cmp.Or(s.Clients, 20)
	s.Keys.Pick = cmp.Or(s.Keys.Pick, PickUniform)
	s.Keys.N = cmp.Or(s.Keys.N, 3)
	switch s.Keys.Pick {
	case PickZipf:
		s.Keys.Skew = cmp.Or(s.Keys.Skew, 1.1)
	case PickHotspot:
		s.Keys.Skew = cmp.Or(s.Keys.Skew, 0.9)
	}
	s.Keys.Prefix = cmp.Or(s.Keys.Prefix, freshPrefix())
	s.Hold = s.Hold.or(Exp(20 * time.Millisecond))
	s.Think = s.Think.or(Exp(50 * time.Millisecond))
	s.Arrivals = cmp.Or(s.Arrivals, Even)
	s.Depth = cmp.Or(s.Depth, 1)
	s.Conns = cmp.Or(s.Conns, defaultConns)
	s.Seed = cmp.Or(s.Seed, rand.Uint64())
	s.Stages = slices.Clone(s.Stages)
	s.Faults = slices.Clone(s.Faults)
	for i, f := range s.Faults {
		s.Faults[i] = f.withDefaults()
	}
	if s.Duration == 0 {
		for _, stage := range s.Stages {
			s.Duration += stage.For
		}
	}
	return s
}

// firstThink returns how long a client, counted from 0, thinks before it comes first: those
// of the closed model come one after the other within one time to think. Without
// that they would all come at once, and with a constant time to think again and again.
func (s *Scenario) firstThink(client int) time.Duration {
	if s.Rate > 0 {
		return 0
	}
	return s.Think.Typical() / time.Duration(max(s.Clients, client+1)) * time.Duration(client)
}

// Sides returns the scenarios to run beside each other: s with its own lock, and
// with each of those that it is compared with.
func (s Scenario) Sides() []Scenario {
	own := s
	own.Versus = nil
	sides := []Scenario{own}
	for _, l := range s.Versus {
		side := own
		side.Lock = l
		if s.Keys.Prefix != "" {
			side.Keys.Prefix = fmt.Sprintf("%s%d:", s.Keys.Prefix, len(sides)+1)
		}
		sides = append(sides, side)
	}
	return sides
}

// freshPrefix returns a prefix that nobody else has. Its tag keeps all that
// belongs to one run in one slot of a cluster.
func freshPrefix() string { return fmt.Sprintf("load:{%08x}:", rand.Uint32()) }

// Validate returns an error, of one line, about the first field that cannot be
// run. Fields that are zero stand for their defaults and are in order.
func (s Scenario) Validate() error {
	s = s.WithDefaults()
	if err := s.Lock.validate(); err != nil {
		return err
	}
	if err := s.Keys.validate(); err != nil {
		return err
	}
	switch {
	case s.Clients < 1 || s.Clients > MaxClients:
		return fmt.Errorf("clients must be 1 to %d, not %d", MaxClients, s.Clients)
	case !(s.Rate >= 0 && s.Rate <= MaxRate):
		return fmt.Errorf("rate must be 0 to %d/s, not %g/s", MaxRate, s.Rate)
	case s.Arrivals != Even && s.Arrivals != Poisson:
		return fmt.Errorf("arrivals must be even or poisson, not %q", s.Arrivals)
	case s.Warmup < 0 || s.Duration > 0 && s.Warmup >= s.Duration || s.Warmup > maxTime:
		return fmt.Errorf("warmup must be 0 to %s and shorter than the duration, not %s", maxTime, s.Warmup)
	case s.Patience < 0 || s.Patience > maxTime:
		return fmt.Errorf("patience must be 0 to %s, not %s", maxTime, s.Patience)
	case !(s.Reads >= 0 && s.Reads <= 1):
		return fmt.Errorf("reads must be 0%% to 100%%, not %g%%", 100*s.Reads)
	case s.Reads > 0 && !s.Lock.Kind.shared():
		return fmt.Errorf("reads go with a lock that knows readers (rw, classic/two-key-rw, classic/stamp-rw), not with %s", s.Lock.Kind)
	case s.Depth < 1 || s.Depth > maxDepth:
		return fmt.Errorf("depth must be 1 to %d, not %d", maxDepth, s.Depth)
	case s.Depth > 1 && !s.Lock.Kind.reentrant():
		return fmt.Errorf("depth goes with a lock that can be entered again (reentrant, rw, classic/counted), not with %s", s.Lock.Kind)
	case s.Conns < 1 || s.Conns > maxConns:
		return fmt.Errorf("conns must be 1 to %d, not %d", maxConns, s.Conns)
	case s.Duration < 0 || s.Duration > maxTime:
		return fmt.Errorf("duration must be 0 to %s, not %s", maxTime, s.Duration)
	}
	if err := s.Hold.validate(); err != nil {
		return fmt.Errorf("hold: %w", err)
	}
	if err := s.Think.validate(); err != nil {
		return fmt.Errorf("think: %w", err)
	}
	return s.validateLists()
}

// A run takes up to maxConns of a server's connections, each for commands and for
// messages, and without a word from the user up to defaultConns.
const (
	maxConns     = 1000
	defaultConns = 100
)

func (s Scenario) validateLists() error {
	for i, l := range s.Versus {
		if err := l.withDefaults().validate(); err != nil {
			return fmt.Errorf("versus %d: %w", i+1, err)
		}
	}
	for i, stage := range s.Stages {
		if err := stage.validate(); err != nil {
			return fmt.Errorf("stage %d: %w", i+1, err)
		}
	}
	for i, f := range s.Faults {
		if err := f.validate(s.Lock.Kind); err != nil {
			return fmt.Errorf("fault %d: %w", i+1, err)
		}
	}
	for _, t := range slices.Concat(s.Thresholds, s.Expect) {
		if err := t.validate(); err != nil {
			return err
		}
	}
	return nil
}

func (st Stage) validate() error {
	switch {
	case st.For <= 0 || st.For > maxTime:
		return fmt.Errorf("for must be above 0 and at most %s, not %s", maxTime, st.For)
	case st.Clients < 0 || st.Clients > MaxClients:
		return fmt.Errorf("clients must be 0 to %d, not %d", MaxClients, st.Clients)
	case !(st.Rate >= 0 && st.Rate <= MaxRate):
		return fmt.Errorf("rate must be 0 to %d/s, not %g/s", MaxRate, st.Rate)
	}
	return nil
}

func (k Keys) validate() error {
	switch {
	case !slices.Contains(Picks(), k.Pick):
		return fmt.Errorf("keys: pick must be one of %s, not %q", list(Picks()), k.Pick)
	case k.N < 1 || k.N > MaxKeys:
		return fmt.Errorf("keys must be 1 to %d, not %d", MaxKeys, k.N)
	case k.Pick == PickZipf && !(k.Skew > 0 && k.Skew <= 10):
		return fmt.Errorf("keys: the skew of zipf must be above 0 and at most 10, not %g", k.Skew)
	case k.Pick == PickHotspot && !(k.Skew >= 0 && k.Skew <= 1):
		return fmt.Errorf("keys: the skew of hotspot must be 0 to 1, not %g", k.Skew)
	}
	return nil
}

// names returns the names of the keys.
func (k Keys) names() []string {
	names := make([]string, k.N)
	for i := range names {
		names[i] = fmt.Sprintf("%s%d", k.Prefix, i+1)
	}
	return names
}
