package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// Agent runs the shares of runs that coordinators plan on a control server.
type Agent struct {
	// Control is a client of the control server. The caller closes it.
	Control redis.Cmdable
	// Open connects to a target. It returns an error if this agent may not load the target.
	Open func(context.Context, Target) (on loadgen.Servers, release func(), err error)
	// Note tells the user what happens, in one line.
	Note func(string)
	// Listen returns a function that gets the events of a run, or nil. Done is called after the
	// run. Nil: there is none.
	Listen func(run string, agent int) (tell func(loadgen.Event), done func() error, err error)
	// Now is the clock of the machine.
	Now func() time.Time
}

// ErrControlGone is the error of an agent that has stopped because the control server did
// not answer for 10 s during a run.
var ErrControlGone = errors.New("the control server has not answered for 10 s")

// takeFor is how long one request waits for a ticket.
const takeFor = time.Second

// Serve takes part in runs, one after another, until ctx ends. It returns an error if this
// ends a run. With once it returns after the first run, and returns the error of this run. A
// refused plan is not a run. While no run is active, Serve waits for a control server that
// does not answer. During a run it returns [ErrControlGone].
func (a *Agent) Serve(ctx context.Context, once bool) error {
	silent := false
	for ctx.Err() == nil {
		t, found, err := a.take(ctx)
		switch {
		case ctx.Err() != nil && found:
			return a.giveBack(t)
		case ctx.Err() != nil:
			return nil
		case err != nil:
			if !silent {
				a.Note(fmt.Sprintf("the control server does not answer; trying again: %v", err))
			}
			silent = true
			sleep(ctx, time.Second)
			continue
		case silent:
			a.Note("the control server answers again")
			silent = false
		}
		if !found {
			continue
		}
		ran, err := a.serve(ctx, t)
		if errors.Is(err, ErrControlGone) || errors.Is(err, errInterrupted) || ran && once {
			return err
		}
		if err != nil {
			a.Note(err.Error())
		}
	}
	return nil
}

// take takes a ticket, if there is one.
func (a *Agent) take(ctx context.Context) (t ticket, found bool, err error) {
	soon, cancel := context.WithTimeout(ctx, takeFor+requestTime)
	defer cancel()
	popped, err := a.Control.BLPop(soon, takeFor, tickets).Result()
	if errors.Is(err, redis.Nil) {
		return t, false, nil
	}
	if err != nil {
		return t, false, err
	}
	if json.Unmarshal([]byte(popped[1]), &t) != nil {
		return t, false, nil // not of this program
	}
	return t, true, nil
}

// giveBack gives the ticket of a run that the agent does not join to the next agent.
func (a *Agent) giveBack(t ticket) error {
	text, err := json.Marshal(t)
	if err != nil {
		return err
	}
	always, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	if err := a.Control.LPush(always, tickets, text).Err(); err != nil {
		return fmt.Errorf("give the ticket back: %w", err)
	}
	return nil
}

// share is the part of an agent in a run.
type share struct {
	agent   *Agent
	control control
	ticket  ticket
	number  int
	plan    plan
	whole   loadgen.Scenario // of the whole run
	run     *loadgen.Run
	witness *witness.Witness
	behind  time.Duration // what must be added to the clock of this machine to get the control server's
	shift   time.Duration // what must be added to time.Now, by which the run goes, to get the clock of this machine

	answered time.Time             // when the control server last answered
	unsent   []loadgen.SecondShare // of snapshots that could not be sent

	highlights highlights
}

