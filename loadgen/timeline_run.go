package loadgen

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/humanize"
	"locktop/loadgen/oracle"
)

// timedStep is an action at a time of a scenario.
type timedStep struct {
	at time.Duration
	do func()
}

// steps returns the actions of the scenario in order of time. Over is called after its
// duration.
func (f *fleet) steps(over func()) []timedStep {
	s := f.scenario.Load()
	var all []timedStep
	at := time.Duration(0)
	for i, stage := range s.Stages {
		all = append(all, timedStep{at, func() { f.startStage(i, stage) }})
		at += stage.For
	}
	for i, fault := range s.Faults {
		fault.number = i + 1
		all = append(all, timedStep{fault.At, func() { f.inject(fault) }})
	}
	if s.Warmup > 0 {
		all = append(all, timedStep{s.Warmup, f.warm})
	}
	if s.Duration > 0 {
		all = append(all, timedStep{s.Duration, over})
	}
	slices.SortStableFunc(all, func(a, b timedStep) int { return int(a.at - b.at) })
	return all
}

// runSteps runs the steps of the scenario until stop.
func (f *fleet) runSteps(over func()) {
	began := time.Now()
	for _, s := range f.steps(over) {
		pause(f.ctx, time.Until(began.Add(s.at)))
		if f.ctx.Err() != nil {
			return
		}
		s.do()
	}
}

// startStage sets clients and rate to those of a stage.
func (f *fleet) startStage(i int, stage Stage) {
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

// inject applies a fault, or adds it to the pending faults of clients.
func (f *fleet) inject(fault Fault) {
	f.faults.due(fault)
	switch {
	case fault.Kind.onClients():
		for _, c := range f.clients.victims(fault, f.scenario.Load().victims()) {
			c.faults.add(fault)
		}
	case fault.Kind == Pause || fault.Kind == Stop:
		f.tasks.Go(func() { f.stall(fault) })
	case fault.Kind.onNode():
		f.tasks.Go(func() { f.restartNode(fault) })
	default:
		f.tasks.Go(func() { f.applyServerFault(fault) })
	}
}

// begin and end record a fault of a client, or of a server if number is negative.
func (f *fleet) begin(fault Fault, number int) {
	f.faults.struck(fault)
	if fault.Kind.strikes() {
		f.disturbances.begin(string(fault.Kind), number, time.Now())
	}
	f.note(Event{At: time.Now(), Kind: FaultBegan, Client: number + 1, Fault: fault.Kind, Took: fault.For, Text: fault.target()})
}

func (f *fleet) end(fault Fault, number int) {
	f.disturbances.end(string(fault.Kind), number, time.Now())
	f.note(Event{At: time.Now(), Kind: FaultEnded, Client: number + 1, Fault: fault.Kind, Text: fault.target()})
}

// target names the server of a fault, or the command before which it affects a client.
func (f Fault) target() string {
	switch {
	case f.Node > 0:
		return fmt.Sprintf("node %d", f.Node)
	case f.Before != "":
		return "before " + f.Before
	}
	return ""
}

// FaultOutcome is the result of a fault of the scenario.
type FaultOutcome struct {
	Fault  Fault
	Struck int    // how often it occurred: once per affected client, or once for servers
	Why    string // reason if Struck is less than the scenario asks for, else ""
}

// String returns the outcome in one line.
func (f FaultOutcome) String() string {
	text := fmt.Sprintf("%s struck %s", YAML(f.Fault), humanize.Times(f.Struck))
	if f.Struck == 0 {
		text = YAML(f.Fault) + " never struck"
	}
	if f.Why != "" {
		text += ": " + f.Why
	}
	return text
}

// faultLog records how often the faults of the scenario occur. All methods are safe for
// concurrent use.
type faultLog struct {
	mu  sync.Mutex
	all []loggedFault
}

type loggedFault struct {
	Fault
	due    bool // its time has come
	struck int  // how often it has occurred
}

func newFaultLog(faults []Fault) *faultLog {
	l := &faultLog{}
	for _, f := range faults {
		l.all = append(l.all, loggedFault{Fault: f})
	}
	return l
}

// due records that the time of a fault has come, struck that it affects a client or a
// server. A fault from [Run.Inject] has no number and is not recorded.
func (l *faultLog) due(fault Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fault.number > 0 {
		l.all[fault.number-1].due = true
	}
}

func (l *faultLog) struck(fault Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fault.number > 0 {
		l.all[fault.number-1].struck++
	}
}

// outcomes returns the results of the faults so far.
func (l *faultLog) outcomes(clients int) []FaultOutcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []FaultOutcome
	for _, f := range l.all {
		all = append(all, FaultOutcome{f.Fault, f.struck, f.why(clients)})
	}
	return all
}

