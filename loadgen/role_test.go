package loadgen

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

// Clients, rate, stages, and the clients of faults of all shares add up to those of the
// scenario, for any number of agents.
func TestTheSharesOfAScenarioAddUp(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := 1 + random.IntN(9)
		s := Scenario{Clients: n + random.IntN(200), Rate: float64(random.IntN(1000)), Seed: 1 + seed}
		for range random.IntN(3) {
			s.Stages = append(s.Stages, Stage{For: time.Second, Clients: n + random.IntN(100), Rate: float64(1 + random.IntN(100))})
		}
		for range random.IntN(6) {
			f := Fault{Kind: Crash, Clients: 1 + random.IntN(20)}
			if random.IntN(2) == 0 {
				f = Fault{Kind: Flush}
			}
			s.Faults = append(s.Faults, f)
		}
		shares, err := s.Shares(n)
		check.NoError(t, err, "%+v by %d", s, n)
		clients, rate, victims, want := 0, 0.0, 0, 0
		seeds := map[uint64]bool{}
		for i, share := range shares {
			if part := s.Part(i, n); part != share.Clients || part < s.Clients/n || part > s.Clients/n+1 {
				t.Errorf("agent %d of %d has %d of %d clients; Part says %d", i+1, n, share.Clients, s.Clients, part)
			}
			clients += share.Clients
			rate += share.Rate
			seeds[share.Seed] = true
			for _, f := range share.Faults {
				check.True(t, f.Kind == Crash && f.Clients >= 1 && f.Agent == 0, "agent %d has the fault %+v", i+1, f)
				victims += f.Clients
			}
		}
		for _, f := range s.Faults {
			want += f.Clients
		}
		if clients != s.Clients || math.Abs(rate-s.Rate) > 1e-6 || victims != want || len(seeds) != n {
			t.Errorf("%d shares have %d of %d clients, rate %g of %g, %d of %d victims, %d seeds", n, clients, s.Clients, rate, s.Rate, victims, want, len(seeds))
		}
		for j, stage := range s.Stages {
			clients, rate = 0, 0
			for _, share := range shares {
				clients += share.Stages[j].Clients
				rate += share.Stages[j].Rate
			}
			check.True(t, clients == stage.Clients && math.Abs(rate-stage.Rate) <= 1e-6,
				"stage %d has %d of %d clients, rate %g of %g", j, clients, stage.Clients, rate, stage.Rate)
		}
	}
}

// A fault of one client goes to the agent that has it, as the number that the client has
// there; one of an agent goes to this agent.
func TestAFaultOfAClientGoesToOneAgent(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for clients := n; clients < 40; clients += 3 {
			s := Scenario{Clients: clients}
			next := 1 // client of the whole run
			for i := range n {
				for place := 1; place <= s.Part(i, n); place++ {
					for j := range n {
						f, ok := s.Share(Fault{Kind: Freeze, Client: next}, j, n)
						check.True(t, ok == (i == j) && (!ok || f.Client == (i+1)*MaxClients+place && f.Clients == 0),
							"client %d of %d: agent %d of %d gets %t, %+v; agent %d has it", next, clients, j+1, n, ok, f, i+1)
					}
					next++
				}
			}
			for j := range n {
				if f, ok := s.Share(Fault{Kind: Freeze, Client: next}, j, n); ok {
					t.Errorf("agent %d has client %d of %d: %+v", j+1, next, clients, f)
				}
				if f, ok := s.Share(Fault{Kind: Pause, For: time.Second}, j, n); ok {
					t.Errorf("agent %d gets a fault of servers: %+v", j+1, f)
				}
				f, ok := s.Share(Fault{Kind: Crash, Clients: 3, Agent: n}, j, n)
				check.True(t, ok == (j == n-1) && (!ok || f.Clients == 3 && f.Agent == 0),
					"agent %d of %d gets the fault of agent %d: %t, %+v", j+1, n, n, ok, f)
			}
			f, ok := s.Share(Fault{Kind: Crash, Client: 1, Agent: n}, n-1, n)
			check.True(t, ok && f.Client == n*MaxClients+1, "client 1 of agent %d is %+v, %t", n, f, ok)
		}
	}
}

