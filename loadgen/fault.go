package loadgen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
	"locktop/loadgen/oracle"
)

// FaultKind is a kind of fault.
type FaultKind string

// Faults of clients. A fault of a holder waits until the client holds a lock.
const (
	Crash                 = FaultKind(oracle.Crash)      // a holder ends without a release; a new client replaces it after For
	Freeze                = FaultKind(oracle.Freeze)     // a holder and its timers do not run for a while
	Partition             = FaultKind(oracle.Cut)        // packets from and to a holder are held back
	DropReplies           = FaultKind(oracle.CutReplies) // requests arrive, replies are held back
	Slow                  = FaultKind(oracle.Slow)       // each packet takes Delay ± Jitter longer
	Skew        FaultKind = "skew"                       // a client's clock is ahead by By; for kinds that use it
	Leak        FaultKind = "forget"                     // a holder does not release, but renews; with For, its release comes in its next hold that begins after For
	Greedy      FaultKind = "greedy"                     // a client does not think between two attempts
)

// Faults of servers.
const (
	Flush                    = FaultKind(oracle.Flush)        // deletes all locks of the run
	ScriptFlush    FaultKind = "script-flush"                 // SCRIPT FLUSH
	ExternalDelete           = FaultKind(oracle.Steal)        // deletes a held lock, as another program might
	Pause                    = FaultKind(oracle.Pause)        // CLIENT PAUSE of servers
	Stop                     = FaultKind(oracle.Stop)         // SIGSTOP of servers
	Failover                 = FaultKind(oracle.Failover)     // a replica replaces its master
	NodeDown                 = FaultKind(oracle.NodeDown)     // a server crashes, and restarts after For with its data
	RestartEmpty             = FaultKind(oracle.RestartEmpty) // a server crashes, and restarts after For without its data
)

// FaultKinds returns all kinds of faults, those of clients first.
func FaultKinds() []FaultKind {
	return []FaultKind{
		Crash, Freeze, Partition, DropReplies, Slow, Skew, Leak, Greedy,
		Flush, ScriptFlush, ExternalDelete, Pause, Stop, Failover, NodeDown, RestartEmpty,
	}
}

// onNode reports whether the fault needs [Servers.Power].
func (k FaultKind) onNode() bool { return k == NodeDown || k == RestartEmpty }

// OnServers reports whether the fault affects servers, and not clients.
func (k FaultKind) OnServers() bool {
	return slices.Index(FaultKinds(), k) > slices.Index(FaultKinds(), Greedy)
}

// Fault is something that the generator breaks on purpose.
type Fault struct {
	At      time.Duration `yaml:"at,always"` // since the start of the run; ignored by [Run.Inject]
	Kind    FaultKind     `yaml:"fault"`
	Clients int           `yaml:"clients"`     // number of random clients; default 1
	Client  int           `yaml:"client"`      // this client, counted from 1, instead of random ones
	Agent   int           `yaml:"agent"`       // the clients of this agent, counted from 1; 0 = of all
	Node    int           `yaml:"node"`        // server, counted from 1: node-down and node-restart-empty: default 1; pause and stop: default all; cut and cut-replies: the server at the other end, default all
	For     time.Duration `yaml:"for"`         // duration; 0 = until the end; crash: time until a new client replaces the crashed one, 0 = never
	Delay   time.Duration `yaml:"delay"`       // slow: additional time per packet
	Jitter  time.Duration `yaml:"jitter"`      // slow: variation of Delay in both directions
	By      time.Duration `yaml:"by"`          // skew: how far the clock is ahead
	Before  string        `yaml:"before,word"` // crash, freeze: before this step of a historic form instead of inside a hold: EXPIRE, GET, GETSET, DEL, renew; before any command of a client process

	number int // number in the scenario, from 1; 0 = not in the scenario
}

func (f Fault) withDefaults() Fault {
	if !f.Kind.OnServers() && f.Client == 0 {
		f.Clients = cmp.Or(f.Clients, 1)
	}
	if f.Kind.onNode() {
		f.Node = cmp.Or(f.Node, 1)
	}
	return f
}

