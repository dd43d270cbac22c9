package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// seen returns a session of n agents of which nothing is known.
func seen(n int) *session {
	s := loadgen.Scenario{Clients: 4, Keys: loadgen.Keys{Prefix: "p:"}}.WithDefaults()
	return &session{config: Config{Note: func(string) {}}, scenario: s, members: make([]member, n), began: time.Now(), over: context.Background()}
}

// send has a session receive the message of an agent, as it arrives.
func (s *session) send(t *testing.T, m message) {
	t.Helper()
	text := check.Must(json.Marshal(m))(t)
	s.receive(string(text))
}

// acquired returns the snapshot of a process that has acquired n locks, and released them.
func acquired(n int64) *loadgen.Snapshot {
	return &loadgen.Snapshot{Metrics: loadgen.Metrics{Began: time.Unix(9, 0), Running: true, Counts: loadgen.Counts{Arrivals: n, Acquired: n, Released: n}}}
}

// No process sees the clients of another one, so no report of several says that no two
// clients were inside at once.
func TestAReportOfAgentsSaysWhatNobodySaw(t *testing.T) {
	const denial = "No two clients were inside at once."
	for _, c := range []struct {
		agents int
		worked int64
		want   string
	}{
		{1, 0, denial},
		{2, 0, "No overlap was seen: each agent saw its own clients, the witness those with valid leases."},
		{2, 3, "No two clients of one agent had valid leases at once, but two clients of one agent worked at the same time (3 times, for up to 0 s), with or without valid leases."},
	} {
		s := seen(c.agents)
		snapshot := acquired(5)
		snapshot.Metrics.Violations = oracle.Violations{WorkOverlap: oracle.Tally{Count: c.worked}}
		s.send(t, message{Message: messageSnapshot, Agent: 1, Snapshot: snapshot}) // the others may be lost before their first one
		check.Equal(t, s.metrics().Verdict(s.scenario).Text(), c.want, "%d agents", c.agents)
	}
}

func TestALostAgentIsNotHeard(t *testing.T) {
	s := seen(2)
	s.send(t, message{Message: messageSnapshot, Agent: 1, Snapshot: acquired(5)})
	s.members[0].Lost = true
	s.merger.Lost(1)
	s.send(t, message{Message: messageSnapshot, Agent: 1, Snapshot: acquired(70), Events: []sentEvent{{Kind: loadgen.FaultBegan}}})
	s.send(t, message{Message: messageSnapshot, Agent: 2, Snapshot: acquired(600)})
	n := s.metrics().Acquired
	check.True(t, n == 605 && len(s.events) == 0, "%d acquired, want 605; %d events", n, len(s.events))
}

func TestEventsOfAgentsHaveOneClock(t *testing.T) {
	s := seen(2)
	at := time.Unix(1_700_000_000, 0).UTC()
	for i, behind := range []time.Duration{5 * time.Second, -3 * time.Second} {
		snapshot := acquired(1)
		snapshot.ClockBehind = behind
		s.send(t, message{Message: messageSnapshot, Agent: i + 1, Snapshot: snapshot, Events: []sentEvent{{At: at.Add(-behind), Kind: loadgen.FaultBegan}}})
	}
	for _, e := range s.events {
		check.True(t, e.At.Equal(at), "an event is at %s, want %s", e.At, at)
	}
	check.Equal(t, len(s.events), 2, "events")
}

func TestNoSecondIsLostWithASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server.NewPiped()
		t.Cleanup(s.Close)
		rdb := servertest.ClientForTest(t, s.Addr(), s.Dial)
		control := control{servertest.ClientForTest(t, s.Addr(), s.Dial), "x"}
		run, err := loadgen.New(loadgen.Servers{Redis: rdb}, loadgen.Scenario{Clients: 2, Keys: loadgen.Keys{Prefix: "p:"}})
		check.NoError(t, err)
		run.Join(1)
		check.NoError(t, run.Start())
		h := &share{agent: &Agent{}, control: control, number: 1, run: run, answered: time.Now()}
		down, stop := context.WithCancel(t.Context()) // the control server does not answer
		stop()
		for _, ctx := range []context.Context{t.Context(), down, down, t.Context(), t.Context()} {
			time.Sleep(time.Second)
			h.report(ctx, messageSnapshot, nil)
		}
		check.ErrorIs(t, run.Close(), nil)
		texts, _, err := control.read(t.Context(), messages, "0", time.Second)
		check.NoError(t, err)
		var numbers []int
		for _, text := range texts {
			var m message
			check.NoError(t, json.Unmarshal([]byte(text), &m))
			for _, second := range m.Snapshot.Seconds {
				numbers = append(numbers, second.Number)
			}
		}
		check.True(t, len(texts) == 3 && len(numbers) >= 4 && slices.Equal(numbers, []int{0, 1, 2, 3, 4}[:len(numbers)]),
			"%d messages with the seconds %v", len(texts), numbers)
	})
}