func TestSharesThatCannotBeMade(t *testing.T) {
	for want, c := range map[string]struct {
		s Scenario
		n int
	}{
		"agents must be 1 to 1000, not 0":                  {Scenario{}, 0},
		"3 clients are too few for 4 agents":               {Scenario{Clients: 3}, 4},
		"stage 1: 3 clients are too few for 4 agents":      {Scenario{Stages: []Stage{{For: time.Second, Clients: 3}}}, 4},
		"fault 1: there is no agent 5":                     {Scenario{Faults: []Fault{{Kind: Crash, Agent: 5}}}, 4},
		"agents run no client processes (exec)":            {Scenario{Lock: Lock{Exec: "true"}}, 2},
		"agents do not compare locks (versus)":             {Scenario{Versus: []Lock{{}}}, 2},
		"share 1 of 2: reads must be 0% to 100%, not 200%": {Scenario{Lock: Lock{Kind: RW}, Reads: 2}, 2},
	} {
		_, err := c.s.Shares(c.n)
		check.True(t, err != nil && err.Error() == want, "got %v, want %s", err, want)
	}
	_, err := (Scenario{Stages: []Stage{{For: time.Second, Rate: 5}}}).Shares(4)
	check.True(t, err == nil, "a stage that leaves the clients as they are: %v", err)
}

// Faults of clients affect those of a run that has joined others, whose numbers are large.
func TestFaultsAffectTheClientsOfAnAgent(t *testing.T) {
	for _, f := range []Fault{
		{Kind: Freeze, For: time.Second}, {Kind: Partition, For: time.Second}, {Kind: DropReplies, For: time.Second},
		{Kind: Crash, For: time.Second}, {Kind: Slow, Delay: time.Millisecond, For: time.Second}, {Kind: Greedy, For: time.Second}, {Kind: Leak},
	} {
		for _, client := range []int{0, 2} {
			synctest.Test(t, func(t *testing.T) {
				s := Scenario{Clients: 4, Keys: Keys{N: 2, Prefix: "p:"}, Hold: Const(100 * time.Millisecond), Think: Const(100 * time.Millisecond), Faults: []Fault{f}}
				s.Faults[0].At = time.Second
				s.Faults[0].Client = client
				shares := check.Must(s.Shares(2))(t)
				r := check.Must(New(Servers{Redis: piped(t)}, shares[0]))(t)
				r.Join(1)
				running(t, r)
				time.Sleep(3 * time.Second)
				check.AtMost(t, shares[0].victims(), 2, "%s: clients of 2 with connections of their own", f.Kind)
				stop(t, r)
				summed(t, r)
				check.True(t, r.Metrics().Violations.StuckKey.Unknown, "an agent knows of stuck keys")
				got := fmt.Sprint(r.Metrics().Faults)
				check.True(t, len(r.Metrics().Faults) == 1 && r.Metrics().Faults[0].Struck == 1, "%s of client %d: %s", f.Kind, client, got)
			})
		}
	}
}

// Agents cannot see stuck keys, so no report says that there were none.
func TestAgentsDoNotJudgeStuckKeys(t *testing.T) {
	stuck, overlap := Threshold{Figure: "stuck_key.count", Op: "=="}, Threshold{Figure: "overlap.count", Op: "=="}
	_, err := (Scenario{Thresholds: []Threshold{overlap, stuck}}).Shares(2)
	check.True(t, err != nil && strings.Contains(err.Error(), "agents cannot see stuck keys"), "a threshold on stuck keys: %v", err)
	s := (Scenario{Expect: []Threshold{stuck, overlap}}).Seen()
	check.True(t, len(s.Expect) == 1 && s.Expect[0] == overlap, "%v", s.Expect)
}
