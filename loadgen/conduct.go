package loadgen

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// step is something that happens at a time of a scenario.
type step struct {
	at time.Duration
	do func()
}

// steps returns what happens in the scenario, in order.
func (f *fleet) steps(over func()) []step {
	s := f.scenario.Load()
	var all []step
	at := time.Duration(0)
	for i, stage := range s.Stages {
		all = append(all, step{at, func() { f.enterStage(i, stage) }})
		at += stage.For
	}
	for _, fault := range s.Faults {
		all = append(all, step{fault.At, func() { f.inject(fault) }})
	}
	if s.Duration > 0 {
		all = append(all, step{s.Duration, over})
	}
	slices.SortStableFunc(all, func(a, b step) int { return int(a.at - b.at) })
	return all
}

// conduct lets the steps of the scenario happen until the fleet is stopped.
func (f *fleet) conduct(over func()) {
	began := time.Now()
	for _, s := range f.steps(over) {
		pause(f.ctx, time.Until(began.Add(s.at)))
		if f.ctx.Err() != nil {
			return
		}
		s.do()
	}
}

// enterStage changes clients and rate to those of a stage.
func (f *fleet) enterStage(i int, stage Stage) {
	s := *f.scenario.Load()
	if stage.Clients > 0 {
		s.Clients = stage.Clients
	}
	if stage.Rate > 0 {
		s.Rate = stage.Rate
	}
	f.note(Event{At: time.Now(), Kind: StageBegan, Text: fmt.Sprintf("stage %d: %d clients", i+1, s.Clients)})
	if err := f.apply(s); err != nil {
		f.recorder.complain(err)
	}
}

// inject lets a fault strike, or wait for its moment.
func (f *fleet) inject(fault Fault) {
	switch {
	case fault.Kind.onClients():
		for _, c := range f.victimsOf(fault) {
			c.plight.add(fault)
		}
	case fault.Kind.onNode():
		f.tasks.Go(func() { f.powerCut(fault) })
	default:
		f.tasks.Go(func() { f.strikeServer(fault) })
	}
}

// begin and end note a fault that strikes a client, or a server if the number
// is negative.
func (f *fleet) begin(fault Fault, number int) {
	if fault.Kind.strikes() {
		f.disturbances.begin(string(fault.Kind), number, time.Now())
	}
	f.note(Event{At: time.Now(), Kind: Struck, Client: number + 1, Fault: fault.Kind, Took: fault.For, Text: fault.subject()})
}

func (f *fleet) end(fault Fault, number int) {
	f.disturbances.end(string(fault.Kind), number, time.Now())
	f.note(Event{At: time.Now(), Kind: Healed, Client: number + 1, Fault: fault.Kind, Text: fault.subject()})
}

// subject names the server that a fault strikes.
func (f Fault) subject() string {
	if f.Kind.onNode() {
		return fmt.Sprintf("node %d", f.Node)
	}
	return ""
}

// after heals a fault when its time is over, at the latest when the fleet stops.
func (f *fleet) after(fault Fault, number int, heal func()) {
	f.tasks.Go(func() {
		length := fault.For
		if length == 0 {
			length = maxTime
		}
		pause(f.ctx, length)
		heal()
		f.end(fault, number)
	})
}

// powerCut switches a node off and on again.
func (f *fleet) powerCut(fault Fault) {
	empty := fault.Kind == RestartEmpty
	if empty {
		f.oracle.wipe(-1, fault.Kind, time.Now())
	}
	f.begin(fault, -1)
	if err := f.servers.Power.Down(fault.Node); err != nil {
		f.recorder.complain(fmt.Errorf("switch node %d off: %w", fault.Node, err))
	}
	length := fault.For
	if length == 0 && !empty {
		length = maxTime
	}
	pause(f.ctx, length)
	// A run that is over leaves no server behind that is down.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), 10*time.Second)
	defer cancel()
	if err := f.servers.Power.Up(ctx, fault.Node, empty); err != nil {
		f.recorder.complain(fmt.Errorf("switch node %d on: %w", fault.Node, err))
	}
	f.end(fault, -1)
}

// strikeServer deletes what the fault says.
func (f *fleet) strikeServer(fault Fault) {
	f.begin(fault, -1)
	ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	defer cancel()
	var err error
	switch fault.Kind {
	case Flush:
		f.oracle.wipe(-1, Flush, time.Now())
		err = f.janitor.deleteAll(ctx)
	case Steal:
		key, held := f.oracle.held()
		for !held && ctx.Err() == nil {
			pause(ctx, time.Millisecond)
			key, held = f.oracle.held()
		}
		if held {
			f.oracle.wipe(key, Steal, time.Now())
			err = f.janitor.delete(ctx, f.keys[key:key+1])
		}
	case ScriptFlush:
		for _, rdb := range f.janitor.servers {
			err = rdb.ScriptFlush(ctx).Err()
		}
	}
	if err != nil {
		f.recorder.complain(fmt.Errorf("%s: %w", fault.Kind, err))
	}
	f.end(fault, -1)
}