// serve takes part in a run. ran is false if the agent has not started its clients.
func (a *Agent) serve(ctx context.Context, t ticket) (ran bool, err error) {
	h := &share{agent: a, control: control{a.Control, t.Run}, ticket: t, number: t.Agent, answered: time.Now()}
	text, err := a.Control.Get(ctx, h.control.key("plan")).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil // the coordinator is gone
	}
	if ctx.Err() != nil {
		return false, a.giveBack(t)
	}
	if err != nil {
		return false, fmt.Errorf("read the plan: %w", err)
	}
	p, mine, err := parsePlan(text, t.Agent)
	if err != nil {
		return false, h.refuse(ctx, err)
	}
	h.plan = p
	h.whole, _ = loadgen.Parse([]byte(p.Scenario)) // parsePlan has read it
	servers, release, err := a.Open(ctx, p.Target)
	if err != nil {
		return false, h.refuse(ctx, err)
	}
	defer release()
	if h.run, err = loadgen.New(servers, mine); err != nil {
		return false, h.refuse(ctx, err)
	}
	defer func() { err = errors.Join(err, h.run.Close()) }()
	h.run.Join(t.Agent)
	h.run.Listen(h.highlights.note)
	if a.Listen != nil {
		tell, done, err := a.Listen(t.Run, t.Agent)
		if err != nil {
			return false, h.refuse(ctx, err)
		}
		h.run.Listen(tell)
		defer func() {
			if err := done(); err != nil {
				a.Note(err.Error())
			}
		}()
	}
	h.witness = witness.Join(a.Control, t.Run)
	h.run.Witness(h.witness)
	return h.takePart(ctx, mine)
}

// refuse tells the coordinator why the agent takes no part. An agent that is interrupted
// leaves its part to another one.
func (h *share) refuse(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return h.agent.giveBack(h.ticket)
	}
	m := message{Message: messageRefused, Agent: h.number, Name: name(), Error: why.Error()}
	if _, err := h.control.join(ctx, m); err != nil {
		return errors.Join(why, err)
	}
	return fmt.Errorf("refused a run: %w", why)
}

// name returns the name of this process in reports.
func name() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s:%d", host, os.Getpid())
}

// takePart runs the clients from the start to the stop.
func (h *share) takePart(ctx context.Context, mine loadgen.Scenario) (ran bool, err error) {
	if h.behind, err = clockBehind(ctx, h.control.rdb, h.agent.Now); err != nil {
		if ctx.Err() != nil {
			return false, h.agent.giveBack(h.ticket)
		}
		return false, fmt.Errorf("read the clock of the control server: %w", err)
	}
	h.shift = time.Until(h.agent.Now())
	ready := message{Message: messageReady, Agent: h.number, Name: name(), Clock: h.behind}
	switch planned, err := h.control.join(ctx, ready); {
	case err != nil:
		return false, fmt.Errorf("join the run: %w", err)
	case !planned:
		return false, nil
	}
	h.agent.Note(fmt.Sprintf("run %s: agent %d of %d, %s, %d clients on %s", h.control.run, h.number, h.plan.Agents, mine.Lock, mine.Clients, h.plan.Target))

	reading, stopReading := context.WithCancel(ctx)
	defer stopReading()
	news := make(chan order)
	go h.readOrders(reading, news)

	var over <-chan struct{}
	var begin <-chan time.Time
	tick := time.NewTicker(beat)
	defer tick.Stop()
	var why error
	for why == nil {
		select {
		case <-ctx.Done():
			why = errInterrupted
		case <-over:
			why = errStopped
		case <-begin:
			begin, ran = nil, true
			if err := h.run.Start(); err != nil {
				why = err
				continue
			}
			over = h.run.Done()
			tick.Reset(beat)
		case <-tick.C:
			if why = h.checkPlan(ctx); why == nil && ran {
				h.report(ctx, messageSnapshot, nil)
			}
		case o := <-news:
			switch {
			case o.Order == orderStart && !ran:
				begin = time.After(o.At.Sub(h.agent.Now().Add(h.behind)))
			case o.Order == orderStop:
				why = errStopped
				if o.Why != "" {
					h.agent.Note(fmt.Sprintf("run %s does not start: %s", h.control.run, o.Why))
				}
			case o.Order == orderLost && o.Agent == h.number:
				why = errors.New("the coordinator has not heard of this agent for 3 s and goes on without it")
			default:
				h.obey(o)
			}
		}
	}
	if errors.Is(why, errStopped) {
		why = nil
	}
	return ran, h.leave(why, ran)
}

// errInterrupted is the reason of a stop by the user of the agent.
var errInterrupted = errors.New("the agent was interrupted")

