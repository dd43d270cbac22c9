package loadgen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/loadgen/oracle"
)

// pipedSet is a set of servers in the bubble of a test. Each has a network of its own, which
// switches it off.
type pipedSet struct {
	NodeController // nil: nothing freezes one
	links          []*netfault.Network
	direct         []*redis.Client // past the networks
	on             Servers
}

func newPipedSet(t testing.TB, n int) *pipedSet {
	p := &pipedSet{}
	for i := range n {
		s := server.NewPiped()
		t.Cleanup(s.Close)
		link := netfault.New(s.Dial)
		p.links = append(p.links, link)
		p.direct = append(p.direct, piping(t, s))
		p.on.Nodes = append(p.on.Nodes, closing(t, redis.NewClient(&redis.Options{Addr: fmt.Sprintf("127.0.0.1:%d", i+1), Dialer: link.Dial, DialerRetries: 1})))
	}
	p.on.Redis, p.on.Power = p.on.Nodes[0], p
	return p
}

func (p *pipedSet) Down(node int) error {
	p.links[node-1].Refuse(errors.New("the node is down"))
	p.links[node-1].Cut()
	return nil
}

func (p *pipedSet) Up(ctx context.Context, node int, empty bool) error {
	defer p.links[node-1].Refuse(nil)
	if empty {
		return p.direct[node-1].FlushAll(ctx).Err()
	}
	return nil
}

// randomScenario returns a scenario of 2 s with random settings of a kind and random faults.
func randomScenario(r *rand.Rand, kind Kind) Scenario {
	ms := func(least, most int) time.Duration {
		return time.Duration(least+r.IntN(most-least+1)) * time.Millisecond
	}
	s := Scenario{
		Lock: Lock{Kind: kind, TTL: ms(20, 150) * 10}, Clients: 2 + r.IntN(6), Keys: Keys{N: 1 + r.IntN(2)},
		Think: Exp(ms(1, 30)), Duration: 2 * time.Second, Seed: r.Uint64(), Conns: 1 + r.IntN(3),
	}
	s.Hold = []Dist{Const(ms(1, 50)), Exp(ms(1, 100)), Const(ms(100, 600)), Bimodal(2*time.Millisecond, ms(200, 900), 0.2)}[r.IntN(4)]
	if r.IntN(3) == 0 {
		s.Lock.Renew = Renew{Off: true}
	}
	if r.IntN(3) == 0 {
		s.Patience = ms(50, 500)
	}
	switch kind {
	case RW:
		s.Reads = 0.5
	case Semaphore:
		s.Lock.Permits = 1 + r.IntN(3)
	case All:
		s.Keys.N = 2 + r.IntN(2)
	}
	if kind == Reentrant || kind == RW {
		s.Depth = 1 + r.IntN(3)
	}
	if kind.Fences() {
		s.Lock.Fence = r.IntN(2) == 0
	}
	faults := []FaultKind{Crash, Freeze, Partition, DropReplies, Slow, Leak, Greedy, Flush, ExternalDelete, ScriptFlush, NodeDown, RestartEmpty}
	// A client of go-redis that connects while its network is cut holds a mutex that others
	// wait for, and so stops the fake clock. A scenario has faults of nodes, which break
	// connections, or faults of networks.
	out := []FaultKind{NodeDown, RestartEmpty}
	if r.IntN(3) == 0 {
		out = []FaultKind{Freeze, Partition, DropReplies, Slow}
	}
	faults = slices.DeleteFunc(faults, func(k FaultKind) bool { return slices.Contains(out, k) })
	for range r.IntN(5) {
		f := Fault{At: ms(0, 1900), Kind: faults[r.IntN(len(faults))], For: ms(1, 1000)}
		if f.Kind == Slow {
			f.Delay = ms(1, 200)
			f.Jitter = f.Delay / 2
		}
		if kind == Redlock && slices.Contains([]FaultKind{Partition, DropReplies, NodeDown, RestartEmpty}, f.Kind) {
			f.Node = 1 + r.IntN(5)
		}
		s.Faults = append(s.Faults, f)
	}
	return s
}

// propertyRun is what a random run showed.
type propertyRun struct {
	scenario Scenario
	metrics  Metrics
	proof    oracle.Proof
	certain  []string // violations in the log of the events that no fault can explain
}

// accused reports whether the run accuses the lock.
func (p propertyRun) accused() bool {
	return p.metrics.Violations.Broken()+p.metrics.Violations.StuckKey.Count > 0 || !p.proof.Sound
}

