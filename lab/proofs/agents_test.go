package proofs

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/agents"
	"locktop/loadgen/oracle"
	"locktop/loadgen/scenarios"
)

// clocks are how far the clocks of agents are off.
var clocks = []time.Duration{5 * time.Second, -5 * time.Second, 1300 * time.Millisecond}

// nodes starts n servers, on which a coordinator can apply faults.
func nodes(t *testing.T, n int) *server.Independent {
	t.Helper()
	return servertest.IndependentForTest(t, n)
}

func addrs(set *server.Independent) []string {
	var all []string
	for _, child := range set.Nodes() {
		all = append(all, child.Addr())
	}
	return all
}

// faulty returns a scenario with faults of clients and of servers, also those that delete
// locks, which no lock can survive.
func faulty(kind loadgen.Kind) loadgen.Scenario {
	s := loadgen.Scenario{
		Lock: loadgen.Lock{Kind: kind, TTL: time.Second}, Keys: loadgen.Keys{N: 2}, Clients: 12,
		Hold: loadgen.Exp(20 * time.Millisecond), Think: loadgen.Exp(20 * time.Millisecond), Patience: 3 * time.Second,
		Faults: []loadgen.Fault{
			{At: 500 * time.Millisecond, Kind: loadgen.Crash, Clients: 3, For: time.Second},
			{At: time.Second, Kind: loadgen.Partition, Clients: 2, For: 1500 * time.Millisecond},
			{At: 1200 * time.Millisecond, Kind: loadgen.Freeze, Client: 7, For: 1200 * time.Millisecond},
			{At: 1500 * time.Millisecond, Kind: loadgen.DropReplies, Clients: 2, For: time.Second},
			{At: 2 * time.Second, Kind: loadgen.Slow, Clients: 3, Delay: 30 * time.Millisecond, Jitter: 20 * time.Millisecond, For: time.Second},
			{At: 2500 * time.Millisecond, Kind: loadgen.Flush},
			{At: 4200 * time.Millisecond, Kind: loadgen.ExternalDelete},
			{At: 4300 * time.Millisecond, Kind: loadgen.ScriptFlush},
			{At: 4400 * time.Millisecond, Kind: loadgen.ExternalDelete},
			{At: 4700 * time.Millisecond, Kind: loadgen.Pause, For: 300 * time.Millisecond},
		},
		Duration: 7 * time.Second,
	}
	switch kind {
	case loadgen.RW:
		s.Reads = 0.5
	case loadgen.Reentrant:
		s.Depth = 2
	case loadgen.Redlock:
		s.Faults = append(s.Faults, loadgen.Fault{At: 3 * time.Second, Kind: loadgen.NodeDown, Node: 2, For: time.Second})
	default:
		s.Faults = append(s.Faults, loadgen.Fault{At: 3 * time.Second, Kind: loadgen.RestartEmpty, For: 200 * time.Millisecond})
	}
	return s
}

