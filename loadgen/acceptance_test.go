package loadgen

import (
	"context"
	"fmt"
	"testing"
	"time"

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
	var refused int64
	_, err := fmt.Sscanf(rdb.InfoMap(t.Context(), "commandstats").Val()["Commandstats"]["cmdstat_pttl"], "calls=%d,", &refused)
	check.NoError(t, err)
	lost := m.TimedOut + m.CutOff // their last requests may have no reply
	diff := m.Cost.Attempts - m.Acquired - refused
	check.True(t, diff >= 0 && diff <= lost, "%d attempts, %d acquired, %d refused, %d given up", m.Cost.Attempts, m.Acquired, refused, lost)
}
