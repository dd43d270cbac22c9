package loadgen

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/golden"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// Each limit of a scenario is accepted, and a value beyond it is refused with
// the message in the golden file.
func TestEachBoundOfAScenarioIsAccepted(t *testing.T) {
	const ms, day = time.Millisecond, 24 * time.Hour
	lock := func(l Lock) Scenario { return Scenario{Lock: l} }
	wait := func(w Wait) Scenario { return Scenario{Lock: Lock{Wait: w}} }
	renew := func(r Renew) Scenario { return Scenario{Lock: Lock{TTL: time.Second, Renew: r}} }
	fault := func(f Fault) Scenario { return Scenario{Faults: []Fault{{Kind: Leak}, f}} }
	stage := func(st Stage) Scenario { return Scenario{Stages: []Stage{{For: ms}, st}, Duration: ms} }
	skewed := func(by time.Duration) Scenario {
		return Scenario{Lock: Lock{Kind: "classic/getset"}, Faults: []Fault{{Kind: Skew, By: by}}}
	}
	var said strings.Builder
	for _, c := range []struct {
		name   string
		within []Scenario
		beyond []Scenario
	}{
		{"nothing", []Scenario{{}}, nil},
		{"clients", []Scenario{{Clients: 1}, {Clients: 100_000}}, []Scenario{{Clients: -1}, {Clients: 100_001}}},
		{"rate", []Scenario{{Rate: 0.001}, {Rate: 100_000}}, []Scenario{{Rate: -0.5}, {Rate: 100_000.5}}},
		{"arrivals", []Scenario{{Arrivals: Even}, {Arrivals: Poisson}}, []Scenario{{Arrivals: "odd"}}},
		{
			"warmup",
			[]Scenario{{Warmup: ms, Duration: 2 * ms}, {Warmup: day}},
			[]Scenario{{Warmup: -1}, {Warmup: 2 * ms, Duration: 2 * ms}, {Warmup: day + 1}},
		},
		{"patience", []Scenario{{Patience: 1}, {Patience: day}}, []Scenario{{Patience: -1}, {Patience: day + 1}}},
		{"duration", []Scenario{{Duration: 1}, {Duration: day}}, []Scenario{{Duration: -1}, {Duration: day + 1}}},
		{
			"reads",
			[]Scenario{{Lock: Lock{Kind: RW}, Reads: 1}, {Lock: Lock{Kind: "classic/stamp-rw"}, Reads: 0.01}, {Lock: Lock{Kind: "classic/two-key-rw"}, Reads: 0.01}},
			[]Scenario{{Lock: Lock{Kind: RW}, Reads: 1.01}, {Lock: Lock{Kind: RW}, Reads: -0.01}, {Reads: 0.01}, {Lock: Lock{Kind: "classic/getset"}, Reads: 0.5}},
		},
		{
			"depth",
			[]Scenario{{Depth: 1}, {Depth: 100, Lock: Lock{Kind: Reentrant}}, {Depth: 2, Lock: Lock{Kind: RW}}, {Depth: 2, Lock: Lock{Kind: "classic/counted"}}},
			[]Scenario{{Depth: -1}, {Depth: 101, Lock: Lock{Kind: Reentrant}}, {Depth: 2}, {Depth: 2, Lock: Lock{Kind: Fair}}},
		},
		{"conns", []Scenario{{Conns: 1}, {Conns: 1000}}, []Scenario{{Conns: -1}, {Conns: 1001}}},
		{"hold", []Scenario{{Hold: Const(0)}, {Hold: Dist{Shape: ShapeUniform, Low: day, High: day}}}, []Scenario{{Hold: Const(-1)}, {Hold: Dist{Shape: ShapeUniform, Low: day, High: day + 1}}, {Hold: Dist{Shape: ShapeUniform, Low: 2, High: 1}}, {Hold: Dist{Shape: "odd"}}}},
		{"think", []Scenario{{Think: LogNormal(1, 1)}, {Think: Bimodal(0, 0, 1)}}, []Scenario{{Think: LogNormal(0, 1)}, {Think: Bimodal(0, 0, 1.01)}, {Think: Bimodal(0, 0, -0.01)}}},
		{
			"keys",
			[]Scenario{{Keys: Keys{N: 1}}, {Keys: Keys{N: 100_000}}, {Keys: Keys{Pick: PickZipf, Skew: 10}}, {Keys: Keys{Pick: PickZipf, Skew: 0.01}}, {Keys: Keys{Pick: PickHotspot, Skew: 1}}},
			[]Scenario{
				{Keys: Keys{N: -1}}, {Keys: Keys{N: 100_001}}, {Keys: Keys{Pick: PickZipf, Skew: 10.01}}, {Keys: Keys{Pick: PickZipf, Skew: -0.01}},
				{Keys: Keys{Pick: PickHotspot, Skew: 1.01}}, {Keys: Keys{Pick: PickHotspot, Skew: -0.01}}, {Keys: Keys{Pick: "odd"}},
			},
		},
		{"ttl", []Scenario{lock(Lock{TTL: 10 * ms}), lock(Lock{TTL: day})}, []Scenario{lock(Lock{TTL: 9 * ms}), lock(Lock{TTL: day + ms}), lock(Lock{TTL: 10*ms + 1}), lock(Lock{TTL: -ms})}},
		{
			"renew",
			[]Scenario{renew(Renew{Every: ms}), renew(Renew{Every: time.Second - 1, Max: 1}), renew(Renew{Off: true})},
			[]Scenario{renew(Renew{Every: -1}), renew(Renew{Every: ms - 1}), renew(Renew{Every: time.Second}), renew(Renew{Max: -1})},
		},
		{
			"wait",
			[]Scenario{wait(Wait{Poll: 1, Tries: 1, Jitter: 1}), wait(Wait{Poll: day})},
			[]Scenario{wait(Wait{Poll: -1}), wait(Wait{Poll: day + 1}), wait(Wait{Poll: 1, Jitter: 1.01}), wait(Wait{Poll: 1, Jitter: -0.01}), wait(Wait{Poll: 1, Tries: -1}), wait(Wait{Tries: 1}), wait(Wait{Jitter: 0.1}), lock(Lock{Kind: Fair, Wait: Wait{Poll: 1}})},
		},
		{"kind", []Scenario{lock(Lock{Kind: Redlock, Fence: true})}, []Scenario{lock(Lock{Kind: "odd"}), lock(Lock{Kind: "classic/odd"}), lock(Lock{Kind: "classic/getset", Fence: true}), {Versus: []Lock{{}, {TTL: 1}}}}},
		{
			"permits",
			[]Scenario{lock(Lock{Kind: "classic/quorum-semaphore", Permits: 1}), lock(Lock{Kind: Semaphore, Permits: 10_000})},
			[]Scenario{lock(Lock{Kind: "classic/quorum-semaphore", Permits: -1}), lock(Lock{Kind: Semaphore, Permits: 10_001}), lock(Lock{Permits: 2}), lock(Lock{Kind: Semaphore, Fence: true})},
		},
		{
			"keys per hold",
			[]Scenario{lock(Lock{Kind: All, KeysPerHold: 1}), lock(Lock{Kind: All}), lock(Lock{Kind: Nested, KeysPerHold: 3}), {Lock: Lock{Kind: All, KeysPerHold: 100}, Keys: Keys{N: 100}}},
			[]Scenario{
				lock(Lock{Kind: All, KeysPerHold: -1}), {Lock: Lock{Kind: All, KeysPerHold: 101}, Keys: Keys{N: 200}}, lock(Lock{KeysPerHold: 2}), lock(Lock{Kind: All, Fence: true}), lock(Lock{Kind: Nested, Fence: true}),
				{Lock: Lock{Kind: All}, Keys: Keys{N: 1}}, {Versus: []Lock{{Kind: All, KeysPerHold: 4}}},
			},
		},
		{
			"stage",
			[]Scenario{stage(Stage{For: 1}), stage(Stage{For: day, Clients: 100_000, Rate: 100_000})},
			[]Scenario{stage(Stage{}), stage(Stage{For: day + 1}), stage(Stage{For: 1, Clients: -1}), stage(Stage{For: 1, Clients: 100_001}), stage(Stage{For: 1, Rate: -0.5}), stage(Stage{For: 1, Rate: 100_001})},
		},
		{
			"fault",
			[]Scenario{
				fault(Fault{Kind: Crash, At: day, For: day, Clients: 100_000}), fault(Fault{Kind: Crash, Client: 100_100_000}), fault(Fault{Kind: Crash, Agent: 1000}), fault(Fault{Kind: Pause, For: 1}),
				fault(Fault{Kind: Partition, Node: 1}), fault(Fault{Kind: DropReplies, Node: 1}),
				fault(Fault{Kind: Pause, Node: 1, For: time.Second}), // there is only this node
				{Lock: Lock{Kind: Redlock}, Faults: []Fault{{Kind: Pause, Node: 2, For: time.Second}}},
			},
			[]Scenario{
				fault(Fault{Kind: "odd"}), fault(Fault{Kind: Crash, At: day + 1}), fault(Fault{Kind: Crash, At: -1}), fault(Fault{Kind: Crash, For: -1}), fault(Fault{Kind: Crash, For: day + 1}),
				fault(Fault{Kind: Crash, Clients: 100_001}), fault(Fault{Kind: Crash, Clients: -1}), fault(Fault{Kind: Crash, Client: 100_100_001}), fault(Fault{Kind: Crash, Client: -1}), fault(Fault{Kind: Crash, Agent: -1}), fault(Fault{Kind: Crash, Agent: 1001}), fault(Fault{Kind: Flush, Agent: 1}),
				fault(Fault{Kind: Pause, For: 1, Node: -1}), fault(Fault{Kind: Partition, Node: 2}), fault(Fault{Kind: Crash, Node: 1}), fault(Fault{Kind: Pause}), fault(Fault{Kind: Stop}),
			},
		},
		{
			"slow",
			[]Scenario{fault(Fault{Kind: Slow, Delay: 1, Jitter: 1}), fault(Fault{Kind: Slow, Delay: day})},
			[]Scenario{fault(Fault{Kind: Slow}), fault(Fault{Kind: Slow, Delay: day + 1}), fault(Fault{Kind: Slow, Delay: 1, Jitter: 2}), fault(Fault{Kind: Slow, Delay: 1, Jitter: -1})},
		},
		{"skew", []Scenario{skewed(1), skewed(-day)}, []Scenario{skewed(0), skewed(day + 1), skewed(-day - 1), fault(Fault{Kind: Skew, By: 1})}},
		{
			"before",
			[]Scenario{{Lock: Lock{Kind: "classic/getset"}, Faults: []Fault{{Kind: Freeze, Before: "GETSET"}, {Kind: Crash, Before: "GET"}}}, {Lock: Lock{Kind: "classic/counted"}, Faults: []Fault{{Kind: Crash, Before: "renew"}}}},
			[]Scenario{{Lock: Lock{Kind: "classic/getset"}, Faults: []Fault{{Kind: Leak, Before: "GET"}}}, {Lock: Lock{Kind: "classic/getset"}, Faults: []Fault{{Kind: Crash, Before: "DEL"}}}, fault(Fault{Kind: Crash, Before: "DEL"}), {Lock: Lock{Kind: "classic/quorum-semaphore"}, Faults: []Fault{{Kind: Crash, Before: "ZADD", Node: 2}}}},
		},
		{"threshold", []Scenario{{Thresholds: []Threshold{{Figure: "stuck_key.count", Op: "==", Value: 1}}}}, []Scenario{{Thresholds: []Threshold{{Figure: "stuck_key.count", Op: "=", Value: 1}}}, {Expect: []Threshold{{Figure: "odd", Op: "==", Value: 1}}}}},
	} {
		for i, s := range c.within {
			check.ErrorIs(t, s.Validate(), nil, "%s, within %d", c.name, i)
		}
		for i, s := range c.beyond {
			err := s.Validate()
			check.True(t, err != nil, "%s, beyond %d: accepted", c.name, i)
			fmt.Fprintf(&said, "%s: %v\n", c.name, err)
		}
	}
	golden.Check(t, "refusals.txt", said.String())
}