// errStopped is the reason of a stop that is not an error.
var errStopped = errors.New("stopped")

// leave stops the clients and reports for the last time.
func (h *share) leave(why error, ran bool) error {
	err := h.run.Stop()
	always, cancel := context.WithTimeout(context.Background(), 2*requestTime)
	defer cancel()
	if ran {
		h.witness.Flush(always)
	}
	if errors.Is(why, ErrControlGone) {
		return errors.Join(why, err)
	}
	if ran {
		h.report(always, messageStopped, errors.Join(why, err))
		h.agent.Note(fmt.Sprintf("run %s: %d locks acquired", h.control.run, h.run.Metrics().Acquired))
	}
	return errors.Join(why, err)
}

// obey does what an order says while the clients run.
func (h *share) obey(o order) {
	var err error
	switch o.Order {
	case orderScenario:
		var s loadgen.Scenario
		if s, err = loadgen.Parse([]byte(o.Scenario)); err == nil {
			err = h.apply(s)
		}
	case orderFault:
		if o.Fault == nil {
			return
		}
		if f, mine := h.whole.Share(*o.Fault, h.number-1, h.plan.Agents); mine {
			err = h.run.Inject(f)
		}
	case orderServerFault:
		if o.Fault != nil {
			h.run.ServerFault(o.Fault.Kind, o.Fault.Node, o.Over)
		}
	}
	if err != nil {
		h.agent.Note(err.Error())
	}
}

// apply changes the scenario of the whole run.
func (h *share) apply(s loadgen.Scenario) error {
	if !loadgen.Live(h.whole, s) {
		return errors.New("the coordinator asked for a change that needs a new run")
	}
	shares, err := s.Shares(h.plan.Agents)
	if err != nil {
		return err
	}
	h.whole = s
	return h.run.Apply(shares[h.number-1])
}

// report sends a snapshot. If it cannot be sent, the next one has its figures.
func (h *share) report(ctx context.Context, kind messageKind, why error) {
	s := h.run.Snapshot()
	s.ClockBehind = h.shift + h.behind
	s.Seconds = append(h.unsent, s.Seconds...)
	m := message{Message: kind, Agent: h.number, Snapshot: &s, Events: h.highlights.unsent()}
	if why != nil {
		m.Error = why.Error()
	}
	if h.control.send(ctx, messages, m) != nil {
		h.unsent = s.Seconds[max(0, len(s.Seconds)-loadgen.HistorySeconds):]
		return
	}
	h.unsent = nil
	h.highlights.sent(len(m.Events))
}

// readOrders reads the orders of the coordinator until ctx ends.
func (h *share) readOrders(ctx context.Context, news chan<- order) {
	last := "0"
	for ctx.Err() == nil {
		texts, next, err := h.control.read(ctx, orders, last, beat)
		if err != nil {
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		last = next
		for _, text := range texts {
			var o order
			if json.Unmarshal([]byte(text), &o) != nil {
				continue // not of this program
			}
			select {
			case news <- o:
			case <-ctx.Done():
				return
			}
		}
	}
}

// Errors of an agent without its plan.
var (
	errCoordinatorGone = errors.New("the coordinator is gone")
	errPlanLost        = errors.New("the keys of the run are gone from the control server")
)

// checkPlan returns an error when the coordinator is gone, whose plan then expires, or the
// control server. The orders outlive the plan: a control server without both has lost its data.
func (h *share) checkPlan(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	pipe := h.control.rdb.Pipeline()
	planned, ordered := pipe.Exists(soon, h.control.key("plan")), pipe.Exists(soon, h.control.key(orders))
	_, err := pipe.Exec(soon)
	switch {
	case err != nil && time.Since(h.answered) > controlGone:
		return ErrControlGone
	case err != nil:
		return nil
	case planned.Val()+ordered.Val() == 0:
		return errPlanLost
	case planned.Val() == 0:
		return errCoordinatorGone
	}
	h.answered = time.Now()
	return nil
}

// sleep waits until d is over or ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
