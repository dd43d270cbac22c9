package loadgen

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
	"locktop/lock"
)

// nodesForTest starts five servers that the run can stop and start.
func nodesForTest(t *testing.T) Servers {
	t.Helper()
	set := servertest.IndependentForTest(t, 5)
	on := Servers{Power: set}
	for _, child := range set.Nodes() {
		on.Nodes = append(on.Nodes, connect(t, child.Addr()))
	}
	on.Redis = on.Nodes[0]
	return on
}

// faultyScenario returns a scenario with every fault that a sound lock must withstand.
func faultyScenario(kind Kind) Scenario {
	s := Scenario{
		Lock: Lock{Kind: kind, TTL: time.Second}, Keys: Keys{N: 2}, Clients: 10,
		Hold: Exp(20 * time.Millisecond), Think: Exp(20 * time.Millisecond), Patience: 4 * time.Second,
		Faults: []Fault{
			{At: 500 * time.Millisecond, Kind: Crash, Clients: 2, For: 2 * time.Second},
			{At: 1500 * time.Millisecond, Kind: Partition, Clients: 2, For: 2 * time.Second},
			{At: 2500 * time.Millisecond, Kind: DropReplies, Clients: 3, For: 1500 * time.Millisecond},
			{At: 3 * time.Second, Kind: Slow, Clients: 3, Delay: 30 * time.Millisecond, Jitter: 20 * time.Millisecond, For: 2 * time.Second},
			{At: 3500 * time.Millisecond, Kind: ScriptFlush},
			{At: 4 * time.Second, Kind: Greedy, Clients: 2, For: time.Second},
		},
		Duration: 6 * time.Second,
	}
	switch kind {
	case RW:
		s.Reads = 0.5
	case Reentrant:
		s.Depth = 2
	case Redlock:
		s.Faults = append(s.Faults, Fault{At: time.Second, Kind: NodeDown, Node: 1, For: 3 * time.Second},
			Fault{At: 2 * time.Second, Kind: NodeDown, Node: 3, For: 3 * time.Second})
	}
	return s
}

// Scenarios 36, 52, 54, 61, 69, 71, 74 and 110, second half. Promise P12.
func TestSoundKindsSurviveAllFaultsThatALockCanSurvive(t *testing.T) {
	testtier.Long(t, "it runs a load of every kind under faults")
	t.Parallel()
	single := Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}
	five := nodesForTest(t)
	third := connect(t, servertest.RedisForTest(t).Addr())
	var all sync.WaitGroup
	for _, kind := range []Kind{Mutex, Reentrant, RW, Fair, Redlock, Semaphore, All} {
		on := single
		if kind == Redlock {
			on = five
		}
		all.Go(func() {
			// By chance, or on a busy machine, a short run may not have everything.
			for try := 1; ; try++ {
				missing := runWithFaults(t, on, third, faultyScenario(kind))
				if len(missing) == 0 || t.Failed() {
					return
				}
				if try == 5 {
					t.Errorf("%s: five runs had no %v: the test proves nothing about it", kind, missing)
					return
				}
			}
		})
	}
	all.Wait()
}

// runWithFaults runs a scenario, checks that the lock held, also by a witness on another
// server, and returns what it did not have: faults, or enough holds.
func runWithFaults(t *testing.T, on Servers, third *redis.Client, s Scenario) (missing []string) {
	r, err := New(on, s)
	if err != nil {
		t.Error(err)
		return nil
	}
	w, err := witness.Open(t.Context(), third, string(s.Lock.Kind), s.Lock.Limit())
	if err != nil {
		t.Error(err)
		return nil
	}
	r.Witness(w)
	check.ErrorIs(t, r.Start(), nil)
	<-r.Done()
	check.ErrorIs(t, r.Close(), nil, "%s", s.Lock.Kind)
	m := r.Metrics()
	check.ErrorIs(t, w.Close(t.Context()), nil)
	if seen := w.Results(); seen.Overlaps != 0 || seen.Unseen != 0 || seen.Holds != m.Acquired || seen.Proven < m.Released {
		t.Errorf("%s: %d acquired, %d released; witness: %s", s.Lock.Kind, m.Acquired, m.Released, seen)
	}
	checkSums(t, m)
	if m.Violations.Overlap.Count+m.Violations.LateWork.Count+m.Violations.StaleWriteAccepted.Count+m.Violations.ForeignUnlock.Count+m.Violations.StuckKey.Count != 0 || !m.Verdict(s).Safe {
		t.Errorf("%s: %d acquired; %s %v", s.Lock.Kind, m.Acquired, m.Verdict(s).Text(), m.Violations.Evidence)
	}
	if m.Acquired < 30 { // the machine is busy
		missing = append(missing, "30 holds")
	}
	struck := map[FaultKind]int{}
	for _, e := range r.Events(0) {
		if e.Kind == FaultBegan {
			struck[e.Fault]++
		}
	}
	for _, f := range s.Faults {
		if struck[f.Kind] == 0 {
			missing = append(missing, string(f.Kind))
		}
	}
	if m.Abandoned == 0 {
		missing = append(missing, "crash in a hold")
	}
	keys, err := on.Redis.Keys(context.Background(), r.Scenario().Keys.Prefix+"*").Result()
	check.True(t, err == nil && len(keys) == 0, "%s: keys left behind: %q %v", s.Lock.Kind, keys, err)
	return missing
}