// why returns the reason if the fault occurred less often than the scenario asks for.
func (f loggedFault) why(clients int) string {
	moment := "no client came to its moment, between two attempts"
	switch {
	case f.Before != "":
		moment = "no client came to its moment, before " + f.Before
	case insideHold(f.Fault):
		moment = "no client held a lock any more"
	case !f.Kind.onClients():
		moment = "no lock was held any more"
	}
	switch {
	case f.struck >= max(f.Clients, 1):
		return ""
	case !f.due:
		return "the run ended before its time"
	case f.Client > clients || f.Clients > clients:
		return fmt.Sprintf("there were only %d clients", clients)
	}
	return moment
}

// stall pauses or stops one node, or all servers, for the duration of the fault.
func (f *fleet) stall(fault Fault) {
	f.begin(fault, oracle.Everybody)
	servers := f.janitor.servers
	if fault.Node > 0 {
		servers = servers[fault.Node-1 : fault.Node]
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), 10*time.Second)
	defer cancel()
	for i, rdb := range servers {
		var err error
		if fault.Kind == Pause {
			err = onEach(ctx, rdb, func(ctx context.Context, node redis.Cmdable) error {
				return node.ClientPause(ctx, fault.For).Err()
			})
		} else {
			err = f.servers.Power.(Stopper).Freeze(max(fault.Node, i+1))
		}
		if err != nil {
			f.recorder.complain(fmt.Errorf("%s: %w", fault.Kind, err))
		}
	}
	pause(f.ctx, fault.For)
	for i, rdb := range servers {
		var err error
		if fault.Kind == Pause { // unpause even if the run is over
			err = onEach(ctx, rdb, func(ctx context.Context, node redis.Cmdable) error { return node.ClientUnpause(ctx).Err() })
			if refused := redis.Error(nil); errors.As(err, &refused) {
				err = nil // Redis before 6.2 has no CLIENT UNPAUSE
			}
		} else {
			err = f.servers.Power.(Stopper).Continue(max(fault.Node, i+1))
		}
		if err != nil {
			f.recorder.complain(fmt.Errorf("%s: %w", fault.Kind, err))
		}
	}
	f.end(fault, oracle.Everybody)
}

// after calls heal at the end of a fault, at the latest when the fleet stops.
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

// restartNode stops a node and starts it again.
func (f *fleet) restartNode(fault Fault) {
	empty := fault.Kind == RestartEmpty
	if empty {
		f.oracle.Wipe(-1, string(fault.Kind), time.Now())
	}
	f.begin(fault, oracle.Everybody)
	if err := f.servers.Power.Down(fault.Node); err != nil {
		f.recorder.complain(fmt.Errorf("switch node %d off: %w", fault.Node, err))
	}
	length := fault.For
	if length == 0 && !empty {
		length = maxTime
	}
	pause(f.ctx, length)
	// Start the node even if the run is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), 10*time.Second)
	defer cancel()
	if err := f.servers.Power.Up(ctx, fault.Node, empty); err != nil {
		f.recorder.complain(fmt.Errorf("switch node %d on: %w", fault.Node, err))
	}
	f.end(fault, oracle.Everybody)
}

// applyServerFault deletes locks or scripts, or starts a failover.
func (f *fleet) applyServerFault(fault Fault) {
	f.begin(fault, oracle.Everybody)
	ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	defer cancel()
	var err error
	switch fault.Kind {
	case Flush:
		f.oracle.Wipe(-1, string(Flush), time.Now())
		err = f.janitor.flush(ctx)
	case ExternalDelete:
		key, held := f.oracle.Held()
		for !held && ctx.Err() == nil {
			pause(ctx, time.Millisecond)
			key, held = f.oracle.Held()
		}
		if held {
			f.oracle.Wipe(key, string(ExternalDelete), time.Now())
			err = f.janitor.steal(ctx, f.keys.names[key])
		}
	case Failover:
		f.oracle.Wipe(-1, string(Failover), time.Now())
		err = f.servers.Failover(ctx)
	case ScriptFlush:
		for _, rdb := range f.janitor.servers {
			err = rdb.ScriptFlush(ctx).Err()
		}
	}
	if err != nil {
		f.recorder.complain(fmt.Errorf("%s: %w", fault.Kind, err))
	}
	f.end(fault, oracle.Everybody)
}
