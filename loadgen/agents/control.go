// Package agents runs one load from several processes, on any number of machines.
//
// The processes meet on a Redis server, the control server. A coordinator, [Load], writes
// a plan and one ticket for each agent. Each [Agent] takes a ticket, which gives it its
// number, and runs its share of the clients. It writes a [loadgen.Snapshot] every second,
// and the coordinator adds them up. All agents have connected before any starts, and they
// start at the same time of the control server's clock.
//
// Nothing starts agents: whatever starts processes does, like ssh or a Kubernetes Job.
//
// An agent that the coordinator does not hear of for 3 s is lost: the others go on. An
// agent that does not reach the control server for 10 s, or whose coordinator is gone,
// stops its clients and releases what they hold.
package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen"
)

// Protocol is the version of the plans and messages. Agents refuse any other.
const Protocol = 1

// Keys on the control server.
const (
	tickets   = "locktop:agents:tickets" // list of tickets that no agent has taken
	keyPrefix = "locktop:agents:"
)

const (
	beat        = time.Second             // between two snapshots of an agent, and two beats of a coordinator
	lostAfter   = 3200 * time.Millisecond // without a message of an agent: 3 snapshots
	planLife    = 10 * time.Second        // without a beat of the coordinator
	controlGone = 10 * time.Second        // without an answer of the control server
	streamLife  = time.Hour               // of the messages of a run that nobody deletes
	requestTime = 2 * time.Second         // for one request to the control server
)

// Target names the servers that all agents load. It has no password: each agent has its
// own, for the targets that it allows.
type Target struct {
	Addresses []string `json:"addresses"`         // host:port; several are the nodes of a Redlock
	DB        int      `json:"db,omitempty"`      // number of the database
	Cluster   bool     `json:"cluster,omitempty"` // the address is a node of a cluster
}

// String returns the addresses.
func (t Target) String() string { return strings.Join(t.Addresses, ", ") }

// Local reports whether an address, host:port, is of this machine.
func Local(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// plan is what all agents of a run must know.
type plan struct {
	Protocol int    `json:"protocol"`
	Agents   int    `json:"agents"`
	Target   Target `json:"target"`
	Scenario string `json:"scenario"` // of the whole run, in the file format
}

// maxPlan is the largest length of a plan.
const maxPlan = 1 << 20

// parsePlan reads a plan, and returns the share of an agent, from 1.
func parsePlan(text string, agent int) (plan, loadgen.Scenario, error) {
	var p plan
	var err error
	if len(text) <= maxPlan {
		err = json.Unmarshal([]byte(text), &p) // reads on after a field of another type
	}
	switch {
	case p.Protocol == 0:
		return p, loadgen.Scenario{}, errors.New("this is not a plan of locktop")
	case p.Protocol != Protocol:
		return p, loadgen.Scenario{}, fmt.Errorf("the plan has protocol %d, and this agent has protocol %d: run the same version of locktop everywhere", p.Protocol, Protocol)
	case err != nil:
		return p, loadgen.Scenario{}, fmt.Errorf("this is not a plan of locktop: %w", err)
	}
	s, err := loadgen.Parse([]byte(p.Scenario))
	if err != nil {
		return p, s, fmt.Errorf("the plan has no valid scenario: %w", err)
	}
	switch {
	case len(p.Target.Addresses) == 0:
		return p, s, errors.New("the plan names no target")
	case agent < 1 || agent > p.Agents:
		return p, s, fmt.Errorf("the plan has no agent %d: it has %d", agent, p.Agents)
	case s.Keys.Prefix == "":
		return p, s, errors.New("the plan has no prefix of the keys")
	}
	shares, err := s.Shares(p.Agents)
	if err != nil {
		return p, s, err
	}
	return p, shares[agent-1], nil
}

// ticket gives one agent its place in a run.
type ticket struct {
	Run   string `json:"run"`
	Agent int    `json:"agent"` // from 1
}

// orderKind is a kind of order.
type orderKind string

const (
	orderStart       orderKind = "start"        // begin at At
	orderScenario    orderKind = "scenario"     // change to Scenario
	orderFault       orderKind = "fault"        // apply your share of Fault
	orderServerFault orderKind = "server-fault" // the coordinator applies Fault or, with Over, has done so
	orderLost        orderKind = "lost"         // Agent was lost: if it still runs, it stops
	orderStop        orderKind = "stop"         // stop, and send the last snapshot
)

// order is a message of the coordinator to the agents.
type order struct {
	Order    orderKind      `json:"order"`
	At       time.Time      `json:"at,omitzero"` // by the clock of the control server
	Scenario string         `json:"scenario,omitempty"`
	Fault    *loadgen.Fault `json:"fault,omitempty"`
	Over     bool           `json:"over,omitempty"`
	Agent    int            `json:"agent,omitempty"`
	Why      string         `json:"why,omitempty"`
}

// messageKind is a kind of message.
type messageKind string

const (
	messageReady    messageKind = "ready"    // connected to the target, and waiting for the start
	messageRefused  messageKind = "refused"  // Error is the reason
	messageSnapshot messageKind = "snapshot" // while the clients run
	messageStopped  messageKind = "stopped"  // the last snapshot
)

// message is a message of an agent to the coordinator.
type message struct {
	Message  messageKind       `json:"message"`
	Agent    int               `json:"agent"`
	Name     string            `json:"name,omitempty"`  // host:pid
	Clock    time.Duration     `json:"clock,omitempty"` // what must be added to the agent's clock to get the control server's, ns
	Snapshot *loadgen.Snapshot `json:"snapshot,omitempty"`
	Events   []sentEvent       `json:"events,omitempty"` // see highlights
	Error    string            `json:"error,omitempty"`
}

// control sends and reads the messages of one run on the control server.
type control struct {
	rdb redis.Cmdable
	run string
}

func (c control) key(what string) string { return keyPrefix + "{" + c.run + "}:" + what }

// send adds a message or an order to a stream of the run.
func (c control) send(ctx context.Context, stream string, what any) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	text, err := json.Marshal(what)
	if err != nil {
		return fmt.Errorf("encode a message: %w", err)
	}
	pipe := c.rdb.Pipeline()
	pipe.XAdd(ctx, &redis.XAddArgs{Stream: c.key(stream), Values: []any{"json", text}})
	pipe.Expire(ctx, c.key(stream), streamLife)
	_, err = pipe.Exec(ctx)
	return err
}

