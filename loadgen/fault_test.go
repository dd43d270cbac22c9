package loadgen

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen/oracle"
)

// connectOver returns a client of a server in the test's bubble, and the proxy between them.
func connectOver(t testing.TB) (*redis.Client, *netfault.Network) {
	t.Helper()
	s := server.NewPiped()
	t.Cleanup(s.Close)
	link := netfault.New(s.Dial)
	return closing(t, redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: link.Dial, DialerRetries: 1})), link
}

func TestFrozenNetworkCostsLeasesButGrantsNoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, link := connectOver(t)
		r := started(t, rdb, Scenario{
			Clients: 8, Keys: Keys{N: 3}, Lock: Lock{TTL: 2 * time.Second}, Seed: 1,
			Hold: Exp(300 * time.Millisecond), Think: Exp(300 * time.Millisecond),
		})
		for range testtier.Size(2, 5, 5) {
			time.Sleep(5 * time.Second)
			link.Freeze()
			time.Sleep(3 * time.Second)
			summed(t, r)
			link.Thaw()
		}
		time.Sleep(5 * time.Second)
		m := summed(t, r)
		check.Equal(t, m.Violations.Overlap, oracle.Tally{}, "overlaps")
		check.True(t, m.Lost+m.Expired+m.Unconfirmed != 0, "no lease came to harm: the test proves nothing")
		newest := m.Seconds[len(m.Seconds)-3:]
		check.True(t, newest[0].Acquired+newest[1].Acquired != 0, "nothing acquired after the thaw: %+v", newest)
	})
}

func TestStopDoesNotWaitForAServerThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, link := connectOver(t)
		r := started(t, rdb, Scenario{Clients: 5, Keys: Keys{N: 2}, Seed: 1, Hold: Const(time.Hour)})
		time.Sleep(time.Second)
		link.Freeze()
		before := time.Now()
		err := r.Stop()
		check.AtMost(t, time.Since(before), 13*time.Second)
		check.True(t, err != nil && !strings.Contains(err.Error(), "\n"), "two leases were not released: got %q", err)
		m := summed(t, r)
		check.True(t, m.Unconfirmed == 2 && m.Released == 0 && m.Clients.Total == 0 && m.LastErr != "", "got %+v", m)
		link.Thaw()
		time.Sleep(time.Minute)
		checkNoKeys(t, rdb)
	})
}

func TestAFaultMayOutliveItsClient(t *testing.T) {
	m := after(t, Scenario{
		Clients: 1, Keys: Keys{N: 1}, Seed: 1, Hold: Const(time.Second), Think: Const(time.Second), Faults: []Fault{
			{Kind: Slow, Delay: time.Millisecond, For: 20 * time.Second}, {At: 5 * time.Second, Kind: Crash, For: 5 * time.Second},
		},
	}, 30*time.Second)[0]
	check.True(t, m.Clients.Dead == 0 && m.Abandoned == 1, "it did not crash and come back: %+v", m)
}

// A client that deletes another's lock does not change the fence counter, so
// the writes of later holders are accepted.
func TestStealAndFlushKeepTheFences(t *testing.T) {
	for _, kind := range []FaultKind{ExternalDelete, Flush} {
		synctest.Test(t, func(t *testing.T) {
			rdb := piped(t)
			r := started(t, rdb, Scenario{
				Clients: 4, Keys: Keys{N: 1}, Seed: 3, Hold: Const(70 * time.Millisecond), Think: Const(10 * time.Millisecond),
				// The fault must not come at the end of a hold. In fake time
				// these are at multiples of 70 ms.
				Lock: Lock{Fence: true, TTL: time.Second}, Faults: []Fault{{At: time.Second, Kind: kind}},
			})
			time.Sleep(5 * time.Second)
			m := summed(t, r)
			check.Require(t, m.Faults[0].Struck == 1 && m.Lost+m.Expired != 0, "%s: nothing was taken away: %+v", kind, m.Faults)
			// A refused write of the victim, which does not know of its loss, does not count.
			if m.Violations.StaleWriteRefused.Count > 1 || m.Violations.FenceOrder.Count > 0 || m.Violations.UnexplainedLoss.Count > 0 {
				t.Errorf("%s: %d rightful writes refused, %d numbers fell, %d losses without a fault", kind, m.Violations.StaleWriteRefused.Count, m.Violations.FenceOrder.Count, m.Violations.UnexplainedLoss.Count)
			}
		})
	}
}