// Sound locks by agents with wrong clocks, under faults of clients and servers: the witness
// raises no alarm, and neither do the oracles of the agents.
func TestTheWitnessRaisesNoAlarmOnSoundLocks(t *testing.T) {
	testtier.Long(t, "it runs a load of every kind by agents")
	type result struct {
		acquired, proven int64
		excused          int64
		faults           []loadgen.FaultOutcome
	}
	results := make(chan result, 1000)
	t.Run("kinds", func(t *testing.T) {
		for _, kind := range []loadgen.Kind{loadgen.Mutex, loadgen.Reentrant, loadgen.RW, loadgen.Fair, loadgen.Redlock, loadgen.Semaphore, loadgen.All} {
			t.Run(string(kind), func(t *testing.T) {
				besideOthers(t, kind)
				n := 1
				if kind.Quorum() {
					n = 5
				}
				set := nodes(t, n)
				r := newAgentRig(t, servertest.RedisForTest(t).Addr(), addrs(set), clocks...)
				r.on.Power = set
				for history := range testtier.Size(1, 1, 10) {
					s := faulty(kind)
					s.Seed = uint64(1 + history)
					l := r.start(len(clocks), s)
					<-l.Done()
					m, seen := l.Metrics(), l.Witness()
					check.True(t, seen.Overlaps == seen.Excused && seen.Unseen == 0 && seen.Err == nil && seen.Holds == m.Acquired,
						"history %d: %d acquired; %+v", history, m.Acquired, seen)
					if gaps := l.Incomplete(); len(gaps) > 0 || !m.Verdict(s).Safe || m.Acquired < 10 || seen.Proven < m.Acquired/2 {
						t.Errorf("history %d: %q %s: %v; %+v", history, gaps, m.Verdict(s).Text(), m.Violations.Evidence, m.Counts)
					}
					results <- result{m.Acquired, seen.Proven, seen.Excused, m.Faults}
				}
				r.checkNoKeys()
			})
		}
	})
	close(results)
	var sum result
	n, struck := 0, map[loadgen.FaultKind]int{}
	for one := range results {
		n++
		for _, f := range one.faults {
			struck[f.Fault.Kind] += f.Struck
		}
		sum.acquired += one.acquired
		sum.proven += one.proven
		sum.excused += one.excused
	}
	for kind, times := range struck {
		check.True(t, times != 0, "%s never occurred in %d histories", kind, n) // by chance, one may not occur in a single history
	}
	t.Logf("%d histories: %d of %d holds proven; %d overlaps after faults that delete locks; faults %v", n, sum.proven, sum.acquired, sum.excused, struck)
}

// flawed are the historic forms that let two clients in at once. The other two forms do
// not: setnx-expire leaves a lock that nobody can get, and the late work of counted comes
// after its lease, so a witness that goes by leases cannot prove an overlap.
var flawed = []string{"exists-set", "getset-skew", "blind-delete", "get-then-del", "two-key-rw", "stamp-rw", "quorum-semaphore"}

// The witness flags each historic form that lets two clients in at once, with clients of
// different agents, whose clocks differ by 10 s.
func TestTheWitnessFlagsHistoricLocks(t *testing.T) {
	testtier.Long(t, "it runs broken locks until they are found")
	t.Parallel()
	for _, name := range flawed {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, found := scenarios.Find(name)
			check.Require(t, found, "there is no such scene")
			n := 1
			if s.Lock.Kind.Quorum() {
				n = 5
			}
			r := newAgentRig(t, servertest.RedisForTest(t).Addr(), addrs(nodes(t, n)), clocks[:2]...)
			s.Duration = time.Minute
			s.Expect = nil
			s.Faults = repeated(s.Faults, s.Duration)
			l := r.start(2, s)
			began := time.Now()
			r.until(l, "an overlap of two agents", func(m loadgen.Metrics) bool { return acrossAgents(l) || !m.Running })
			took := time.Since(began)
			_ = l.Stop() // leases that have ended cannot be released
			seen := l.Witness()
			check.True(t, acrossAgents(l) && seen.Excused == 0, "not flagged: %+v", seen)
			t.Logf("flagged after %s: %s", took.Round(10*time.Millisecond), seen)
			r.checkNoKeys()
		})
	}
}