// striking returns a scenario in which a fault strikes client 2 after a second.
func striking(f Fault) Scenario {
	f.At, f.Client = time.Second, 2
	s := Scenario{Clients: 2, Keys: Keys{N: 100}, Hold: Const(50 * time.Millisecond), Think: Const(time.Second), Faults: []Fault{f}}
	if f.Kind == Skew {
		s.Lock.Kind = "classic/getset"
	}
	return s
}

func TestAFaultWithoutATimeLastsToTheEnd(t *testing.T) {
	for _, f := range []Fault{
		{Kind: Crash}, {Kind: Freeze}, {Kind: Partition}, {Kind: DropReplies}, {Kind: Slow, Delay: time.Millisecond}, {Kind: Greedy}, {Kind: Skew, By: time.Second},
	} {
		t.Run(string(f.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := started(t, piped(t), striking(f))
				time.Sleep(10 * time.Second)
				for _, e := range r.Events(0) {
					check.True(t, (e.Kind != FaultBegan || e.Client == 2) && e.Kind != FaultEnded, "%s of client %d", e.Kind, e.Client)
				}
				m := r.Metrics()
				check.True(t, m.Faults[0].Struck == 1, "%+v", m.Faults)
				want := map[FaultKind]ClientState{Crash: Dead, Freeze: Frozen, Partition: Partitioned, DropReplies: Partitioned}[f.Kind]
				got := r.Metrics().Clients.States[1]
				check.True(t, want == Thinking || got == want, "the client is %s, not %s", got, want)
			})
		})
	}
}