func TestServersStopAndContinue(t *testing.T) {
	testtier.Long(t, "servers stop for seconds")
	t.Parallel()
	set := servertest.IndependentForTest(t, 1)
	rdb := connect(t, set.Nodes()[0].Addr())
	for _, kind := range []FaultKind{Pause, Stop} {
		r := ended(New(Servers{Redis: rdb, Power: set}, Scenario{
			Clients: 5, Keys: Keys{N: 1}, Hold: Const(5 * time.Millisecond), Duration: 4 * time.Second,
			Faults: []Fault{{At: time.Second, Kind: kind, For: 1500 * time.Millisecond}},
		}))(t)
		m := r.Metrics()
		check.True(t, m.Latency.Wait.Max >= 1400*time.Millisecond && m.Faults[0].Struck == 1 && m.Verdict(r.Scenario()).Safe,
			"%s: longest wait %s, %+v, %s", kind, m.Latency.Wait.Max, m.Faults, m.Verdict(r.Scenario()).Text())
		check.Equal(t, m.Outage, Outage{}, "%s: the fault counts as an outage", kind)
		check.True(t, m.Seconds[len(m.Seconds)-2].Acquired != 0, "%s: nothing acquired afterwards", kind)
	}
}

func TestFaultsThatTheServersDoNotSupportAreRefused(t *testing.T) {
	on := Servers{Redis: connect(t, "127.0.0.1:1")}
	for want, f := range map[string]Fault{
		"needs servers of our own": {Kind: Stop, For: time.Second},
		"needs --sentinel":         {Kind: Failover},
		"needs for":                {Kind: Pause},
		"only a quorum has more":   {Kind: Partition, Node: 2},
		"node goes with":           {Kind: Freeze, Node: 1},
		"can be switched off":      {Kind: NodeDown},
	} {
		_, err := New(on, Scenario{Faults: []Fault{f}})
		check.True(t, err != nil && strings.Contains(err.Error(), want), "%+v: %v, want %q", f, err, want)
	}
}

// fakePower records when a node was stopped and started. The node runs all the time.
type fakePower struct {
	NodeController // nil: nothing freezes it
	down, up       time.Time
	empty          bool
}

func (s *fakePower) Down(int) error {
	s.down = time.Now()
	return nil
}

func (s *fakePower) Up(_ context.Context, _ int, empty bool) error {
	s.up, s.empty = time.Now(), empty
	return nil
}

func TestANodeIsDownForAsLongAsTheFaultSays(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		want  time.Duration
		empty bool
	}{
		{Fault{Kind: NodeDown, For: 2 * time.Second}, 2 * time.Second, false},
		{Fault{Kind: NodeDown}, 9 * time.Second, false}, // until the end of the run
		{Fault{Kind: RestartEmpty, For: 2 * time.Second}, 2 * time.Second, true},
		{Fault{Kind: RestartEmpty}, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			rdb, power := piped(t), &fakePower{}
			c.fault.At, c.fault.Node = time.Second, 1
			ended(New(Servers{Redis: rdb, Nodes: []RedisClient{rdb}, Power: power}, Scenario{
				Lock: Lock{Kind: Redlock}, Clients: 2, Think: Const(time.Second), Duration: 10 * time.Second, Faults: []Fault{c.fault},
			}))(t)
			if got := power.up.Sub(power.down); got < c.want || got > c.want+100*time.Millisecond || power.empty != c.empty {
				t.Errorf("%v: the node was down for %v, and emptied: %v", c.fault, got, power.empty)
			}
		})
	}
}

