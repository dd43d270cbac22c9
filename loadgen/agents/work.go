package agents

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen"
)

// work reads the messages of the agents until all have stopped or are lost.
func (s *session) work(last string) {
	ctx := context.Background()
	answered, beaten, told := time.Now(), time.Now(), false
	for len(s.numbers(member.runs)) > 0 {
		select {
		case <-s.asked.Done():
			if !told {
				told = s.order(order{Order: orderStop}) == nil
			}
		default:
		}
		if time.Since(beaten) > beat && s.beatPlan(ctx) == nil {
			beaten = time.Now()
		}
		asked := time.Now()
		texts, next, err := s.control.read(ctx, messages, last, pollFor)
		if err != nil {
			if time.Since(answered) > controlGone+lostAfter {
				s.giveUp(fmt.Sprintf("The control server has not answered for %s: %v.", humanize.Setting(controlGone), err))
				break
			}
			time.Sleep(pollFor)
			continue
		}
		answered, last = time.Now(), next
		for _, text := range texts {
			s.receive(text)
		}
		if len(texts) > 0 { // if the server does not answer, the next call deletes them, too
			soon, cancel := context.WithTimeout(ctx, requestTime)
			_ = s.control.rdb.XTrimMinID(soon, s.control.key(messages), last).Err()
			cancel()
		}
		if time.Now().After(s.began) {
			s.age(min(time.Since(asked), 2*pollFor))
		}
	}
	s.finish(controlGone)
}

// runs reports whether the clients of the member have not ended, as far as is known.
func (one member) runs() bool { return !one.Stopped && !one.Lost }

// numbers returns the numbers of the agents of which something is true.
func (s *session) numbers(is func(member) bool) (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, one := range s.members {
		if is(one) {
			all = append(all, i+1)
		}
	}
	return all
}

// receive handles a message of an agent that runs.
func (s *session) receive(text string) {
	var m message
	if json.Unmarshal([]byte(text), &m) != nil || m.Agent < 1 || m.Agent > len(s.members) || m.Snapshot == nil {
		return // not of this program, or from before the start
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := &s.members[m.Agent-1]
	if one.Lost {
		return // it is counted as crashed
	}
	if err := s.merger.Add(m.Agent, *m.Snapshot); err != nil {
		s.miss(fmt.Sprintf("A message of agent %d could not be read: %v.", m.Agent, err))
	}
	one.silent, one.heard = 0, time.Now()
	for _, e := range m.Events[:min(len(m.Events), maxHighlights)] {
		e.At = e.At.Add(m.Snapshot.ClockBehind)
		s.note(loadgen.Event(e))
	}
	if m.Message == messageStopped {
		one.Stopped = true
		if m.Error != "" {
			s.miss(fmt.Sprintf("Agent %d (%s) stopped at %s: %s.", m.Agent, one.Name, s.clock(), strings.TrimSuffix(m.Error, ".")))
		}
	}
}

// clock returns the time since the start, like 00:41.
func (s *session) clock() string {
	d := max(time.Since(s.began), 0)
	return fmt.Sprintf("%02d:%02d", int(d.Minutes()), int(d.Seconds())%60)
}

// age adds d to the silence of all agents, and finds those that are lost.
func (s *session) age(d time.Duration) {
	s.mu.Lock()
	var lost []int
	for i := range s.members {
		one := &s.members[i]
		if !one.runs() {
			continue
		}
		if one.silent += d; one.silent > lostAfter {
			one.Lost = true
			lost = append(lost, i+1)
			s.merger.Lost(i + 1)
			s.miss(fmt.Sprintf("The run is incomplete: agent %d (%s) was lost at %s.", i+1, one.Name, s.clock()))
		}
	}
	s.mu.Unlock()
	for _, number := range lost {
		_ = s.order(order{Order: orderLost, Agent: number}) // it also stops when the plan is gone
	}
}

// giveUp ends the run without the agents: those that have not stopped are lost.
func (s *session) giveUp(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.members {
		if one := &s.members[i]; one.runs() {
			one.Lost = true
			s.merger.Lost(i + 1)
		}
	}
	s.miss(why)
}

// strikeFaults applies the faults of servers of the scenario.
func (s *session) strikeFaults() {
	var all []int
	for i, f := range s.scenario.Faults {
		if f.Kind.OnServers() {
			all = append(all, i)
		}
	}
	slices.SortStableFunc(all, func(a, b int) int { return cmp.Compare(s.scenario.Faults[a].At, s.scenario.Faults[b].At) })
	for _, i := range all {
		f := s.scenario.Faults[i]
		if sleep(s.asked, time.Until(s.began.Add(f.At-announce))); s.asked.Err() != nil {
			return
		}
		if err := s.strike(f); err != nil {
			s.config.Note(err.Error())
			continue
		}
		s.mu.Lock()
		s.struck[i]++
		s.mu.Unlock()
	}
}

// announce is the time between the order that tells agents of a fault of servers and the
// fault.
const announce = 300 * time.Millisecond

// strike tells the agents of a fault of servers, and applies it.
func (s *session) strike(f loadgen.Fault) error {
	if err := s.order(order{Order: orderServerFault, Fault: &f}); err != nil {
		return fmt.Errorf("inject %s: tell the agents: %w", f.Kind, err)
	}
	time.Sleep(announce)
	if err := s.keeper.Inject(f); err != nil {
		return errors.Join(err, s.order(order{Order: orderServerFault, Fault: &f, Over: true}))
	}
	return nil
}

// onServerFault notes an event of the keeper, and tells the agents of the end of a fault.
func (s *session) onServerFault(e loadgen.Event) {
	if e.Kind != loadgen.FaultBegan && e.Kind != loadgen.FaultEnded {
		return
	}
	s.mu.Lock()
	e.At = e.At.Add(s.behind)
	s.note(e)
	s.mu.Unlock()
	if e.Kind == loadgen.FaultEnded {
		s.faults.Go(func() {
			_ = s.order(order{Order: orderServerFault, Fault: &loadgen.Fault{Kind: e.Fault, Node: e.Node}, Over: true})
		})
	}
}

// maxEvents is the number of events that a session keeps.
const maxEvents = 1000

// note adds an event. The caller holds s.mu.
func (s *session) note(e loadgen.Event) {
	s.noted++
	e.Seq = s.noted
	s.events = append(s.events, e)
	s.events = s.events[max(0, len(s.events)-maxEvents):]
}

// miss adds a sentence on why the figures are incomplete. The caller holds s.mu.
func (s *session) miss(why string) {
	s.incomplete = append(s.incomplete, why)
	s.note(loadgen.Event{At: time.Now().Add(s.behind), Kind: loadgen.Incomplete, Text: why})
	s.config.Note(why)
}

// inject applies a fault now.
func (s *session) inject(f loadgen.Fault) error {
	if f.Kind.OnServers() {
		return s.strike(f)
	}
	running := s.numbers(member.runs)
	if f.Agent == 0 && f.Client == 0 && f.Clients <= 1 { // a random one, or one that does not run
		f.Agent = append(running, 1)[mathrand.IntN(max(len(running), 1))]
	}
	if f.Agent > 0 && !slices.Contains(running, f.Agent) {
		return fmt.Errorf("inject %s: agent %d does not run any more", f.Kind, f.Agent)
	}
	if err := s.order(order{Order: orderFault, Fault: &f}); err != nil {
		return fmt.Errorf("inject %s: tell the agents: %w", f.Kind, err)
	}
	return nil
}

// finish deletes the keys of the run, waits so long for the witness, and ends the session.
func (s *session) finish(within time.Duration) {
	s.ask()
	if s.keeper != nil {
		s.failed = s.keeper.Close()
	}
	s.faults.Wait()
	if s.witness != nil {
		ctx, cancel := context.WithTimeout(context.Background(), within)
		_ = s.witness.Close(ctx) // the results have the error
		cancel()
	}
	s.forget()
	s.end()
}

// forget deletes what the run has on the control server.
func (s *session) forget() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	pipe := s.control.rdb.Pipeline()
	for _, what := range []string{"plan", orders, messages} {
		pipe.Del(ctx, s.control.key(what))
	}
	_, _ = pipe.Exec(ctx) // the keys have a TTL
	s.withdraw()
}

