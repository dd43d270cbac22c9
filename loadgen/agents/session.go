package agents

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// member is an agent of a session.
type member struct {
	loadgen.AgentState               // without Number, Seen, Clients and Metrics
	silent             time.Duration // time without a message, while the control server answered
	heard              time.Time
}

// session is one run of a load, from a start to a stop.
type session struct {
	config   Config
	control  control
	scenario loadgen.Scenario
	keeper   *loadgen.Run
	witness  *witness.Witness // nil until open
	began    time.Time

	asked  context.Context    // ends with ask
	ask    context.CancelFunc // asks the agents to stop
	over   context.Context    // ends with end
	end    context.CancelFunc
	faults sync.WaitGroup
	failed error // after over

	mu         sync.Mutex // guards what follows
	merger     loadgen.Merger
	members    []member // by number less 1
	incomplete []string
	struck     []int           // how often each fault of servers of the scenario occurred
	events     []loadgen.Event // the newest ones, see [Load.Events]
	noted      uint64          // number of events so far
	behind     time.Duration   // what must be added to the clock of this machine to get the control server's
}

// open plans a run, waits for its agents, and starts them.
func (l *Load) open(scenario loadgen.Scenario) (started *session, err error) {
	s := &session{
		config: l.config, control: control{l.config.Control, rand.Text()[:12]}, scenario: scenario,
		members: make([]member, l.config.Agents), struck: make([]int, len(scenario.Faults)),
	}
	s.asked, s.ask = context.WithCancel(context.Background())
	s.over, s.end = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			s.abandon(err)
		}
	}()
	ctx, stop := context.WithCancelCause(l.closing)
	defer stop(nil)
	l.wait(s, stop)
	defer l.wait(nil, nil)
	soon, cancel := context.WithTimeout(context.Background(), requestTime) // Stop would leave a key without a TTL
	defer cancel()
	if s.witness, err = witness.Open(soon, l.config.Control, s.control.run, scenario.Lock.Limit()); err != nil {
		return nil, err
	}
	if err := s.keep(); err != nil {
		return nil, err
	}
	if err := s.publish(ctx); err != nil {
		return nil, fmt.Errorf("write the plan to the control server: %w", err)
	}
	last, err := s.gather(ctx)
	if err != nil {
		return nil, err
	}
	behind, err := clockBehind(ctx, s.control.rdb, time.Now)
	if err != nil {
		return nil, fmt.Errorf("read the clock of the control server: %w", err)
	}
	s.mu.Lock()
	s.behind = behind
	s.mu.Unlock()
	s.began = time.Now().Add(startIn)
	if err := s.order(order{Order: orderStart, At: s.began.Add(behind).Round(0)}); err != nil {
		return nil, fmt.Errorf("start the agents: %w", err)
	}
	go s.work(last)
	s.faults.Go(s.strikeFaults)
	return s, nil
}

// wait makes s the session that waits for agents, which cancel ends; nil: there is none.
func (l *Load) wait(s *session, cancel context.CancelCauseFunc) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opening, l.cancel = s, cancel
}

// startIn is the time from the order to start to the start. It is long enough for the order
// to reach all agents.
const startIn = time.Second

// keep starts the run that claims the prefix, applies faults of servers and deletes the keys.
func (s *session) keep() error {
	own := s.scenario
	own.Faults, own.Stages, own.Thresholds, own.Expect, own.Duration, own.Warmup = nil, nil, nil, nil, 0, 0
	keeper, err := loadgen.New(s.config.Servers, own)
	if err != nil {
		return err
	}
	s.keeper = keeper
	keeper.Keep()
	keeper.Witness(s.witness) // its faults excuse overlaps
	keeper.Listen(s.onServerFault)
	return keeper.Start()
}

// publish writes the plan and the tickets.
func (s *session) publish(ctx context.Context) error {
	text, err := json.Marshal(plan{
		Protocol: Protocol, Agents: s.config.Agents, Target: s.config.Target, Scenario: string(s.scenario.Marshal()),
	})
	if err != nil {
		return err
	}
	pipe := s.control.rdb.Pipeline()
	pipe.Set(ctx, s.control.key("plan"), text, planLife)
	for _, t := range s.tickets() {
		pipe.RPush(ctx, tickets, t)
	}
	pipe.Expire(ctx, tickets, streamLife)
	_, err = pipe.Exec(ctx)
	return err
}

func (s *session) tickets() []string {
	all := make([]string, s.config.Agents)
	for i := range all {
		text, _ := json.Marshal(ticket{s.control.run, i + 1}) // it has no field that can fail
		all[i] = string(text)
	}
	return all
}