// validate returns an error if the fault is invalid for a lock of kind k.
func (f Fault) validate(k Kind) error {
	switch {
	case !slices.Contains(FaultKinds(), f.Kind):
		return fmt.Errorf("fault must be one of %s, not %q", list(FaultKinds()), f.Kind)
	case f.At < 0 || f.At > maxTime:
		return fmt.Errorf("at must be 0 to %s, not %s", maxTime, f.At)
	case f.For < 0 || f.For > maxTime:
		return fmt.Errorf("for must be 0 to %s, not %s", maxTime, f.For)
	case f.Clients < 0 || f.Clients > MaxClients:
		return fmt.Errorf("clients must be 1 to %d, not %d", MaxClients, f.Clients)
	case f.Client < 0 || f.Client > (MaxAgents+1)*MaxClients:
		return fmt.Errorf("client must be the number of a client, not %d", f.Client)
	case f.Agent < 0 || f.Agent > MaxAgents:
		return fmt.Errorf("agent must be 1 to %d, not %d", MaxAgents, f.Agent)
	case f.Agent > 0 && f.Kind.OnServers():
		return fmt.Errorf("agent goes with the faults of clients, not with %s", f.Kind)
	case f.Node < 0:
		return fmt.Errorf("node must be 1 or more, not %d", f.Node)
	case f.Kind == Slow && (f.Delay <= 0 || f.Delay > maxTime || f.Jitter < 0 || f.Jitter > f.Delay):
		return fmt.Errorf("slow needs a delay above 0, and a jitter of at most the delay")
	case f.Node > 0 && f.Before != "" && k != Exec:
		return fmt.Errorf("node: with before it needs a client process (exec), and this is a %s", k)
	case f.Node > 0 && f.Before == "" && !f.Kind.onNode() && !slices.Contains([]FaultKind{Pause, Stop, Partition, DropReplies}, f.Kind):
		return fmt.Errorf("node goes with node-down, node-restart-empty, pause, stop, cut, cut-replies and before, not with %s", f.Kind)
	case f.Node > 1 && !k.nodes():
		return fmt.Errorf("node: only a quorum has more than one (redlock, classic/quorum-semaphore); this is a %s", k)
	case (f.Kind == Pause || f.Kind == Stop) && f.For == 0:
		return fmt.Errorf("%s needs for: how long it lasts, like 2s", f.Kind)
	case f.Kind == Skew && !k.clocked() && k != Exec:
		return fmt.Errorf("skew: clients of %s do not go by their clocks; those of classic/getset, classic/stamp-rw and classic/quorum-semaphore do", k)
	case f.Kind == Skew && (f.By == 0 || f.By.Abs() > maxTime):
		return fmt.Errorf("skew needs by: how far the clock is ahead, like 3s or -3s")
	case f.Before != "" && f.Kind != Crash && f.Kind != Freeze:
		return fmt.Errorf("before goes with crash and freeze, not with %s", f.Kind)
	case f.Before != "" && k == Exec && !commandName.MatchString(f.Before):
		return fmt.Errorf("before: %q is not the name of a Redis command, like DEL or EVALSHA", f.Before)
	case f.Before != "" && k != Exec && !slices.Contains(k.steps(), f.Before):
		return fmt.Errorf("before: %s has no step %q; it has: %s", k, f.Before, cmp.Or(strings.Join(k.steps(), " "), "none"))
	}
	return nil
}

