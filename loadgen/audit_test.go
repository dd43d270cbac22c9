package loadgen

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/loadgen/oracle"
	"locktop/lock"
)

// The audit's defect A1: after a flush, the proof accused a sound lock.
func TestTheProofDoesNotAccuseALockThatAFlushDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := check.Must(New(Servers{Redis: piped(t)}, Scenario{
			Clients: 10, Keys: Keys{N: 1}, Seed: 1, Hold: Const(900 * time.Millisecond), Think: Const(5 * time.Millisecond), Lock: Lock{TTL: 3 * time.Second, Wait: Wait{Poll: 30 * time.Millisecond}},
			Faults: []Fault{{At: 1500 * time.Millisecond, Kind: Flush}, {At: 2500 * time.Millisecond, Kind: ExternalDelete}}, Duration: 4 * time.Second,
		}))(t)
		var h oracle.History
		r.Record(&h)
		running(t, r)
		<-r.Done()
		m, p := r.Metrics(), h.Prove()
		check.True(t, m.Violations.Overlap.Excused == 2 && m.Verdict(r.Scenario()).Safe && p.Sound && len(p.Cuts) == 2, "%s; %s", m.Verdict(r.Scenario()).Text(), p)
		check.Contains(t, m.Violations.Excuses(), "1 overlap (flush), 1 overlap (steal)")
	})
}

// The audit's defect A2: a client that was slow by 1 ms hid all fences that did not rise.
func TestASlowClientHidesNoFence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ended(newRun(Servers{Redis: piped(t)}, Scenario{
			Clients: 6, Keys: Keys{N: 1}, Seed: 1, Hold: Const(20 * time.Millisecond), Think: Const(20 * time.Millisecond), Lock: Lock{TTL: 2 * time.Second, Fence: true},
			Faults:   []Fault{{Kind: Slow, Client: 1, Delay: time.Millisecond}, {At: time.Second, Kind: Freeze, Client: 2, For: time.Second}},
			Duration: 5 * time.Second,
		}, openWrapped(func(l *lease) { l.fence = 7 })))(t)
		if m := r.Metrics(); m.Acquired < 100 || m.Violations.FenceOrder.Count != m.Acquired-1 || m.Verdict(r.Scenario()).Safe {
			t.Errorf("%d acquired, %d fences accused: %s", m.Acquired, m.Violations.FenceOrder.Count, m.Verdict(r.Scenario()).Text())
		}
	})
}

// The first of several entries begins when it is sent, not when the client arrives or when
// the last entry returns. It is what an excuse reaches back to: the audit's defect A3.
func TestTheFirstEntryBeginsWhenItIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, link := connectOver(t)
		for _, kind := range []Kind{Reentrant, RW, "classic/counted"} {
			for _, depth := range []int{1, 3} {
				s := Scenario{Lock: Lock{Kind: kind, TTL: 10 * time.Second}.withDefaults(), Depth: depth}
				root := check.Must(open(sessionConfig{Servers{Redis: rdb}, s, newNetwork(new(atomic.Int64)), func(lock.Event) {}}))(t)
				client := root.as(clientIdentity{owner: "client-1"})
				for i := range 2 { // the first time it connects, and loads scripts
					link.Delay(func() time.Duration { return 50 * time.Millisecond })
					asked := time.Now()
					l := check.Must(client.lock(t.Context(), []string{string(kind)}, false))(t)
					check.ErrorIs(t, l.enter(t.Context(), &s), nil)
					link.Delay(nil)
					first := l.first // early by the drift of clocks
					if depth == 1 && !first.IsZero() || i > 0 && depth > 1 && (first.After(asked) || first.Before(asked.Add(-200*time.Millisecond))) {
						t.Errorf("%s, %d entries: the first one began %s after the request", kind, depth, first.Sub(asked))
					}
					check.ErrorIs(t, l.release(t.Context()), nil)
				}
				check.ErrorIs(t, client.close(), nil)
				check.ErrorIs(t, root.close(), nil)
			}
		}
	})
}

// loses makes the release of a lease say that the lock was lost.
func loses(l *lease) {
	unlock := l.unlock
	l.unlock = func(ctx context.Context) error { return errors.Join(lock.ErrLost, unlock(ctx)) }
}

// One of five nodes that is down, or cut off from a client, costs no lease.
func TestAMinorityOfTheNodesExplainsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(2 * time.Second) }) // go-redis notices within 1 s that a pool is closed
		s := Scenario{
			Lock: Lock{Kind: Redlock, TTL: time.Second}, Clients: 2, Keys: Keys{N: 1}, Hold: Const(20 * time.Millisecond), Think: Const(20 * time.Millisecond),
			Faults: []Fault{{Kind: NodeDown, Node: 1}, {Kind: DropReplies, Clients: 2, Node: 2}}, Duration: 2 * time.Second,
		}
		r := ended(newRun(newPipedSet(t, 5).on, s, openWrapped(loses)))(t)
		if m := r.Metrics(); m.Lost < 5 || m.Violations.UnexplainedLoss.Count != m.Lost || m.Faults[0].Struck != 1 || m.Faults[1].Struck != 2 {
			t.Errorf("%d lost, %d accused, %v: %s", m.Lost, m.Violations.UnexplainedLoss.Count, m.Faults, m.Violations.Excuses())
		}
	})
}

func TestAFlushThatDeletedNothingIsNoCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{
			Clients: 1, Keys: Keys{N: 1}, Seed: 1, Hold: Const(10 * time.Millisecond), Think: Const(time.Minute),
			Faults: []Fault{{At: time.Second, Kind: Flush}}, Duration: 2 * time.Second,
		})
		<-r.Done()
		if m := r.Metrics(); m.Faults[0].Struck != 0 || m.Acquired != 1 || len(r.newest().oracle.Losses()) != 0 {
			t.Errorf("%s, %d acquired, losses: %+v", m.Faults[0], m.Acquired, r.newest().oracle.Losses())
		}
	})
}

// Of several entries, the first was 2 s ago.
func TestAnExcuseReachesBackToTheFirstEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := ended(newRun(Servers{Redis: piped(t)}, Scenario{
			Clients: 3, Keys: Keys{N: 1}, Seed: 1, Hold: Const(100 * time.Millisecond), Think: Const(10 * time.Millisecond),
			Faults: []Fault{{At: 950 * time.Millisecond, Kind: Flush}}, Duration: 2 * time.Second,
		}, func(o sessionConfig) (session, error) {
			inner, err := openNoNX(o)
			return wrapped{inner, func(l *lease) { l.first = time.Now().Add(-2 * time.Second) }}, err
		}))(t)
		o := r.Metrics().Violations.Overlap
		told := int64(0)
		for _, e := range r.Events(0) {
			if e.Kind == EventKind(oracle.Overlap) {
				told++
			}
		}
		check.True(t, o.Excused >= 10 && o.Excused != o.Count && told == o.Count, "%+v, %d events", o, told)
	})
}