// repeated returns the faults of a scene for a longer run.
func repeated(faults []loadgen.Fault, duration time.Duration) []loadgen.Fault {
	all := slices.Clone(faults)
	for at := 8 * time.Second; at < duration; at += 8 * time.Second {
		for _, f := range faults {
			if f.For > 0 {
				f.At += at
				all = append(all, f)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b loadgen.Fault) int { return int(a.At - b.At) })
	return all
}

// acrossAgents reports whether the witness has an example of an overlap of clients of
// different agents.
func acrossAgents(l *agents.Load) bool {
	agent := func(label string) int {
		n, err := strconv.Atoi(strings.TrimPrefix(label, strings.TrimSuffix(oracle.ClientLabel(0), "0")))
		if err != nil {
			panic(fmt.Sprintf("%q is not the label of a client", label))
		}
		return (n - 1) / loadgen.MaxClients
	}
	for _, e := range l.Witness().Examples {
		if slices.ContainsFunc(e.Others, func(other string) bool { return agent(other) != agent(e.Client) }) {
			return true
		}
	}
	return false
}

// agentRig is agents in this process, with the servers of their runs.
type agentRig struct {
	t       *testing.T
	control server.Client
	targets []string // addresses
	on      loadgen.Servers

	mu     sync.Mutex
	events map[int][]loadgen.Event // by agent
	notes  []string                // of all
}

// newAgentRig starts agents on the control server, each with a clock that is off by one of shifts.
// They end with the test.
func newAgentRig(t *testing.T, control string, targets []string, shifts ...time.Duration) *agentRig {
	t.Helper()
	r := &agentRig{t: t, control: servertest.ClientForTest(t, control, nil), targets: targets, events: make(map[int][]loadgen.Event)}
	r.on = r.open()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i, shift := range shifts {
		a := agents.Agent{
			Control: servertest.ClientForTest(t, control, nil),
			Open:    func(context.Context, agents.Target) (loadgen.Servers, func(), error) { return r.open(), func() {}, nil },
			Note:    func(text string) { r.note(fmt.Sprintf("agent %d: %s", i+1, text)) },
			Listen:  r.listen,
			Now:     func() time.Time { return time.Now().Add(shift) },
		}
		all.Go(func() {
			if err := a.Serve(ctx, false); err != nil {
				r.note(fmt.Sprintf("agent %d ended: %v", i+1, err))
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, note := range r.notes {
				t.Log(note)
			}
		}
	})
	return r
}

// open returns clients of the targets.
func (r *agentRig) open() loadgen.Servers {
	var on loadgen.Servers
	for _, addr := range r.targets {
		on.Nodes = append(on.Nodes, servertest.ClientForTest(r.t, addr, nil))
	}
	on.Redis = on.Nodes[0]
	if len(on.Nodes) == 1 {
		on.Nodes = nil
	}
	return on
}

func (r *agentRig) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

func (r *agentRig) listen(_ string, agent int) (func(loadgen.Event), func() error, error) {
	return func(e loadgen.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.events[agent] = append(r.events[agent], e)
	}, func() error { return nil }, nil
}

// start starts a load by n agents.
func (r *agentRig) start(n int, s loadgen.Scenario) *agents.Load {
	r.t.Helper()
	l, err := agents.New(agents.Config{
		Control: r.control, Servers: r.on, Target: agents.Target{Addresses: r.targets}, Scenario: s, Agents: n,
		Patience: 30 * time.Second, Note: r.note,
	})
	check.NoError(r.t, err)
	r.t.Cleanup(func() { _ = l.Close() })
	check.NoError(r.t, l.Start())
	return l
}

// until polls a load until its figures meet a condition.
func (r *agentRig) until(l *agents.Load, wanted string, ok func(loadgen.Metrics) bool) loadgen.Metrics {
	r.t.Helper()
	for range 6000 {
		if m := l.Metrics(); ok(m) {
			return m
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("never saw %s; last: %+v", wanted, l.Metrics().Counts)
	return loadgen.Metrics{}
}

// checkNoKeys fails the test if a run has left keys on the servers.
func (r *agentRig) checkNoKeys() {
	r.t.Helper()
	for _, rdb := range append([]loadgen.RedisClient{r.control, r.on.Redis}, r.on.Nodes...) {
		keys, err := rdb.Keys(context.Background(), "*").Result()
		check.True(r.t, err == nil && len(keys) == 0, "keys left behind at %v: %q %v", rdb, keys, err)
	}
}
