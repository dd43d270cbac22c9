//go:build unix

package proofs

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/witness"
)

// survivable returns a scenario with every fault that a sound lock must withstand.
func survivable(kind loadgen.Kind) loadgen.Scenario {
	s := loadgen.Scenario{
		Lock: loadgen.Lock{Kind: kind, TTL: time.Second}, Keys: loadgen.Keys{N: 2}, Clients: 10,
		Hold: loadgen.Exp(20 * time.Millisecond), Think: loadgen.Exp(20 * time.Millisecond), Patience: 4 * time.Second,
		Faults: []loadgen.Fault{
			{At: 500 * time.Millisecond, Kind: loadgen.Crash, Clients: 2, For: 2 * time.Second},
			{At: 1500 * time.Millisecond, Kind: loadgen.Partition, Clients: 2, For: 2 * time.Second},
			{At: 2500 * time.Millisecond, Kind: loadgen.DropReplies, Clients: 3, For: 1500 * time.Millisecond},
			{At: 3 * time.Second, Kind: loadgen.Slow, Clients: 3, Delay: 30 * time.Millisecond, Jitter: 20 * time.Millisecond, For: 2 * time.Second},
			{At: 3500 * time.Millisecond, Kind: loadgen.ScriptFlush},
			{At: 4 * time.Second, Kind: loadgen.Greedy, Clients: 2, For: time.Second},
		},
		Duration: 6 * time.Second,
	}
	switch kind {
	case loadgen.RW:
		s.Reads = 0.5
	case loadgen.Reentrant:
		s.Depth = 2
	case loadgen.Redlock:
		s.Faults = append(s.Faults, loadgen.Fault{At: time.Second, Kind: loadgen.NodeDown, Node: 1, For: 3 * time.Second},
			loadgen.Fault{At: 2 * time.Second, Kind: loadgen.NodeDown, Node: 3, For: 3 * time.Second})
	}
	return s
}

// The figure of promise P12 for sound locks: neither the oracle nor a witness on another server accuses one under
// faults that it can survive.
func TestSoundKindsSurviveAllFaultsThatALockCanSurvive(t *testing.T) {
	testtier.Long(t, "it runs a load of every kind under faults")
	t.Parallel()
	single := loadgen.Servers{Redis: servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)}
	quorum := five(t)
	third := servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)
	var all sync.WaitGroup
	for _, kind := range []loadgen.Kind{loadgen.Mutex, loadgen.Reentrant, loadgen.RW, loadgen.Fair, loadgen.Redlock, loadgen.Semaphore, loadgen.All} {
		on := single
		if kind == loadgen.Redlock {
			on = quorum
		}
		all.Go(func() {
			// By chance, or on a busy machine, a short run may not have everything.
			for try := 1; ; try++ {
				missing := surviveFaults(t, on, third, survivable(kind))
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

// surviveFaults runs a scenario, checks that the lock held, also by a witness on another
// server, and returns what it did not have: faults, or enough holds.
func surviveFaults(t *testing.T, on loadgen.Servers, third server.Client, s loadgen.Scenario) (missing []string) {
	r, err := loadgen.New(on, s)
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
	check.True(t, m.Arrivals == m.Acquired+m.TimedOut+m.Refused+m.Errors+m.CutOff && m.Acquired == m.Released+m.Expired+m.Lost+m.Unconfirmed+m.Abandoned,
		"%s: the counts do not add up: %+v", s.Lock.Kind, m.Counts)
	if m.Violations.Overlap.Count+m.Violations.LateWork.Count+m.Violations.StaleWriteAccepted.Count+m.Violations.ForeignUnlock.Count+m.Violations.StuckKey.Count != 0 || !m.Verdict(s).Safe {
		t.Errorf("%s: %d acquired; %s %v", s.Lock.Kind, m.Acquired, m.Verdict(s).Text(), m.Violations.Evidence)
	}
	if m.Acquired < 30 { // the machine is busy
		missing = append(missing, "30 holds")
	}
	struck := map[loadgen.FaultKind]int{}
	for _, e := range r.Events(0) {
		if e.Kind == loadgen.FaultBegan {
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

// topLevel are the commands that clients send. The server also counts the
// commands that scripts call.
var topLevel = []string{"eval", "evalsha", "subscribe", "unsubscribe", "hello", "ping", "client|", "script|", "wait"}

func TestTheFiguresOfALoadAgreeWithTheServersOwn(t *testing.T) {
	testtier.Long(t, "it loads a server for seconds")
	t.Parallel()
	rdb := servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)
	ctx := t.Context()
	// The server's CPU time before the run must not count.
	before := int64(0)
	for before < 300 {
		check.NoError(t, rdb.Eval(ctx, "for i = 1, 1e6 do end return 1", nil).Err())
		before = computed(t, rdb)
	}
	check.NoError(t, rdb.ConfigResetStat(ctx).Err())
	s := loadgen.Scenario{
		Lock:    loadgen.Lock{Kind: loadgen.Reentrant}, // it sends only scripts
		Conns:   1,                                     // the server does not count commands that it has not read when a connection ends
		Clients: 16, Keys: loadgen.Keys{N: 50}, Hold: loadgen.Exp(200 * time.Microsecond), Think: loadgen.Exp(200 * time.Microsecond),
	}
	r := check.Must(loadgen.New(loadgen.Servers{Redis: rdb}, s))(t)
	t.Cleanup(func() { check.ErrorIs(t, r.Close(), nil) })
	check.NoError(t, r.Start())
	for deadline := time.Now().Add(time.Minute); r.Metrics().Acquired < 1000; time.Sleep(10 * time.Millisecond) {
		check.Require(t, time.Now().Before(deadline), "%d acquisitions in a minute", r.Metrics().Acquired)
	}
	check.NoError(t, r.Stop())
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

// computed returns the server's CPU time so far, in ms.
func computed(t *testing.T, rdb server.Client) int64 {
	t.Helper()
	sum := 0.0
	used := rdb.InfoMap(t.Context(), "cpu").Val()["CPU"]
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		sum += check.Must(strconv.ParseFloat(used[name], 64))(t)
	}
	return int64(1000 * sum)
}

// commandStats returns how often each command was called, by the server's count.
func commandStats(t *testing.T, rdb server.Client) map[string]int64 {
	t.Helper()
	info := check.Must(rdb.InfoMap(t.Context(), "commandstats").Result())(t)
	calls := map[string]int64{}
	for name, text := range info["Commandstats"] {
		var n int64
		_, err := fmt.Sscanf(text, "calls=%d,", &n)
		check.NoError(t, err)
		calls[strings.TrimPrefix(name, "cmdstat_")] = n
	}
	return calls
}