func TestAFaultIsDescribedInWords(t *testing.T) {
	for want, f := range map[string]Fault{
		"freeze of one client at 1 s, for 3 s":                        {At: time.Second, Kind: Freeze, For: 3 * time.Second},
		"crash of 2 clients before EXPIRE at 2 s, replaced after 3 s": {At: 2 * time.Second, Kind: Crash, Clients: 2, Before: "EXPIRE", For: 3 * time.Second},
		"cut of client-9 of agent 2 from server 3 at the start":       {Kind: Partition, Client: 9, Agent: 2, Node: 3},
		"slow of 8 clients at the start, 2 ms ± 1 ms per packet":      {Kind: Slow, Clients: 8, Delay: 2 * time.Millisecond, Jitter: time.Millisecond},
		"skew of one client at 2 s, its clock 3 s ahead, for 3 s":     {At: 2 * time.Second, Kind: Skew, By: 3 * time.Second, For: 3 * time.Second},
		"skew of one client at the start, its clock 500 ms behind":    {Kind: Skew, By: -500 * time.Millisecond},
		"node-down of server 1 at 2 s, for 4 s":                       {At: 2 * time.Second, Kind: NodeDown, For: 4 * time.Second},
		"pause of all servers at 2 s, for 500 ms":                     {At: 2 * time.Second, Kind: Pause, For: 500 * time.Millisecond},
		"flush at 1 m": {At: time.Minute, Kind: Flush},
	} {
		check.Equal(t, f.String(), want)
	}
}

func TestALongPauseEndsWithoutAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, asked, late := piped(t), false, error(nil)
		rdb.AddHook(servertest.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
			if args := cmd.Args(); len(args) == 2 && args[1] == "unpause" {
				asked, late = true, ctx.Err()
				return nil
			}
			return next(ctx, cmd)
		}))
		s := Scenario{Clients: 1, Duration: 20 * time.Second, Faults: []Fault{{Kind: Pause, For: 15 * time.Second}}}
		m := ended(New(Servers{Redis: rdb}, s))(t).Metrics()
		check.True(t, late == nil && asked && m.Faults[0].Struck == 1, "unpaused %t, %v; %+v", asked, late, m.Faults)
	})
}

func TestCommandsAreCountedWhereTheyBegin(t *testing.T) {
	for text, want := range map[string]int64{
		"":                     0,
		"*1\r\n$4\r\nPING\r\n": 1,
		"*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$2\r\n*x\r\n":           2,
		"the rest of a long value\r\n*1\r\n$4\r\nPING\r\n":              1,
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\n*not one*\r\n*1\r\n$4\r\n": 2,
	} {
		check.Equal(t, commandsIn([]byte(text)), want, "%q", text)
	}
}

func TestACutBetweenAClientAndOneNodeLeavesTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(new(atomic.Int64))
		var near, far [3]net.Conn
		for node := 1; node <= 2; node++ {
			theirs, ours := net.Pipe()
			c, err := w.lane(func(context.Context, string, string) (net.Conn, error) { return ours, nil }, node).Dial(t.Context(), "tcp", "x")
			check.NoError(t, err)
			near[node], far[node] = c, theirs
			defer c.Close()
		}
		received := func(node int) string {
			far[node].SetReadDeadline(time.Now().Add(time.Hour))
			buf := make([]byte, 100)
			n, _ := far[node].Read(buf)
			return string(buf[:n])
		}
		w.each(2, (*netfault.Network).Partition)
		go io.WriteString(near[1], "to one")
		go io.WriteString(near[2], "to two")
		check.Equal(t, received(1), "to one")
		check.Require(t, received(2) == "", "a packet got through")
		w.each(1, (*netfault.Network).Heal)
		check.Require(t, received(2) == "", "another node was healed")
		go w.each(2, (*netfault.Network).Heal)
		check.Equal(t, received(2), "to two")
	})
}

// go-redis appends to the addresses of its options, so each client needs a slice of its own.
func TestClientsOfAClusterShareNoSliceOfAddresses(t *testing.T) {
	addrs := append(make([]string, 0, 8), "127.0.0.1:1")
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer rdb.Close()
	c := check.Must(over(newNetwork(new(atomic.Int64)), rdb))(t)
	defer c.Close()
	_ = append(c.(*redis.ClusterClient).Options().Addrs, "127.0.0.1:2")
	check.Equal(t, addrs[:2][1], "", "behind the caller's addresses")
}

func TestAFaultInsideAHoldPrefersAClientThatHoldsNow(t *testing.T) {
	p := clientPool{random: rand.New(rand.NewPCG(1, 2))}
	for n := range 9 {
		p.all = append(p.all, &client{number: n, stay: t.Context()})
	}
	for range 9 {
		got := p.victims(Fault{Kind: Crash, Clients: 1}, 5, func(c *client) bool { return c.number == 3 })
		check.True(t, len(got) == 1 && got[0].number == 3, "it strikes client %d", got[0].number)
	}
}
