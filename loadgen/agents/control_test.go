package agents

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every connection that it cannot open
	servertest.Tests{M: m, Parallel: 8}.Run()
}

// planned returns a plan as JSON.
func planned(t testing.TB, agents int, s loadgen.Scenario, change func(*plan)) string {
	t.Helper()
	p := plan{Protocol: Protocol, Agents: agents, Target: Target{Addresses: []string{"127.0.0.1:6379"}}, Scenario: string(s.Marshal())}
	if change != nil {
		change(&p)
	}
	text := check.Must(json.Marshal(p))(t)
	return string(text)
}

func TestAPlanGivesAnAgentItsShare(t *testing.T) {
	s := loadgen.Scenario{Clients: 11, Keys: loadgen.Keys{Prefix: "p:"}, Rate: 30}
	total := 0
	for agent := 1; agent <= 4; agent++ {
		p, share, err := parsePlan(planned(t, 4, s.WithDefaults(), nil), agent)
		check.True(t, err == nil && share.Keys.Prefix == "p:" && share.Rate == 7.5, "agent %d: %+v %+v %v", agent, p, share, err)
		total += share.Clients
	}
	check.Equal(t, total, 11, "clients of the shares")
}

func TestAnAgentRefusesPlans(t *testing.T) {
	good := loadgen.Scenario{Clients: 10, Keys: loadgen.Keys{Prefix: "p:"}}
	for _, c := range []struct {
		text  string
		agent int
		want  string
	}{
		{"no JSON", 1, "this is not a plan of locktop"},
		{`{"protocol": 2, "agents": [], "scenario": 7}`, 1, "the plan has protocol 2, and this agent has protocol 1: run the same version of locktop everywhere"},
		{`{"protocol": 1, "agents": "four"}`, 1, "this is not a plan of locktop: "},
		{planned(t, 4, good, nil) + strings.Repeat(" ", maxPlan), 1, "this is not a plan of locktop"},
		{planned(t, 4, good, func(p *plan) { p.Scenario = "clients: many" }), 1, "the plan has no valid scenario: "},
		{planned(t, 4, good, func(p *plan) { p.Scenario = "shell: rm -rf" }), 1, "the plan has no valid scenario: "},
		{planned(t, 4, loadgen.Scenario{Keys: good.Keys, Lock: loadgen.Lock{Exec: "touch /tmp/x"}}, nil), 1, "agents run no client processes (exec)"},
		{planned(t, 4, loadgen.Scenario{Keys: good.Keys, Versus: []loadgen.Lock{{Kind: loadgen.Fair}}}, nil), 1, "agents do not compare locks (versus)"},
		{planned(t, 4, loadgen.Scenario{Clients: 10}, nil), 1, "the plan has no prefix of the keys"},
		{planned(t, 4, good, func(p *plan) { p.Target.Addresses = nil }), 1, "the plan names no target"},
		{planned(t, 4, good, nil), 0, "the plan has no agent 0: it has 4"},
		{planned(t, 4, good, nil), 5, "the plan has no agent 5: it has 4"},
		{planned(t, 4, good, nil), -1, "the plan has no agent -1: it has 4"},
		{planned(t, loadgen.MaxAgents+1, good, nil), 1, "agents must be 1 to 1000, not 1001"},
		{planned(t, 11, good, nil), 11, "10 clients are too few for 11 agents"},
	} {
		_, _, err := parsePlan(c.text, c.agent)
		check.True(t, err != nil && strings.HasPrefix(err.Error(), c.want), "%.60s, agent %d: %v, want %s", c.text, c.agent, err, c.want)
	}
	_, _, err := parsePlan(planned(t, 10, good, nil), 10)
	check.ErrorIs(t, err, nil)
}

func TestOnlyAddressesOfThisMachineAreLocal(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "localhost:1": true, "[::1]:1": true, "127.9.9.9:1": true,
		"10.0.0.1:1": false, "192.0.2.1:1": false, "example.com:1": false, "localhost.example.com:1": false, "127.0.0.1.example.com:1": false,
		"0.0.0.0:1": false, "127.0.0.1": false, ":1": false, "": false, "[::]:1": false,
	} {
		check.Equal(t, Local(address), want, "%q", address)
	}
}

// clockHook makes the server's clock be of another time, and delays some replies, in turn.
func clockHook(ahead time.Duration, delays ...time.Duration) servertest.Commands {
	return func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if there, ok := cmd.(*redis.TimeCmd); ok {
			there.SetVal(time.Now().Add(ahead))
			time.Sleep(delays[0]) // only the reply is late: half of it would be the error
			delays = append(delays[1:], delays[0])
		}
		return err
	}
}