// A witness finds that clients are inside at once, without the oracle and its clock.
func TestAWitnessFindsALockThatDeletesBlindly(t *testing.T) {
	t.Parallel()
	r := check.Must(New(Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}, Scenario{
		Lock: Lock{Kind: "classic/blind-delete", TTL: 100 * time.Millisecond}, Keys: Keys{N: 1}, Clients: 6, Duration: time.Minute,
		Hold: Bimodal(20*time.Millisecond, 150*time.Millisecond, 0.3), Think: Exp(10 * time.Millisecond),
	}))(t)
	w := check.Must(witness.Open(t.Context(), connect(t, servertest.RedisForTest(t).Addr()), "blind", 1))(t)
	r.Witness(w)
	running(t, r)
	for w.Results().Overlaps == 0 {
		select {
		case <-r.Done():
			t.Fatalf("nothing in a minute: %s; the oracle: %s", w.Results(), r.Metrics().Verdict(r.Scenario()).Text())
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = r.Close() // leases that have ended cannot be released
	check.ErrorIs(t, w.Close(t.Context()), nil)
	seen, m := w.Results(), r.Metrics()
	check.True(t, seen.Overlaps <= m.Violations.Overlap.Count, "%s, and the oracle knows %d overlaps", seen, m.Violations.Overlap.Count)
}

// Scenario 110: the compare-and-delete of a Mutex is replaced by DEL.
func TestAMutexThatDeletesBlindlyIsCaughtInTenSeconds(t *testing.T) {
	t.Parallel()
	s := Scenario{
		Lock: Lock{TTL: 150 * time.Millisecond, Renew: Renew{Off: true}}, Keys: Keys{N: 1}, Clients: 6,
		Hold: Const(50 * time.Millisecond), Think: Const(50 * time.Millisecond), Duration: 10 * time.Second,
	}
	s.Lock.Wait = Wait{Poll: 10 * time.Millisecond} // DEL notifies no waiter
	for at := 200 * time.Millisecond; at < s.Duration; at += 350 * time.Millisecond {
		s.Faults = append(s.Faults, Fault{At: at, Kind: Freeze, Clients: 2, For: 250 * time.Millisecond})
	}
	on := Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}
	r := check.Must(newRun(on, s, openWrapped(func(l *lease) {
		l.unlock = func(ctx context.Context) error { return on.Redis.Del(ctx, l.lives.(*lock.Lease).Key()).Err() }
	})))(t)
	var h oracle.History
	r.Record(&h)
	running(t, r)
	until(t, r, "an overlap", func(m Metrics) bool {
		return m.Violations.Overlap.Count > 0 && m.Violations.ForeignUnlock.Count > 0 || !m.Running
	})
	stop(t, r)
	m := r.Metrics()
	check.True(t, m.Violations.Overlap.Count != 0 && m.Violations.ForeignUnlock.Count != 0 && !m.Verdict(s).Safe, "not caught: %+v", m)
	if len(m.Violations.Evidence) == 0 || m.Violations.Evidence[0].First.Token == "" || m.Violations.Evidence[0].Second.Token == "" || m.Violations.Evidence[0].First.Client == m.Violations.Evidence[0].Second.Client {
		t.Errorf("no evidence of both sides: %+v", m.Violations.Evidence)
	}
	p := h.Prove()
	check.True(t, !p.Sound && p.Known, "the history was accepted: %s", p)
}

// Scenario 111, first half. Promise P1.
func TestTheHoldsOfASoundLockAreProvedToBeThoseOfALock(t *testing.T) {
	t.Parallel()
	s := Scenario{Clients: 16, Keys: Keys{N: 4}, Lock: Lock{Fence: true}, Hold: Const(0), Think: Const(0)}
	r := check.Must(New(Servers{Redis: connect(t, servertest.RedisForTest(t).Addr())}, s))(t)
	var h oracle.History
	r.Record(&h)
	running(t, r)
	want := int64(testtier.Size(500, 10_000, 10_000))
	until(t, r, "the acquisitions", func(m Metrics) bool { return m.Acquired >= want })
	stop(t, r)
	p := h.Prove()
	check.True(t, p.Sound && p.Holds >= want, "%v", p)
}