func TestAFaultIsOverWhenItsTimeIs(t *testing.T) {
	for _, f := range []Fault{
		{Kind: Freeze}, {Kind: Partition}, {Kind: DropReplies}, {Kind: Slow, Delay: time.Millisecond}, {Kind: Greedy}, {Kind: Skew, By: time.Second},
	} {
		t.Run(string(f.Kind), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f.For = 10 * time.Second
				r := started(t, piped(t), striking(f))
				time.Sleep(20 * time.Second)
				var began time.Time
				for _, e := range r.Events(0) {
					if e.Kind == FaultBegan {
						began = e.At
					}
					if took := e.At.Sub(began); e.Kind == FaultEnded && (e.Client != 2 || e.Fault != f.Kind || took < 10*time.Second || took > 11*time.Second) {
						t.Errorf("%s of client %d healed after %s", e.Fault, e.Client, took)
					}
				}
				before := r.Metrics()
				time.Sleep(20 * time.Second)
				m := r.Metrics()
				check.True(t, m.Clients.States[1] <= Inside && m.Faults[0].Struck == 1, "%s, %+v", m.Clients.States[1], m.Faults)
				check.Between(t, m.Arrivals-before.Arrivals, 36, 42, "arrivals in 20 s of two clients that come every second")
			})
		})
	}
}

