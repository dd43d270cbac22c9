package agents

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/loadgen"
)

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
	note(loadgen.Overlapped, 1, "a", "")
	note(loadgen.Overlapped, 2, "a", "") // another one
	note(loadgen.Overlapped, 2, "b", "")
	note(loadgen.LateWork, 2, "b", "")
	note(loadgen.FaultBegan, 0, "", loadgen.Flush) // the coordinator applies it
	note(loadgen.FaultBegan, 1, "", loadgen.Freeze)
	note(loadgen.FaultBegan, 2, "", loadgen.Greedy)
	note(loadgen.Overlapped, 1, "a", "")
	note(loadgen.FaultEnded, 1, "", loadgen.Freeze)
	want := []sentEvent{
		{At: at, Kind: loadgen.Overlapped, Client: 1, Key: "a", Token: "t"},
		{At: at, Kind: loadgen.Overlapped, Client: 2, Key: "b", Token: "t"},
		{At: at, Kind: loadgen.LateWork, Client: 2, Key: "b", Token: "t"},
		{At: at, Kind: loadgen.FaultBegan, Client: 1, Key: "a", Fault: loadgen.Freeze, Token: "t"},
		{At: at, Kind: loadgen.FaultBegan, Client: 2, Fault: loadgen.Greedy, Token: "t"},
		{At: at, Kind: loadgen.Overlapped, Client: 1, Key: "a", Token: "t"},
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
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(t).Addr(), DisableIdentity: true})
	defer rdb.Close()
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