// topLevel are the commands that clients send. The server also counts the
// commands that scripts call.
var topLevel = []string{"eval", "evalsha", "subscribe", "unsubscribe", "hello", "ping", "client|", "script|", "wait"}

func TestTheFiguresAgreeWithTheServersOwn(t *testing.T) {
	testtier.Long(t, "it loads a server for seconds")
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	ctx := t.Context()
	// The server's CPU time before the run must not count.
	before := int64(0)
	for before < 300 {
		check.NoError(t, rdb.Eval(ctx, "for i = 1, 1e6 do end return 1", nil).Err())
		before = computed(t, rdb)
	}
	check.NoError(t, rdb.ConfigResetStat(ctx).Err())
	s := busy
	s.Keys.N = 50
	s.Lock.Kind = Reentrant // it sends only scripts
	s.Conns = 1             // the server does not count commands that it has not read when a connection ends
	r := started(t, rdb, s)
	until(t, r, "1000 acquisitions", func(m Metrics) bool { return m.Acquired >= 1000 })
	stop(t, r)
	m := r.Metrics()
	calls := commandStats(t, rdb)
	var sent int64
	for name, n := range calls {
		for _, prefix := range topLevel {
			if name == prefix || strings.HasSuffix(prefix, "|") && strings.HasPrefix(name, prefix) {
				sent += n
			}
		}
	}
	if ran := m.Cost.CPU.Milliseconds(); ran < 1 || ran > computed(t, rdb)-before {
		t.Errorf("%d ms of computing in the run, of %d since it began", ran, computed(t, rdb)-before)
	}
	// The connections of the test also send HELLO and, from Redis 7.2 on, CLIENT SETINFO.
	diff := m.Cost.Commands - sent
	check.True(t, diff >= -10 && diff <= 10, "%d commands by our count, %d by the server's: %v", m.Cost.Commands, sent, calls)
	// Attempts that are cancelled at the end are not counted as released, but they are undone.
	inFlight := int64(10 * s.Clients)
	if diff := calls["publish"] - m.Released; diff < 0 || diff > inFlight {
		t.Errorf("%d releases were announced, we count %d", calls["publish"], m.Released)
	}
	scripts := calls["eval"] + calls["evalsha"]
	want := m.Cost.Attempts + m.Released + m.Cost.Renewals
	if diff := scripts - want; diff < 0 || diff > inFlight {
		t.Errorf("%d scripts ran, %d attempts + %d releases + %d renewals", scripts, m.Cost.Attempts, m.Released, m.Cost.Renewals)
	}
}

// The server refuses a Mutex in a script that reads the PTTL of the lock. So every request is
// either a hold or a PTTL, and the requests of waiters without a hold count, too.
func TestAttemptsAreTheRequestsThatTheServerAnswered(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	s := busy
	s.Keys.N, s.Clients, s.Hold, s.Think, s.Patience = 1, 10, Const(20*time.Millisecond), Const(time.Millisecond), 50*time.Millisecond
	s.Lock = Lock{Kind: Mutex, Wait: Wait{Poll: 5 * time.Millisecond}}
	r := started(t, rdb, s)
	until(t, r, "clients that gave up", func(m Metrics) bool { return m.TimedOut >= 30 })
	stop(t, r)
	m := r.Metrics()
	refused := commandStats(t, rdb)["pttl"]
	lost := m.TimedOut + m.CutOff // their last requests may have no reply
	diff := m.Cost.Attempts - m.Acquired - refused
	check.True(t, diff >= 0 && diff <= lost, "%d attempts, %d acquired, %d refused, %d given up", m.Cost.Attempts, m.Acquired, refused, lost)
}

// computed returns the server's CPU time so far, in ms.
func computed(t *testing.T, rdb *redis.Client) int64 {
	t.Helper()
	sum := 0.0
	for line := range strings.Lines(rdb.Info(t.Context(), "cpu").Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			seconds := check.Must(strconv.ParseFloat(value, 64))(t)
			sum += seconds
		}
	}
	return int64(1000 * sum)
}

// commandStats returns how often each command was called, by the server's count.
func commandStats(t *testing.T, rdb *redis.Client) map[string]int64 {
	t.Helper()
	info := check.Must(rdb.Info(t.Context(), "commandstats").Result())(t)
	calls := map[string]int64{}
	for line := range strings.Lines(info) {
		name, rest, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		var n int64
		if _, err := fmt.Sscanf(rest, "%d,", &n); found && err == nil {
			calls[name] = n
		}
	}
	return calls
}