func TestAgentsNameTheServerOfAFault(t *testing.T) {
	rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
	run, err := loadgen.New(loadgen.Servers{Redis: rdb}, loadgen.Scenario{Clients: 2, Keys: loadgen.Keys{Prefix: "p:"}})
	check.NoError(t, err)
	run.Join(1)
	check.NoError(t, run.Start())
	defer run.Close()
	agent := &share{agent: &Agent{}, control: control{rdb, "x"}, number: 1, run: run}
	coordinator := seen(1)
	coordinator.control = agent.control
	for _, f := range []loadgen.Fault{{Kind: loadgen.NodeDown, Node: 2}, {Kind: loadgen.Pause, Node: 3}, {Kind: loadgen.RestartEmpty}, {Kind: loadgen.Flush}} {
		agent.obey(order{Order: orderServerFault, Fault: &f})
		ended := loadgen.Event{Kind: loadgen.FaultEnded, Fault: f.Kind, Node: f.Node}
		coordinator.onServerFault(ended)
		coordinator.faults.Wait() // the order is sent
	}
	texts, _, err := agent.control.read(t.Context(), orders, "0", time.Second)
	check.NoError(t, err)
	for _, text := range texts {
		var o order
		check.NoError(t, json.Unmarshal([]byte(text), &o))
		agent.obey(o)
	}
	var got []string
	for _, e := range run.Events(0) {
		if e.Kind == loadgen.FaultBegan || e.Kind == loadgen.FaultEnded {
			got = append(got, fmt.Sprintf("%s of %s: %s", e.Kind, e.Fault, e.Text))
		}
	}
	want := []string{
		"fault of node-down: node 2", "fault of pause: node 3", "fault of node-restart-empty: node 1", "fault of flush: ",
		"healed of node-down: node 2", "healed of pause: node 3", "healed of node-restart-empty: node 1", "healed of flush: ",
	}
	check.Equal(t, strings.Join(got, "\n"), strings.Join(want, "\n"), "the events of the agent")
}

func TestAnInterruptedAgentGivesItsTicketBack(t *testing.T) {
	for _, when := range []string{"while it waits", "while it connects"} {
		rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		if when == "while it waits" {
			rdb.AddHook(servertest.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
				err := next(ctx, cmd)
				if cmd.Name() == "blpop" && err == nil { // the agent has taken its ticket
					cancel()
				}
				return err
			}))
		}
		a := Agent{Control: rdb, Note: func(string) {}, Open: func(ctx context.Context, _ Target) (on loadgen.Servers, release func(), err error) {
			cancel()
			return on, nil, ctx.Err()
		}}
		run := control{rdb, "x"}
		mine := check.Must(json.Marshal(ticket{"x", 2}))(t)
		rdb.Set(t.Context(), run.key("plan"), planned(t, 2, loadgen.Scenario{Clients: 4, Keys: loadgen.Keys{Prefix: "p:"}}, nil), planLife)
		rdb.RPush(t.Context(), tickets, mine, "of another run")
		check.ErrorIs(t, a.Serve(ctx, false), nil, "%s", when)
		left := rdb.LRange(t.Context(), tickets, 0, -1).Val()
		check.True(t, fmt.Sprint(left) == fmt.Sprintf("[%s of another run]", mine), "%s: the tickets are %q", when, left)
		check.AtMost(t, rdb.XLen(t.Context(), run.key(messages)).Val(), 0, "%s: the agent has sent messages", when)
	}
}

// An agent without its plan blames the coordinator only if the rest of the run is still there.
func TestAnAgentSaysWhatIsGone(t *testing.T) {
	for there, want := range map[string]string{
		orders: "the coordinator is gone",
		"":     "the keys of the run are gone from the control server",
	} {
		rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
		h := &share{agent: &Agent{}, control: control{rdb, "x"}}
		if there != "" {
			check.NoError(t, h.control.send(t.Context(), there, order{Order: orderStart}))
		}
		if err := h.checkPlan(t.Context()); err == nil || err.Error() != want || strings.Contains(want, "coordinator") != errors.Is(err, errCoordinatorGone) {
			t.Errorf("with %q: %v, want %s", there, err, want)
		}
	}
}

// An agent goes on for a while without an answer of the control server.
func TestAnAgentStopsWhenTheControlServerIsSilentForLong(t *testing.T) {
	rdb := servertest.ClientForTest(t, "127.0.0.1:1", nil)
	for silent, want := range map[time.Duration]error{controlGone - requestTime: nil, controlGone + time.Second: ErrControlGone} {
		h := &share{agent: &Agent{}, control: control{rdb, "x"}, answered: time.Now().Add(-silent)}
		check.ErrorIs(t, h.checkPlan(t.Context()), want, "after %s", silent)
	}
}