// beatPlan keeps the plan: it tells the agents that the coordinator is there.
func (s *session) beatPlan(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	return s.control.rdb.PExpire(ctx, s.control.key("plan"), planLife).Err()
}

// pollFor is how long one request waits for messages.
const pollFor = 200 * time.Millisecond

// ErrStartCancelled is the error of a start that [Load.Stop] ends while it waits for agents.
var ErrStartCancelled = errors.New("the start was cancelled before all agents had come")

// gather waits until all agents are ready. It returns the ID of the last message.
func (s *session) gather(ctx context.Context) (last string, err error) {
	last = "0"
	s.config.Note(fmt.Sprintf("waiting for %s", humanize.Plural(s.config.Agents, "agent")))
	for deadline := time.Now().Add(s.config.Patience); ; {
		if err := s.beatPlan(ctx); err != nil && ctx.Err() == nil {
			return last, fmt.Errorf("reach the control server: %w", err)
		}
		texts, next, err := s.control.read(ctx, messages, last, pollFor)
		if ctx.Err() != nil {
			return last, context.Cause(ctx)
		}
		if err != nil {
			return last, fmt.Errorf("reach the control server: %w", err)
		}
		last = next
		for _, text := range texts {
			if err := s.join(text); err != nil {
				return last, err
			}
		}
		ready := len(s.numbers(func(one member) bool { return one.Ready }))
		switch {
		case ready == s.config.Agents:
			return last, nil
		case time.Now().After(deadline):
			return last, fmt.Errorf("%d of %s came within %s: start locktop agent --control with this control server on more machines",
				ready, humanize.Plural(s.config.Agents, "agent"), humanize.Setting(s.config.Patience))
		}
	}
}

// join handles a message before the start.
func (s *session) join(text string) error {
	var m message
	if json.Unmarshal([]byte(text), &m) != nil || m.Agent < 1 || m.Agent > len(s.members) {
		return nil // not of this program
	}
	switch m.Message {
	case messageRefused:
		return fmt.Errorf("agent %s refuses: %s", m.Name, m.Error)
	case messageReady:
		s.mu.Lock()
		one := &s.members[m.Agent-1]
		one.Ready, one.Name, one.Clock, one.heard = true, m.Name, m.Clock, time.Now()
		s.mu.Unlock()
		s.config.Note(fmt.Sprintf("agent %d of %d: %s, clock %s", m.Agent, len(s.members), m.Name, one.Offset()))
	}
	return nil
}

// order sends an order to all agents.
func (s *session) order(o order) error { return s.control.send(context.Background(), orders, o) }

// highlights collects the few events of an agent that its coordinator shows: the faults of
// its clients, and the first violation of each kind on each key since the newest fault. The
// zero value is empty. Safe for concurrent use.
type highlights struct {
	mu    sync.Mutex
	holds map[int]string     // key that a client holds
	known map[[2]string]bool // violations since the newest fault: kind and key
	news  []sentEvent        // that are not sent
}

// sentEvent is an event in a message. Unlike [loadgen.Event], it can be read again from JSON.
type sentEvent loadgen.Event

// maxHighlights is the number of events that wait to be sent. Later ones are left out.
const maxHighlights = 100

// note adds an event of the run, if it is one to show. A fault gets the key that its client
// holds.
func (h *highlights) note(e loadgen.Event) {
	switch e.Kind {
	case loadgen.Arrived, loadgen.TimedOut, loadgen.Refused, loadgen.Failed, loadgen.StageBegan:
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holds == nil {
		h.holds, h.known = make(map[int]string), make(map[[2]string]bool)
	}
	switch e.Kind {
	case loadgen.Acquired:
		h.holds[e.Client] = e.Key
		return
	case loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Abandoned:
		delete(h.holds, e.Client)
		return
	case loadgen.FaultBegan, loadgen.FaultEnded:
		if e.Fault.OnServers() {
			return // the coordinator has applied it
		}
		if e.Kind == loadgen.FaultBegan {
			e.Key = h.holds[e.Client]
			clear(h.known)
		}
	default:
		on := [2]string{string(e.Kind), e.Key}
		if h.known[on] {
			return
		}
		h.known[on] = true
	}
	if len(h.news) < maxHighlights {
		h.news = append(h.news, sentEvent(e))
	}
}

// unsent returns the events that are not sent, oldest first.
func (h *highlights) unsent() []sentEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.news)
}

// sent removes the oldest n events.
func (h *highlights) sent(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.news = slices.Delete(h.news, 0, n)
}
