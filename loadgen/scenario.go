// Package loadgen simulates clients that contend for locks. An oracle checks that the
// locks keep their promises.
//
// The clients use only the public API of the lock packages, like any user.
//
// # Driving a run
//
// A [Scenario] is plain data: what the clients do, and which faults occur. A [Run] runs
// one:
//
//	run, err := loadgen.New(loadgen.Servers{Redis: rdb}, scenario)
//	run.Start()                             // starts the clients
//	run.Apply(changed)                      // changes the scenario
//	run.Inject(loadgen.Fault{Kind: loadgen.Freeze, For: 10*time.Second})
//	m := run.Metrics()                      // current figures, client states and violations
//	events := run.Events(seen)              // events after number seen
//	verdict := m.Verdict(run.Scenario())    // the judgement as text
//	run.Close()                             // stops the clients, releases all locks
//
// Methods are safe for concurrent use unless their documentation says otherwise. Apply
// changes clients, rate, hold, think, patience and reads immediately. Any other change
// (the kind of lock, its TTL, the keys) restarts the clients with new metrics and new
// keys.
//
// Package loadgen/scenarios contains the ready-made scenarios.
package loadgen

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Limits of [Scenario.Validate].
const (
	MaxClients = 100_000 // of one process
	MaxKeys    = 100_000
	MaxRate    = 100_000 // per second
	MaxAgents  = 1000    // processes of a run; see [Scenario.Shares]
	maxDepth   = 100
)

// maxTime is the longest time in a scenario.
const maxTime = 24 * time.Hour

// Scenario describes a load. The zero value of a field means its default, which
// [Scenario.WithDefaults] sets.
type Scenario struct {
	Name    string `yaml:"name,live"`
	Caption string `yaml:"caption,live"` // two sentences that describe the scenario
	Watch   string `yaml:"watch,live"`   // what to look at on the screen

	Lock   Lock   `yaml:"lock,always"`
	Versus []Lock `yaml:"versus"` // locks to compare with, each with its own clients and keys; see [Scenario.Sides]
	Keys   Keys   `yaml:"keys,always" flag:"keys" usage:"<number> of keys (default 3)"`

	// Number at the start. In the open model, the clients that serve the arrivals.
	Clients int `yaml:"clients,positive,live" default:"20" flag:"clients" usage:"<number> of clients (default 20)" form:"2 clients"`
	// Arrivals per second (open model); 0: clients arrive after their think time (closed model).
	Rate     float64       `yaml:"rate,rate,live" flag:"rate" usage:"arrivals per second, like <500/s>, independent of the number of free clients" form:"12 rate"`
	Arrivals Arrivals      `yaml:"arrivals" default:"even" flag:"arrivals" usage:"<distribution> of the arrivals: even or poisson (default even)" form:"19 arrivals"`
	Hold     Dist          `yaml:"hold,live" default:"exp:20ms" flag:"hold" usage:"<time> for which a lock is held: 20ms, exp:20ms, uniform:10ms,50ms, lognormal:20ms,400ms or bimodal:5ms,500ms,5% (default exp:20ms)" form:"10 hold"`
	Think    Dist          `yaml:"think,live" default:"exp:50ms" flag:"think" usage:"<time> between a release and the next acquire, in the same form (default exp:50ms)" form:"11 think"`
	Reads    float64       `yaml:"reads,share,live" flag:"reads" usage:"<share> of readers, like 80% (default 80% with --kind rw)" form:"14 reads"`
	Depth    int           `yaml:"depth,positive" default:"1" flag:"depth" usage:"<number> of entries of a reentrant lock (default 3 with --kind reentrant)" form:"16 entries"`
	Apart    time.Duration `yaml:"enter-every"` // pause before each further entry and after each further exit, and before each further key of nested; 0: a client does not wait
	Patience time.Duration `yaml:"patience,live" flag:"patience" usage:"<time> after which a client gives up waiting (default never)" form:"15 wait limit"`
	// Maximum number of connections. With more clients than that, clients share connections and queue in memory, like goroutines of one process.
	Conns int `yaml:"conns,positive" default:"100" flag:"conns" usage:"<number> of connections; clients with the same connection wait in one local queue, like goroutines of one process (default one per client, at most 100)" form:"13 connections"`

	Stages     []Stage     `yaml:"stages"`
	Faults     []Fault     `yaml:"faults"`          // in order of time
	Thresholds []Threshold `yaml:"thresholds,live"` // what the run must meet
	Expect     []Threshold `yaml:"expect,live"`     // what proves that a scene showed its effect

	// The same seed gives each client the same choices; 0 = random.
	Seed uint64 `yaml:"seed" flag:"seed" usage:"<number> from which all random choices derive"`
	// Time before the metrics begin; violations count from the start.
	Warmup   time.Duration `yaml:"warmup" flag:"warmup" usage:"<time> at the start that is not measured"`
	Duration time.Duration `yaml:"duration" flag:"duration" usage:"<time> to run; 0 = until interrupted (default 30s)"`
}

