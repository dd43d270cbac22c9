package loadgen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FaultKind is a way in which things go wrong.
type FaultKind string

// Faults that strike clients. Those that strike a holder wait until the client
// is one.
const (
	Crash       FaultKind = "crash"       // a holder is gone without releasing; a new client comes after For
	Freeze      FaultKind = "freeze"      // a holder gets no CPU for a while, its timers neither
	Partition   FaultKind = "cut"         // no packet of a holder arrives, nor any for it
	DropReplies FaultKind = "cut-replies" // requests arrive, answers do not
	Slow        FaultKind = "slow"        // every packet takes Delay ± Jitter longer
	Skew        FaultKind = "skew"        // a client's clock is ahead by By; for forms that go by it
	Leak        FaultKind = "forget"      // a holder never releases, and goes on renewing
	Greedy      FaultKind = "greedy"      // a client comes back at once after every release
)

// Faults that strike the servers.
const (
	Flush          FaultKind = "flush"              // all locks of the run vanish
	ScriptFlush    FaultKind = "script-flush"       // the server forgets its scripts
	ExternalDelete FaultKind = "steal"              // a stranger deletes a lock that is held
	Pause          FaultKind = "pause"              // servers answer nobody for a while, by CLIENT PAUSE
	Stop           FaultKind = "stop"               // servers do not run for a while, by SIGSTOP
	Failover       FaultKind = "failover"           // a replica takes the place of its master
	NodeDown       FaultKind = "node-down"          // a server dies, and comes back after For with what it had
	RestartEmpty   FaultKind = "node-restart-empty" // a server dies, and comes back after For with nothing
)

// FaultKinds returns all faults.
func FaultKinds() []FaultKind {
	return []FaultKind{
		Crash, Freeze, Partition, DropReplies, Slow, Skew, Leak, Greedy,
		Flush, ScriptFlush, ExternalDelete, Pause, Stop, Failover, NodeDown, RestartEmpty,
	}
}

// onNode reports whether the fault needs control of a server.
func (k FaultKind) onNode() bool { return k == NodeDown || k == RestartEmpty }

// onClients reports whether the fault strikes clients.
func (k FaultKind) onClients() bool {
	return slices.Index(FaultKinds(), k) <= slices.Index(FaultKinds(), Greedy)
}

// Fault is something that goes wrong.
type Fault struct {
	At      time.Duration // since the start of the run; ignored by [Run.Inject]
	Kind    FaultKind
	Clients int           // how many clients, taken at random; default 1
	Client  int           // this one, counted from 1, instead of any
	Node    int           // the server, counted from 1: of node-down and node-restart-empty, default 1; of pause and stop, default all; between which and the client a cut is, default all
	For     time.Duration // 0 = until the end; after a crash: no new client comes
	Delay   time.Duration // slow: how much longer a packet takes
	Jitter  time.Duration // slow: give or take
	By      time.Duration // skew: how far the clock is ahead
	Before  string        // crash, freeze: not in the middle of a hold but before this step of a historic form: EXPIRE, GET, GETSET, DEL, renew

	number int // of the scenario's, from 1; 0 = another
}

func (f Fault) withDefaults() Fault {
	if f.Kind.onClients() && f.Client == 0 {
		f.Clients = cmp.Or(f.Clients, 1)
	}
	if f.Kind.onNode() {
		f.Node = cmp.Or(f.Node, 1)
	}
	return f
}

// validate returns an error about a fault that cannot strike a lock of kind k.
func (f Fault) validate(k Kind) error {
	switch {
	case !slices.Contains(FaultKinds(), f.Kind):
		return fmt.Errorf("fault must be one of %s, not %q", list(FaultKinds()), f.Kind)
	case f.At < 0 || f.At > maxTime:
		return fmt.Errorf("at must be 0 to %s, not %s", maxTime, f.At)
	case f.For < 0 || f.For > maxTime:
		return fmt.Errorf("for must be 0 to %s, not %s", maxTime, f.For)
	case f.Clients < 0 || f.Clients > MaxClients || f.Client < 0 || f.Client > MaxClients:
		return fmt.Errorf("clients must be 1 to %d", MaxClients)
	case f.Node < 0:
		return fmt.Errorf("node must be 1 or more, not %d", f.Node)
	case f.Kind == Slow && (f.Delay <= 0 || f.Delay > maxTime || f.Jitter < 0 || f.Jitter > f.Delay):
		return fmt.Errorf("slow needs a delay above 0, and a jitter of at most the delay")
	case f.Node > 0 && !f.Kind.onNode() && !slices.Contains([]FaultKind{Pause, Stop, Partition, DropReplies}, f.Kind):
		return fmt.Errorf("node goes with node-down, node-restart-empty, pause, stop, cut and cut-replies, not with %s", f.Kind)
	case f.Node > 0 && k != Redlock && f.Node > 1:
		return fmt.Errorf("node: only a redlock has more than one; this is a %s", k)
	case (f.Kind == Pause || f.Kind == Stop) && f.For == 0:
		return fmt.Errorf("%s needs for: how long it lasts, like 2s", f.Kind)
	case f.Kind == Skew && !k.clocked():
		return fmt.Errorf("skew: clients of %s do not go by their clocks; those of classic/getset and classic/stamp-rw do", k)
	case f.Kind == Skew && (f.By == 0 || f.By.Abs() > maxTime):
		return fmt.Errorf("skew needs by: how far the clock is ahead, like 3s or -3s")
	case f.Before != "" && f.Kind != Crash && f.Kind != Freeze:
		return fmt.Errorf("before goes with crash and freeze, not with %s", f.Kind)
	case f.Before != "" && !slices.Contains(k.steps(), f.Before):
		return fmt.Errorf("before: %s has no step %q; it has: %s", k, f.Before, cmp.Or(strings.Join(k.steps(), " "), "none"))
	}
	return nil
}