// TestHighlightsAreFew checks that of the events of an agent only faults of clients and the first
// violation of each kind on each key since a fault are sent.
func TestHighlightsAreFew(t *testing.T) {
	var h highlights
	at := time.Unix(1_700_000_000, 0).UTC()
	note := func(k loadgen.EventKind, client int, key string, f loadgen.FaultKind) {
		h.note(loadgen.Event{At: at, Kind: k, Client: client, Key: key, Fault: f, Token: "t"})
	}
	note(loadgen.Arrived, 1, "a", "")
	note(loadgen.Acquired, 1, "a", "")
	note(loadgen.Acquired, 2, "b", "")
	note(loadgen.Released, 2, "b", "")
	note(loadgen.EventKind(oracle.Overlap), 1, "a", "")
	note(loadgen.EventKind(oracle.Overlap), 2, "a", "") // another one
	note(loadgen.EventKind(oracle.Overlap), 2, "b", "")
	note(loadgen.EventKind(oracle.LateWork), 2, "b", "")
	note(loadgen.FaultBegan, 0, "", loadgen.Flush) // the coordinator applies it
	note(loadgen.FaultBegan, 1, "", loadgen.Freeze)
	note(loadgen.FaultBegan, 2, "", loadgen.Greedy)
	note(loadgen.EventKind(oracle.Overlap), 1, "a", "")
	note(loadgen.FaultEnded, 1, "", loadgen.Freeze)
	want := []sentEvent{
		{At: at, Kind: loadgen.EventKind(oracle.Overlap), Client: 1, Key: "a", Token: "t"},
		{At: at, Kind: loadgen.EventKind(oracle.Overlap), Client: 2, Key: "b", Token: "t"},
		{At: at, Kind: loadgen.EventKind(oracle.LateWork), Client: 2, Key: "b", Token: "t"},
		{At: at, Kind: loadgen.FaultBegan, Client: 1, Key: "a", Fault: loadgen.Freeze, Token: "t"},
		{At: at, Kind: loadgen.FaultBegan, Client: 2, Fault: loadgen.Greedy, Token: "t"},
		{At: at, Kind: loadgen.EventKind(oracle.Overlap), Client: 1, Key: "a", Token: "t"},
		{At: at, Kind: loadgen.FaultEnded, Client: 1, Fault: loadgen.Freeze, Token: "t"},
	}
	text := check.Must(json.Marshal(message{Events: h.unsent()}))(t)
	var m message
	check.NoError(t, json.Unmarshal(text, &m))
	check.DeepEqual(t, m.Events, want)
	for range 2 * maxHighlights { // while the control server does not answer
		note(loadgen.FaultEnded, 1, "", loadgen.Freeze)
	}
	check.Equal(t, len(h.unsent()), maxHighlights, "events wait")
	h.sent(maxHighlights - 1)
	check.Equal(t, len(h.unsent()), 1, "events wait after the others were sent")
}

func TestASessionForgetsOldEvents(t *testing.T) {
	s := &session{}
	l := &Load{newest: s}
	for range maxEvents + 10 {
		s.note(loadgen.Event{Kind: loadgen.FaultBegan})
	}
	for seen, want := range map[uint64][2]uint64{0: {11, maxEvents}, 5: {11, maxEvents}, 11: {12, maxEvents - 1}, maxEvents + 9: {maxEvents + 10, 1}, maxEvents + 10: {0, 0}, 1 << 40: {0, 0}} {
		got := l.Events(seen)
		check.True(t, uint64(len(got)) == want[1] && (len(got) == 0 || got[0].Seq == want[0]),
			"after %d there are %d events, want %d from %d on", seen, len(got), want[1], want[0])
	}
}

// TestAFaultOfOneClientStrikesAnAgentThatRuns checks that a fault of a random client does not go
// to an agent without clients, and that a fault for such an agent is an error.
func TestAFaultOfOneClientStrikesAnAgentThatRuns(t *testing.T) {
	rdb := servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)
	s := &session{control: control{rdb, "run"}, members: []member{{AgentState: loadgen.AgentState{Stopped: true}}, {}, {AgentState: loadgen.AgentState{Lost: true}}, {}}}
	struck := map[int]int{}
	for range 40 {
		check.NoError(t, s.inject(loadgen.Fault{Kind: loadgen.Freeze, For: time.Second}))
	}
	texts, _, err := s.control.read(t.Context(), orders, "0", time.Second)
	check.NoError(t, err)
	for _, text := range texts {
		var o order
		check.NoError(t, json.Unmarshal([]byte(text), &o))
		struck[o.Fault.Agent]++
	}
	check.True(t, struck[2] != 0 && struck[4] != 0 && struck[2]+struck[4] == 40, "struck by agent: %v", struck)
	for _, gone := range []int{1, 3} {
		check.True(t, s.inject(loadgen.Fault{Kind: loadgen.Freeze, For: time.Second, Agent: gone}) != nil,
			"a fault of agent %d, which is gone, is accepted", gone)
	}
	check.NoError(t, s.inject(loadgen.Fault{Kind: loadgen.Freeze, For: time.Second, Clients: 8}))
	texts, _, _ = s.control.read(t.Context(), orders, "0", time.Second)
	var last order
	if err := json.Unmarshal([]byte(texts[len(texts)-1]), &last); err != nil || last.Fault.Clients != 8 || last.Fault.Agent != 0 {
		t.Errorf("a fault of 8 clients is sent as %+v: %v", last.Fault, err)
	}
}