// runRandomly runs a scenario in fake time. Outage is when the first server is silent for a
// while, 0 = never.
func runRandomly(t *testing.T, s Scenario, openSession func(sessionConfig) (session, error), outage time.Duration) propertyRun {
	out := propertyRun{scenario: s}
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis notices within 1 s that a pool is closed
		servers := 1
		if s.Lock.Kind == Redlock || openSession != nil {
			servers = 5
		}
		set := newPipedSet(t, servers)
		if openSession == nil {
			openSession = open
		}
		r := check.Must(newRun(set.on, s, openSession))(t)
		log, h := &eventLog{}, &oracle.History{}
		r.Listen(log.add)
		r.Record(h)
		check.NoError(t, r.Start())
		if outage > 0 {
			time.Sleep(outage)
			set.links[0].Freeze()
			time.Sleep(outage / 2)
			set.links[0].Thaw()
		}
		<-r.Done()
		_ = r.Close() // a fault may have prevented a release
		out.metrics, out.proof = r.Metrics(), h.Prove()
		out.certain = log.certain(r.Scenario())
	})
	return out
}

// eventLog judges the events of a run by itself.
type eventLog struct {
	mu     sync.Mutex
	events []Event
}

func (l *eventLog) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// loggedHold is a hold of one key. It certainly lasts from from to to.
type loggedHold struct {
	Event
	asked, to time.Time
}

// certain returns the violations that the events show and that no fault explains: more
// clients than the limit inside within their leases, a fence that does not rise, and a key
// without a holder for long. Time that a deletion of locks touches is left out.
func (l *eventLog) certain(s Scenario) (all []string) {
	asked, waiting := map[int]time.Time{}, map[string]map[int]time.Time{}
	var holds []*loggedHold
	inside := map[string]*loggedHold{}
	var deleted [][2]time.Time
	faulty := false // a fault may keep a key from all
	began := map[FaultKind]time.Time{}
	var last time.Time
	for _, e := range EachKey(l.events) {
		id := fmt.Sprint(e.Client, e.Key)
		last = e.At
		switch e.Kind {
		case Arrived:
			asked[e.Client] = e.At
			if waiting[e.Key] == nil {
				waiting[e.Key] = map[int]time.Time{}
			}
			waiting[e.Key][e.Client] = e.At
		case TimedOut, Refused:
			delete(waiting[e.Key], e.Client)
		case Acquired:
			delete(waiting[e.Key], e.Client)
			inside[id] = &loggedHold{e, asked[e.Client], e.Deadline}
			holds = append(holds, inside[id])
		case Released, Expired, Lost, Abandoned, Failed:
			if h := inside[id]; h != nil {
				left := h.At.Add(e.Took)
				if h.to = e.Deadline; left.Before(h.to) {
					h.to = left
				}
				delete(inside, id)
			}
			delete(waiting[e.Key], e.Client)
		case FaultBegan:
			faulty = faulty || e.Fault != Greedy && e.Fault != ScriptFlush
			if oracle.Cause(e.Fault).Deletes() {
				began[e.Fault] = e.At
			}
		case FaultEnded:
			if from, known := began[e.Fault]; known {
				deleted = append(deleted, [2]time.Time{from, e.At})
			}
		}
	}
	touched := func(from, to time.Time) bool {
		return slices.ContainsFunc(deleted, func(d [2]time.Time) bool { return !d[0].After(to) && !d[1].Before(from) })
	}
	for i, b := range holds {
		together, number := 0, int64(0)
		for _, a := range holds[:i] {
			if a.Key != b.Key || touched(minTime(a.asked, b.asked), b.At) {
				continue
			}
			if !(a.Shared && b.Shared) && b.At.Before(a.to) && b.At.Before(b.to) && a.At.Before(b.At) {
				together++
			}
			if !a.Shared && a.At.Before(b.At) && a.At.Before(a.to) {
				number = max(number, a.Fence)
			}
		}
		if together >= s.Lock.Limit() {
			all = append(all, fmt.Sprintf("%s entered %s beside %d others at %s", b.Owner(), b.Key, together, b.At))
		}
		if b.Fence > 0 && !b.Shared && s.Lock.Limit() == 1 && b.Fence <= number && b.At.Before(b.to) {
			all = append(all, fmt.Sprintf("%s entered %s with fence %d after %d", b.Owner(), b.Key, b.Fence, number))
		}
	}
	for key, clients := range waiting { // until the end
		if faulty {
			break
		}
		for client, since := range clients {
			for _, h := range holds {
				if h.Key == key && h.to.After(since) {
					since = h.to
				}
			}
			if last.Sub(since) > 4*s.Lock.TTL {
				all = append(all, fmt.Sprintf("client-%d waits for %s since %s, and nobody has it", client, key, since))
			}
		}
	}
	return all
}