func TestTheDifferenceOfTwoClocksGoesByTheFastestReply(t *testing.T) {
	testtier.Long(t, "it measures a clock on a slow link")
	for _, ahead := range []time.Duration{0, 5 * time.Second, -5 * time.Second} {
		for _, shift := range []time.Duration{0, time.Minute} {
			rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
			ms := time.Millisecond
			rdb.AddHook(clockHook(ahead, 200*ms, 200*ms, 0, 200*ms, 200*ms))
			behind, err := clockBehind(t.Context(), rdb, func() time.Time { return time.Now().Add(shift) })
			check.True(t, err == nil && (behind-(ahead-shift)).Abs() <= 50*ms, "ahead %s, shift %s: %s, %v", ahead, shift, behind, err)
		}
	}
	rdb := servertest.ClientForTest(t, "127.0.0.1:1", nil)
	_, err := clockBehind(t.Context(), rdb, time.Now)
	check.True(t, err != nil, "the clock of no server")
}

func FuzzAnyPlanIsReadOrRefused(f *testing.F) {
	for _, s := range []loadgen.Scenario{
		{Clients: 4, Keys: loadgen.Keys{Prefix: "p:"}},
		{Clients: 9, Keys: loadgen.Keys{Prefix: "p:"}, Lock: loadgen.Lock{Kind: loadgen.Redlock}, Faults: []loadgen.Fault{{Kind: loadgen.Freeze, Client: 3, For: time.Second}}, Stages: []loadgen.Stage{{For: time.Second, Clients: 8}}},
		{Clients: 9, Keys: loadgen.Keys{Prefix: "p:"}, Lock: loadgen.Lock{Exec: "true"}},
	} {
		f.Add(planned(f, 4, s, nil), 1)
		f.Add(planned(f, 1000, s.WithDefaults(), nil), 1000)
	}
	f.Add(`{"protocol": 2}`, 1)
	f.Add(`[]`, 0)
	f.Fuzz(func(t *testing.T, text string, agent int) {
		p, share, err := parsePlan(text, agent)
		if err != nil {
			return
		}
		if err := share.Validate(); err != nil || share.Clients < 1 || share.Keys.Prefix == "" || share.Lock.Kind == loadgen.Exec || len(share.Versus) > 0 || share.Lock.Exec != "" || p.Protocol != Protocol {
			t.Errorf("agent %d of %+v runs %+v: %v", agent, p, share, err)
		}
		_ = p.Target.String()
	})
}

func FuzzAnyMessageIsReadOrIgnored(f *testing.F) {
	h := hdrhistogram.New(int64(time.Microsecond), int64(time.Hour), 2) // as in package loadgen
	check.NoError(f, h.RecordValue(int64(time.Millisecond)))
	counts, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	check.NoError(f, err)
	snapshot := loadgen.Snapshot{
		Metrics:   loadgen.Metrics{Running: true, Elapsed: 3 * time.Second, Clients: loadgen.ClientCounts{Total: 1, Idle: 1, States: []loadgen.ClientState{0}}},
		Latencies: [5]loadgen.Distribution{{Counts: string(counts)}}, Seconds: []loadgen.SecondShare{{Number: 2, Second: loadgen.Second{Acquired: 4}}},
	}
	for _, m := range []any{
		message{Message: messageReady, Agent: 1, Name: "a:1"}, message{Message: messageRefused, Agent: 1, Name: "a:1", Error: "no"},
		message{Message: messageSnapshot, Agent: 1, Snapshot: &snapshot}, message{Message: messageStopped, Agent: 2, Snapshot: &snapshot, Error: "why"},
		order{Order: orderFault, Fault: &loadgen.Fault{Kind: loadgen.Crash, Client: 2}}, order{Order: orderServerFault, Fault: &loadgen.Fault{Kind: loadgen.Flush}, Over: true},
		order{Order: orderScenario, Scenario: "clients: 6"}, ticket{"x", 3},
	} {
		text := check.Must(json.Marshal(m))(f)
		f.Add(string(text))
	}
	rdb := servertest.ClientForTest(f, "127.0.0.1:1", nil)
	scenario := loadgen.Scenario{Clients: 6, Keys: loadgen.Keys{Prefix: "p:"}, Faults: []loadgen.Fault{{Kind: loadgen.Freeze, Clients: 2}, {Kind: loadgen.Flush}}}.WithDefaults()
	shares := check.Must(scenario.Shares(3))(f)
	config := Config{Note: func(string) {}}
	f.Fuzz(func(t *testing.T, text string) {
		s := &session{config: config, scenario: scenario, members: make([]member, 3), struck: make([]int, 2), began: time.Now(), over: context.Background()}
		_ = s.join(text)
		s.receive(text)
		s.receive(text)
		for _, m := range []loadgen.Metrics{s.metrics(), s.states()[0].Metrics} {
			for _, state := range m.Clients.States {
				_ = state.String()
			}
			if m.Acquired != m.Released+m.Expired+m.Lost+m.Unconfirmed+m.Abandoned+int64(m.Clients.Holding) || len(m.Seconds) > loadgen.HistorySeconds {
				t.Errorf("%+v", m)
			}
		}
		s.merger.Lost(1)
		_ = s.metrics()

		var o order
		if json.Unmarshal([]byte(text), &o) != nil {
			return
		}
		run := check.Must(loadgen.New(loadgen.Servers{Redis: rdb}, shares[1]))(t)
		defer run.Close()
		h := &share{agent: &Agent{Note: config.Note}, number: 2, plan: plan{Agents: 3}, whole: scenario, run: run}
		h.obey(o)
	})
}
