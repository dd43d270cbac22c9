package loadgen

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FaultKind is a kind of fault.
type FaultKind string

// Faults of clients. A fault of a holder waits until the client holds a lock.
const (
	Crash       FaultKind = "crash"       // a holder ends without a release; a new client replaces it after For
	Freeze      FaultKind = "freeze"      // a holder and its timers do not run for a while
	Partition   FaultKind = "cut"         // packets from and to a holder are held back
	DropReplies FaultKind = "cut-replies" // requests arrive, replies are held back
	Slow        FaultKind = "slow"        // each packet takes Delay ± Jitter longer
	Skew        FaultKind = "skew"        // a client's clock is ahead by By; for kinds that use it
	Leak        FaultKind = "forget"      // a holder never releases, but renews
	Greedy      FaultKind = "greedy"      // a client does not think between two attempts
)

// Faults of servers.
const (
	Flush          FaultKind = "flush"              // deletes all locks of the run
	ScriptFlush    FaultKind = "script-flush"       // SCRIPT FLUSH
	ExternalDelete FaultKind = "steal"              // deletes a held lock, as another program might
	Pause          FaultKind = "pause"              // CLIENT PAUSE of servers
	Stop           FaultKind = "stop"               // SIGSTOP of servers
	Failover       FaultKind = "failover"           // a replica replaces its master
	NodeDown       FaultKind = "node-down"          // a server crashes, and restarts after For with its data
	RestartEmpty   FaultKind = "node-restart-empty" // a server crashes, and restarts after For without its data
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

// onClients reports whether the fault affects clients.
func (k FaultKind) onClients() bool {
	return slices.Index(FaultKinds(), k) <= slices.Index(FaultKinds(), Greedy)
}

// Fault is something that the generator breaks on purpose.
type Fault struct {
	At      time.Duration `yaml:"at,always"` // since the start of the run; ignored by [Run.Inject]
	Kind    FaultKind     `yaml:"fault"`
	Clients int           `yaml:"clients"`     // number of random clients; default 1
	Client  int           `yaml:"client"`      // this client, counted from 1, instead of random ones
	Node    int           `yaml:"node"`        // server, counted from 1: node-down and node-restart-empty: default 1; pause and stop: default all; cut and cut-replies: the server at the other end, default all
	For     time.Duration `yaml:"for"`         // duration; 0 = until the end; crash: time until a new client replaces the crashed one, 0 = never
	Delay   time.Duration `yaml:"delay"`       // slow: additional time per packet
	Jitter  time.Duration `yaml:"jitter"`      // slow: variation of Delay in both directions
	By      time.Duration `yaml:"by"`          // skew: how far the clock is ahead
	Before  string        `yaml:"before,word"` // crash, freeze: before this step of a historic form instead of inside a hold: EXPIRE, GET, GETSET, DEL, renew

	number int // number in the scenario, from 1; 0 = not in the scenario
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

// validate returns an error if the fault is invalid for a lock of kind k.
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