// A writer excludes all others and a reader excludes only writers, also for the historic kinds.
func TestOnlyReadersAreLetInTogether(t *testing.T) {
	for _, kind := range []Kind{RW, "classic/two-key-rw", "classic/stamp-rw"} {
		for _, reads := range []float64{0, 1} {
			m := after(t, Scenario{
				Lock: Lock{Kind: kind, TTL: time.Minute}, Reads: reads, Clients: 10, Keys: Keys{N: 1}, Hold: Const(100 * time.Millisecond), Think: Const(100 * time.Millisecond),
			}, time.Second-time.Millisecond)[0] // the hold that begins at 1 s is not counted
			const most = 10
			check.False(t, reads == 0 && (m.Acquired > most || m.Acquired < most/2) || reads == 1 && m.Acquired < 5*most,
				"%s, reads %g: %d holds of 100 ms in 1 s", kind, reads, m.Acquired)
			check.True(t, m.Violations.Overlap.Count+m.Violations.WorkOverlap.Count <= 0, "%s, reads %g: %+v", kind, reads, m.Violations.Overlap)
		}
	}
}

// Clients that share a connection take turns on it, also for the historic kinds.
func TestClientsThatShareAConnectionHaveNoOther(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	s := busy
	s.Clients, s.Conns, s.Lock.Kind = 12, 1, "classic/blind-delete"
	r := started(t, rdb, s)
	until(t, r, "all clients at work", func(m Metrics) bool { return m.Acquired > 300 })
	all := check.Must(rdb.ClientList(t.Context()).Result())(t)
	n := strings.Count(all, "cmd=evalsha") + strings.Count(all, "cmd=set ") + strings.Count(all, "cmd=del ")
	check.True(t, n == 1, "they have %d connections:\n%s", n, all)
	stop(t, r)
}

// connections returns the number of connections of a server.
func connections(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	all := check.Must(rdb.ClientList(t.Context()).Result())(t)
	return strings.Count(all, "\n")
}

func TestEveryClientHasAConnectionLikeAProcessUnlessTheyShareSome(t *testing.T) {
	testtier.Long(t, "it counts connections over seconds")
	t.Parallel()
	for _, c := range []struct {
		kind            Kind
		conns           int
		atLeast, atMost int // connections, for twelve and then for thirty clients
	}{
		{Mutex, 0, 1, 2},
		{"classic/blind-delete", 0, 1, 1},
		{Mutex, 1, 0, 0},
		{"classic/blind-delete", 1, 0, 0},
	} {
		rdb := connect(t, servertest.RedisForTest(t).Addr())
		s := busy
		s.Clients, s.Conns, s.Lock.Kind = 12, c.conns, c.kind
		s.Keys.N = 1
		r := started(t, rdb, s)
		const ours = 3 // of the test, and of the monitoring of the run
		for _, clients := range []int{12, 30} {
			r.SetClients(clients)
			before := r.Metrics().Acquired
			until(t, r, "all clients at work", func(m Metrics) bool { return m.Clients.Total == clients && m.Acquired > before+300 })
			got := connections(t, rdb)
			check.True(t, got >= max(1, clients*c.atLeast) && got <= max(2, clients*c.atMost)+ours,
				"%s, conns %d: %d clients have %d connections", c.kind, c.conns, clients, got)
		}
		stop(t, r)
	}
}