func minTime(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// No run of a sound kind under random faults accuses it, and the log of its events shows
// nothing that a fault does not explain.
func TestNoSoundKindIsAccusedUnderRandomFaults(t *testing.T) {
	kinds := []Kind{Mutex, Reentrant, RW, Fair, Redlock, Semaphore, All}
	holds, explained, excused, cut, struck := int64(0), int64(0), int64(0), 0, map[FaultKind]int{}
	n := testtier.Size(7, 7, 500)
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 30))
		s := randomScenario(r, kinds[i%len(kinds)])
		outage := time.Duration(0)
		if r.IntN(4) == 0 && !slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Kind.onNode() }) {
			outage = time.Duration(r.IntN(1000)) * time.Millisecond
		}
		p := runRandomly(t, s, nil, outage)
		m := p.metrics
		if m.Violations.Broken() > 0 || !p.proof.Sound || !p.proof.Known || len(p.certain) > 0 || m.Acquired > 0 && !m.Verdict(s).Safe {
			t.Errorf("run %d accuses %s: %s; %s; the log: %v\nevidence %+v\noutage %s of\n%s",
				i, s.Lock.Kind, m.Verdict(s).Text(), p.proof, p.certain, m.Violations.Evidence, outage, s.Marshal())
		}
		holds += m.Acquired
		excused += m.Violations.Overlap.Excused
		cut += len(p.proof.Cuts)
		for _, e := range m.Violations.Explained {
			explained += e.Count
		}
		for _, f := range m.Faults {
			struck[f.Fault.Kind] += f.Struck
		}
	}
	t.Logf("%d runs: %d holds, %d suspects explained, %d overlaps excused, %d cuts, faults: %v", n, holds, explained, excused, cut, struck)
	check.True(t, holds >= int64(20*n) && (n < 500 || explained != 0 && excused != 0 && cut != 0),
		"%d runs: %d holds, %d suspects explained, %d cuts: they prove little", n, holds, explained, cut)
}

// Each broken kind is accused in at least 90% of the runs under random faults in which the log
// of the events shows a violation that no fault explains.
func TestEachBrokenKindIsAccusedUnderRandomFaults(t *testing.T) {
	all := flaws()
	seen, accused := map[string]int{}, map[string]int{}
	n := testtier.Size(1, 6, 500)
	for i := range n {
		f := all[5*i%len(all)] // a few runs have others than the first ones
		r := rand.New(rand.NewPCG(uint64(i), 31))
		s := randomScenario(r, Mutex)
		s.Lock.TTL, s.Lock.Renew, s.Lock.Fence, s.Keys.N, s.Patience, s.Conns = 300*time.Millisecond, Renew{}, false, 1, 0, 1
		s.Clients = max(s.Clients, 4)
		s.Hold, s.Think = Const(10*time.Millisecond), Exp(10*time.Millisecond)
		faults := s.Faults
		if f.scenario != nil {
			f.scenario(&s)
		}
		switch { // otherwise violations are rare in 2 s
		case f.late:
			s.Clients, s.Hold, s.Think = 4, Const(280*time.Millisecond), Exp(100*time.Millisecond)
		case f.name == "a renewal that makes the lock anew":
			s.Clients, s.Hold = 2, Bimodal(2*time.Millisecond, 900*time.Millisecond, 0.1)
			s.Faults = []Fault{{At: 300 * time.Millisecond, Kind: Partition, For: 320 * time.Millisecond}, {At: 1100 * time.Millisecond, Kind: Partition, For: 320 * time.Millisecond}}
		}
		if s.Hold == Const(0) { // with a greedy client, the fake clock would stand still
			s.Hold = Const(time.Millisecond)
		}
		s.Duration = 2 * time.Second
		s.Faults = slices.DeleteFunc(s.Faults, func(f Fault) bool { return f.At >= s.Duration })
		for _, f := range faults {
			if !f.Kind.onNode() || len(s.Faults) == 0 || s.Faults[0].Kind.onNode() { // as in randomScenario
				s.Faults = append(s.Faults, f)
			}
		}
		p := runRandomly(t, s, f.open, 0)
		if len(p.certain) > 0 {
			seen[f.name]++
			if p.accused() {
				accused[f.name]++
			} else {
				t.Logf("run %d: %s is not accused: %s; the log: %s\n%s", i, f.name, p.metrics.Verdict(s).Text(), strings.Join(p.certain, "; "), s.Marshal())
			}
		}
	}
	for _, f := range all {
		check.True(t, 10*accused[f.name] >= 9*seen[f.name], "%s: accused in %d of %d runs", f.name, accused[f.name], seen[f.name])
		t.Logf("%s: accused in %d of %d runs with a certain violation", f.name, accused[f.name], seen[f.name])
		check.True(t, n < 500 || seen[f.name] >= 3, "%s: only %d runs have a certain violation: they prove little", f.name, seen[f.name])
	}
}