// joinScript adds a message to a stream unless the plan is gone. The coordinator has then deleted
// the stream.
var joinScript = redis.NewScript(`if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], '*', 'json', ARGV[1])
redis.call('EXPIRE', KEYS[2], ARGV[2])
return 1`)

// join sends the first message of an agent. planned is false if the coordinator is gone.
func (c control) join(ctx context.Context, m message) (planned bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	text, err := json.Marshal(m)
	if err != nil {
		return false, fmt.Errorf("encode a message: %w", err)
	}
	return joinScript.Run(ctx, c.rdb, []string{c.key("plan"), c.key(messages)}, text, int(streamLife.Seconds())).Bool()
}

// Streams of a run.
const (
	orders   = "orders"
	messages = "messages"
)

// read returns the entries of a stream after the entry last, as JSON. It waits for them, at
// most for the time wait. next is the ID of the last entry.
func (c control) read(ctx context.Context, stream, last string, wait time.Duration) (texts []string, next string, err error) {
	ctx, cancel := context.WithTimeout(ctx, wait+requestTime)
	defer cancel()
	found, err := c.rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{c.key(stream), last}, Count: 1000, Block: wait}).Result()
	if errors.Is(err, redis.Nil) {
		return nil, last, nil
	}
	if err != nil {
		return nil, last, err
	}
	for _, entry := range found[0].Messages {
		text, _ := entry.Values["json"].(string)
		texts, last = append(texts, text), entry.ID
	}
	return texts, last, nil
}

// clockSamples is the number of requests that measure the difference of two clocks.
const clockSamples = 5

// clockBehind returns what must be added to the local clock, now, to get the clock of the
// control server. It goes by the fastest of some requests, as NTP does.
func clockBehind(ctx context.Context, rdb redis.Cmdable, now func() time.Time) (time.Duration, error) {
	best, behind := time.Duration(-1), time.Duration(0)
	for range clockSamples {
		soon, cancel := context.WithTimeout(ctx, requestTime)
		sent := now()
		there, err := rdb.Time(soon).Result()
		cancel()
		if err != nil {
			return 0, err
		}
		if took := now().Sub(sent); best < 0 || took < best {
			best, behind = took, there.Sub(sent.Add(took/2).Round(0))
		}
	}
	return behind, nil
}