// inject applies a fault, or adds it to the pending faults of clients.
func (f *fleet) inject(fault Fault) {
	if why := f.unsupported(fault); why != "" {
		f.faults.change(fault, func(l *loggedFault) { l.refused = why })
		return
	}
	f.faults.change(fault, func(l *loggedFault) { l.due = true })
	switch {
	case !fault.Kind.OnServers():
		s := f.scenario.Load()
		prepared := map[bool]int{true: MaxClients, false: s.victims()}[s.Lock.Kind == Exec]
		for _, c := range f.clients.victims(fault, prepared, func(c *client) bool { return f.recorder.inside(c.number) }) {
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
	f.recorder.update(func(*Metrics) { f.recorder.count(time.Now(), func(now *Second) { now.Faults++ }) })
	f.faults.change(fault, func(l *loggedFault) { l.occurred++ })
	if t, costly := f.trouble(fault, number); costly {
		f.oracle.TroubleBegan(t)
	}
	if number < 0 && fault.costly(f.scenario.Load().Lock) {
		f.disturbances.faulted(1, time.Now())
	}
	f.events.note(Event{At: time.Now(), Kind: FaultBegan, Client: number + 1, Fault: fault.Kind, Node: fault.Node, Took: fault.For, Text: fault.target()})
}

func (f *fleet) end(fault Fault, number int) {
	if t, costly := f.trouble(fault, number); costly {
		f.oracle.TroubleEnded(t.Cause, t.Client, t.Key, time.Now())
	}
	if number < 0 && fault.costly(f.scenario.Load().Lock) {
		f.disturbances.faulted(-1, time.Now())
	}
	f.events.note(Event{At: time.Now(), Kind: FaultEnded, Client: number + 1, Fault: fault.Kind, Node: fault.Node, Text: fault.target()})
}

// trouble returns what a fault of a client, or of servers if number is negative, may cost, if
// it may cost something. What flush and steal cost, and when, deleteKeys knows, unless the
// keeper runs it.
func (f *fleet) trouble(fault Fault, number int) (t oracle.Trouble, costly bool) {
	t = oracle.Trouble{Cause: oracle.Cause(fault.Kind), Client: number, Key: oracle.Everybody, Server: fault.Node, From: time.Now()}
	deletes := fault.Kind == Flush || fault.Kind == ExternalDelete
	return t, fault.costly(f.scenario.Load().Lock) && (f.role.agent > 0 || !deletes)
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

// String describes the fault in words, like "freeze of 3 clients at 40 s, for 12 s".
func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	switch f = f.withDefaults(); {
	case f.Client > 0:
		fmt.Fprintf(&b, " of %s", oracle.ClientLabel(f.Client))
	case f.Clients == 1:
		b.WriteString(" of one client")
	case f.Clients > 1:
		fmt.Fprintf(&b, " of %s", humanize.Plural(f.Clients, "client"))
	}
	if f.Agent > 0 {
		fmt.Fprintf(&b, " of agent %d", f.Agent)
	}
	switch {
	case f.Node > 0 && !f.Kind.OnServers():
		fmt.Fprintf(&b, " from server %d", f.Node)
	case f.Node > 0:
		fmt.Fprintf(&b, " of server %d", f.Node)
	case f.Kind == Pause || f.Kind == Stop:
		b.WriteString(" of all servers")
	}
	if f.Before != "" {
		fmt.Fprintf(&b, " before %s", f.Before)
	}
	if f.At > 0 {
		fmt.Fprintf(&b, " at %s", humanize.Setting(f.At))
	} else {
		b.WriteString(" at the start")
	}
	if f.Delay > 0 {
		fmt.Fprintf(&b, ", %s ± %s per packet", humanize.Setting(f.Delay), humanize.Setting(f.Jitter))
	}
	if f.By > 0 {
		fmt.Fprintf(&b, ", its clock %s ahead", humanize.Setting(f.By))
	} else if f.By < 0 {
		fmt.Fprintf(&b, ", its clock %s behind", humanize.Setting(-f.By))
	}
	switch {
	case f.For > 0 && f.Kind == Crash:
		fmt.Fprintf(&b, ", replaced after %s", humanize.Setting(f.For))
	case f.For > 0:
		fmt.Fprintf(&b, ", for %s", humanize.Setting(f.For))
	}
	return b.String()
}

// String returns the outcome in one line.
func (f FaultOutcome) String() string {
	text := fmt.Sprintf("%s; struck %s", f.Fault, humanize.Times(f.Struck))
	if f.Struck == 0 {
		text = f.Fault.String() + "; never struck"
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
	due      bool   // its time has come
	refused  string // why it does not strike, apart from the client's moment
	occurred int    // how often it has occurred
}

func newFaultLog(faults []Fault) *faultLog {
	l := &faultLog{}
	for _, f := range faults {
		l.all = append(l.all, loggedFault{Fault: f})
	}
	return l
}

// change changes what is known of a fault. A fault from [Run.Inject] has no number and is not
// recorded.
func (l *faultLog) change(fault Fault, change func(*loggedFault)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fault.number > 0 {
		change(&l.all[fault.number-1])
	}
}

// outcomes returns the results of the faults so far.
func (l *faultLog) outcomes(clients int) []FaultOutcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []FaultOutcome
	for _, f := range l.all {
		all = append(all, FaultOutcome{f.Fault, f.occurred, f.why(clients)})
	}
	return all
}

// why returns the reason if the fault occurred less often than the scenario asks for.
func (f loggedFault) why(clients int) string {
	moment := "no client came to its moment, between two attempts"
	switch {
	case f.Before != "":
		moment = "no client came to its moment, before " + f.Before
	case f.Waits():
		moment = "no client held a lock any more"
	case f.Kind.OnServers():
		moment = "no lock was held any more"
	}
	switch {
	case f.occurred >= max(f.Clients, 1):
		return ""
	case f.refused != "":
		return f.refused
	case !f.due:
		return "the run ended before its time"
	case f.Client%MaxClients > clients || f.Clients > clients:
		return fmt.Sprintf("there were only %d clients", clients)
	}
	return moment
}

// disturb applies a fault of servers for a time, and heals it, even if the run is over.
func (f *fleet) disturb(fault Fault, length time.Duration, apply, heal func(context.Context) error) {
	bounded := func(do func(context.Context) error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), 10*time.Second)
		defer cancel()
		f.setError(fault, do(ctx))
	}
	f.begin(fault, oracle.Everybody)
	bounded(apply)
	pause(f.ctx, length)
	bounded(heal)
	f.end(fault, oracle.Everybody)
}