// withdraw deletes the tickets that no agent has taken.
func (s *session) withdraw() {
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	pipe := s.control.rdb.Pipeline()
	for _, t := range s.tickets() {
		pipe.LRem(ctx, tickets, 1, t)
	}
	_, _ = pipe.Exec(ctx) // without its plan, a ticket has no effect
}

// abandon ends a session that has not started. It may have no keeper and no witness yet.
func (s *session) abandon(why error) {
	s.withdraw() // before the order, after which agents take the next ticket
	_ = s.order(order{Order: orderStop, Why: why.Error()})
	s.finish(requestTime)
}

// metrics returns the sums of all agents.
func (s *session) metrics() loadgen.Metrics {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.merger.Metrics()
	m.Running = s.over.Err() == nil
	if len(s.members) > 1 {
		m.Oracles = len(s.members)
	}
	m.Faults = s.outcomes()
	return m
}

// outcomes returns the results of the faults of the scenario.
func (s *session) outcomes() []loadgen.FaultOutcome {
	next := make([]int, len(s.members)) // outcome of each agent
	var all []loadgen.FaultOutcome
	for i, f := range s.scenario.Faults {
		sum := loadgen.FaultOutcome{Fault: f, Struck: s.struck[i]}
		if f.Kind.OnServers() && sum.Struck == 0 {
			sum.Why = "the run ended before its time"
		}
		for number := range s.members {
			if _, takesPart := s.scenario.Share(f, number, len(s.members)); !takesPart {
				continue
			}
			outcomes := s.merger.Of(number + 1).Faults
			if next[number] < len(outcomes) {
				one := outcomes[next[number]]
				sum.Struck += one.Struck
				if one.Why != "" {
					sum.Why = fmt.Sprintf("agent %d: %s", number+1, one.Why)
				}
			}
			next[number]++
		}
		all = append(all, sum)
	}
	return all
}

func (s *session) states() []loadgen.AgentState {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]loadgen.AgentState, len(s.members))
	for i, one := range s.members {
		all[i] = one.AgentState
		all[i].Number, all[i].Clients = i+1, s.scenario.Part(i, len(s.members))
		all[i].Seen, all[i].Metrics = time.Since(one.heard), s.merger.Of(i+1)
	}
	return all
}