// Arrivals is the spacing of arrivals in the open model.
type Arrivals string

// Spacings of arrivals.
const (
	Even    Arrivals = "even"    // equal distances
	Poisson Arrivals = "poisson" // independent random times with Rate as mean
)

// Keys are the keys of the locks.
type Keys struct {
	Pick   Pick    `yaml:"pick" default:"uniform" flag:"pick" usage:"<distribution> of the clients over the keys: uniform, one, zipf or hotspot (default uniform)" form:"18 key choice"`
	N      int     `yaml:"n,positive,short" default:"3" form:"3 keys"` // number of keys
	Skew   float64 `yaml:"skew"`                                       // zipf: above 0, default 1.1; hotspot: probability of the first key, default 0.9
	Prefix string  `yaml:"prefix" flag:"prefix" usage:"<prefix> of every key (default load:{random}:)"`
}

// Pick is how a client picks a key.
type Pick string

// Ways to pick a key.
const (
	PickUniform Pick = "uniform" // all with equal probability
	PickOne     Pick = "one"     // always the first
	PickZipf    Pick = "zipf"    // key n with weight n to the power of -skew
	PickHotspot Pick = "hotspot" // the first with probability skew, else any other
)

// Picks returns all ways to pick a key.
func Picks() []Pick { return []Pick{PickUniform, PickOne, PickZipf, PickHotspot} }

// Stage is a part of a run. The run ends after the last stage.
type Stage struct {
	For     time.Duration `yaml:"for,always"`
	Clients int           `yaml:"clients,positive"` // 0 = as before
	Rate    float64       `yaml:"rate,rate"`        // 0 = as before
}

// WithDefaults returns s with all defaults, including random ones. A run of the result
// can be repeated with the same choices.
func (s Scenario) WithDefaults() Scenario {
	s.Lock = s.Lock.withDefaults() // before the default of Lock.Kind, which depends on Exec
	setDefaults(reflect.ValueOf(&s).Elem())
	switch s.Keys.Pick {
	case PickZipf:
		s.Keys.Skew = cmp.Or(s.Keys.Skew, 1.1)
	case PickHotspot:
		s.Keys.Skew = cmp.Or(s.Keys.Skew, 0.9)
	}
	s.Keys.Prefix = cmp.Or(s.Keys.Prefix, freshPrefix())
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

// firstThink returns the first think time of a client, counted from 0. In the closed
// model it spreads the first arrivals over one think time. Otherwise all clients would
// arrive together, with a constant think time in every round.
func (s *Scenario) firstThink(client int) time.Duration {
	if s.Rate > 0 {
		return 0
	}
	return s.Think.Typical() / time.Duration(max(s.Clients, client+1)) * time.Duration(client)
}

// Sides returns the scenarios to compare: s with its own lock, and s with each lock of
// Versus.
func (s Scenario) Sides() []Scenario {
	own := s
	own.Versus = nil
	sides := []Scenario{own}
	for _, l := range s.Versus {
		side := own
		side.Lock = l
		if s.Keys.Prefix != "" {
			// Not below the prefix of s, whose run deletes all keys of its client processes.
			side.Keys.Prefix = fmt.Sprintf("%s-%d:", strings.TrimSuffix(s.Keys.Prefix, ":"), len(sides)+1)
		}
		sides = append(sides, side)
	}
	return sides
}

// freshPrefix returns a new random prefix. Its hash tag keeps all keys of a run in one
// slot of a cluster.
func freshPrefix() string { return fmt.Sprintf("load:{%08x}:", rand.Uint32()) }

// Validate returns an error, of one line, about the first invalid field. A zero field
// stands for its default and is valid.
func (s Scenario) Validate() error {
	s = s.WithDefaults()
	if err := cmp.Or(s.Lock.validate(), s.Keys.validate()); err != nil {
		return err
	}
	for _, l := range append([]Lock{s.Lock}, s.Versus...) {
		if l.span() > s.Keys.N {
			return fmt.Errorf("keys must be at least the %d of a hold, not %d", l.span(), s.Keys.N)
		}
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
	case s.Apart < 0 || s.Apart > time.Minute:
		return fmt.Errorf("enter-every must be 0 to 1m, not %s", s.Apart)
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
	return cmp.Or(s.validateExec(), s.validateLists())
}

// maxConns is the limit of Conns. Each takes two connections to a server: for commands
// and for messages.
const maxConns = 1000

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