// stall pauses or stops one node, or all servers, for the duration of the fault.
func (f *fleet) stall(fault Fault) {
	servers := f.janitor.servers
	if fault.Node > 0 {
		servers = servers[fault.Node-1 : fault.Node]
	}
	each := func(command func(context.Context, redis.Cmdable) error, signal func(NodeController, int) error) func(context.Context) error {
		return func(ctx context.Context) (failed error) {
			for i, rdb := range servers {
				if fault.Kind == Pause {
					failed = cmp.Or(failed, onEach(ctx, rdb, command))
				} else {
					failed = cmp.Or(failed, signal(f.servers.Power, max(fault.Node, i+1)))
				}
			}
			return failed
		}
	}
	f.disturb(fault, fault.For, each(func(ctx context.Context, node redis.Cmdable) error {
		return node.ClientPause(ctx, fault.For).Err()
	}, NodeController.Freeze), each(func(ctx context.Context, node redis.Cmdable) error {
		err := node.ClientUnpause(ctx).Err()
		if refused := redis.Error(nil); errors.As(err, &refused) {
			return nil // Redis before 6.2 has no CLIENT UNPAUSE
		}
		return err
	}, NodeController.Continue))
}

// setError records an error of a server fault, if err is not nil.
func (f *fleet) setError(fault Fault, err error) {
	if err != nil {
		f.recorder.setError(fmt.Errorf("%s: %w", fault.Kind, err))
	}
}

// after calls heal at the end of a fault, at the latest when the fleet stops.
func (f *fleet) after(fault Fault, number int, heal func()) {
	f.tasks.Go(func() {
		pause(f.ctx, cmp.Or(fault.For, maxTime))
		heal()
		f.end(fault, number)
	})
}

// restartNode stops a node and starts it again.
func (f *fleet) restartNode(fault Fault) {
	empty, length := fault.Kind == RestartEmpty, fault.For
	if empty {
		defer f.witnessLoss(f.ctx)()
	} else {
		length = cmp.Or(length, maxTime)
	}
	f.disturb(fault, length, func(context.Context) error { return f.servers.Power.Down(fault.Node) },
		func(ctx context.Context) error { return f.servers.Power.Up(ctx, fault.Node, empty) })
}

// deleteKeys applies a fault that deletes a key, or all keys if key is oracle.Everybody. If
// there was no key to delete, the fault has not struck, and excuses nothing.
func (f *fleet) deleteKeys(key int, fault Fault, deleteThem func() (int64, error)) error {
	cause := oracle.Cause(fault.Kind)
	f.oracle.TroubleBegan(oracle.Trouble{Cause: cause, Client: oracle.Everybody, Key: key, From: time.Now()})
	deleted, err := deleteThem()
	if deleted == 0 && err == nil {
		f.oracle.TroubleUndone(cause, oracle.Everybody, key)
		f.faults.change(fault, func(l *loggedFault) {
			l.occurred--
			l.refused = "no key was deleted: the lock was free, or its library gives its key another name"
		})
		return nil
	}
	f.oracle.TroubleEnded(cause, oracle.Everybody, key, time.Now())
	return err
}

// witnessLoss tells the witness that a fault that deletes locks is about to begin, and
// returns a function that tells it of the end. The witness hears of the end one TTL later: a
// client that acquired a lock before the fault may enter it on the witness until its lease
// is over.
func (f *fleet) witnessLoss(ctx context.Context) (ended func()) {
	end := f.witness.LossBegan(ctx)
	return func() {
		f.tasks.Go(func() {
			pause(f.ctx, f.scenario.Load().Lock.TTL)
			if f.ctx.Err() == nil { // otherwise the last clients may still enter
				end()
			}
		})
	}
}

// applyServerFault deletes locks or scripts, or starts a failover.
func (f *fleet) applyServerFault(fault Fault) {
	f.begin(fault, oracle.Everybody)
	ctx, cancel := context.WithTimeout(f.ctx, 5*time.Second)
	defer cancel()
	if oracle.Cause(fault.Kind).Deletes() {
		defer f.witnessLoss(ctx)()
	}
	var err error
	switch fault.Kind {
	case Flush:
		err = f.deleteKeys(oracle.Everybody, fault, func() (int64, error) { return f.janitor.flush(ctx) })
	case ExternalDelete:
		if key, held := f.heldKey(ctx); held {
			err = f.deleteKeys(key, fault, func() (int64, error) { return f.janitor.deleteLock(ctx, f.keys.names[key]) })
		}
	case Failover:
		err = f.servers.Failover(ctx)
	case ScriptFlush:
		for _, rdb := range f.janitor.servers {
			err = errors.Join(err, rdb.ScriptFlush(ctx).Err())
		}
	}
	f.setError(fault, err)
	f.end(fault, oracle.Everybody)
}
