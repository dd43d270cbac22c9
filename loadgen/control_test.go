package loadgen

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

func TestApplyChangesTheLoadWhileTheClientsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 4, Keys: Keys{N: 4}, Hold: Const(time.Second), Think: Const(time.Second)})
		time.Sleep(3 * time.Second)
		before := r.Metrics()
		s := r.Scenario()
		s.Clients, s.Hold, s.Think = 6, Const(150*time.Millisecond), Const(150*time.Millisecond)
		check.NoError(t, r.Apply(s))
		time.Sleep(10 * time.Second) // the holds that were chosen before last 4 s if all want one key
		m := summed(t, r)
		check.True(t, m.Began.Equal(before.Began) && m.Clients.Total == 6 && m.Acquired >= before.Acquired+50,
			"%d clients acquired %d, then %d", m.Clients.Total, before.Acquired, m.Acquired) // 20 at the old rate
		check.Equal(t, r.Scenario().Keys.Prefix, s.Keys.Prefix, "the keys changed to")
	})
}

// The waiters have chosen their holds, too.
func TestAShorterHoldEndsTheRunningHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 3, Keys: Keys{N: 1}, Hold: Const(10 * time.Hour), Think: Const(time.Millisecond)})
		time.Sleep(time.Second)
		s := r.Scenario()
		s.Hold = Const(100 * time.Millisecond)
		check.NoError(t, r.Apply(s))
		time.Sleep(time.Second)
		check.AtLeast(t, summed(t, r).Released, 4, "holds that have ended")
	})
}

func TestAnotherKindOfLockRestartsTheClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{Clients: 4, Keys: Keys{N: 1}, Hold: Const(20 * time.Millisecond), Think: Const(20 * time.Millisecond)})
		for _, kind := range []Kind{Reentrant, RW, Fair, "classic/blind-delete", Mutex} {
			time.Sleep(100 * time.Millisecond)
			before := r.Metrics()
			s := r.Scenario()
			s.Lock = Lock{Kind: kind}
			check.NoError(t, r.Apply(s))
			check.True(t, r.Scenario().Keys.Prefix != s.Keys.Prefix, "%s locks the keys of another kind", kind)
			time.Sleep(500 * time.Millisecond)
			m := summed(t, r)
			check.True(t, m.Began.After(before.Began) && m.Acquired >= 10 && m.Errors <= 0, "%s: %d acquired, newest error %q", kind, m.Acquired, m.LastErr)
		}
		stop(t, r)
		checkNoKeys(t, rdb)
	})
}

func TestAnInvalidScenarioChangesNothing(t *testing.T) {
	r := check.Must(New(Servers{Redis: connect(t, "127.0.0.1:1")}, Scenario{Clients: 3}))(t)
	err := r.Apply(Scenario{Clients: -1})
	check.True(t, err != nil && r.Scenario().Clients == 3, "%v, %d clients", err, r.Scenario().Clients)
}

func TestAnImpossibleFaultIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 1})
		for want, f := range map[string]Fault{
			"servers that can be switched off": {Kind: NodeDown},
			"do not go by their clocks":        {Kind: Skew, By: time.Second},
			"fault must be one of":             {Kind: "flood"},
		} {
			check.ErrorContains(t, r.Inject(f), want, "%s", f.Kind)
		}
		stop(t, r)
		check.ErrorContains(t, r.Inject(Fault{Kind: Flush}), "not running", "after the end")
	})
}

func TestAFaultOfAChosenClientAffectsOnlyThatClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// With this seed, no client waits for one that has a fault.
		r := started(t, piped(t), Scenario{Clients: 5, Keys: Keys{N: 1000}, Seed: 1, Hold: Const(time.Second), Think: Const(10 * time.Millisecond)})
		time.Sleep(5 * time.Second)
		for client, f := range map[int]Fault{
			1: {Kind: Freeze, For: 20 * time.Second}, 2: {Kind: Crash}, 4: {Kind: Partition, For: 20 * time.Second},
		} {
			f.Client = client
			check.NoError(t, r.Inject(f))
		}
		time.Sleep(5 * time.Second)
		m := summed(t, r)
		if c := m.Clients.States; c[0] != Frozen || c[1] != Dead || c[2] > Inside || c[3] != Partitioned || c[4] > Inside || m.Clients.Dead != 1 {
			t.Errorf("cells %v", c)
		}
		seen := map[FaultKind]int{}
		for _, e := range r.Events(0) {
			if e.Kind == FaultBegan {
				seen[e.Fault] = e.Client
			}
		}
		check.True(t, seen[Freeze] == 1 && seen[Crash] == 2 && seen[Partition] == 4, "events tell of %v", seen)
		time.Sleep(40 * time.Second)
		c := r.Metrics().Clients.States
		check.True(t, c[0] <= Inside && c[1] == Dead && c[3] <= Inside, "after the faults: %v", c)
	})
}

func TestACrashedClientIsReplaced(t *testing.T) {
	m := after(t, Scenario{
		Clients: 1, Keys: Keys{N: 1}, Hold: Const(time.Second), Think: Const(time.Second), Lock: Lock{TTL: 2 * time.Second},
		Faults: []Fault{{At: 2500 * time.Millisecond, Kind: Crash, For: 10 * time.Second}},
	}, 8*time.Second, 20*time.Second)
	check.True(t, m[0].Clients.Dead == 1 && m[0].Abandoned == 1 && m[0].Violations.Overlap.Count == 0, "%d dead, %d abandoned", m[0].Clients.Dead, m[0].Abandoned)
	check.True(t, m[1].Clients.Dead == 0 && m[1].Acquired >= m[0].Acquired+3,
		"%d dead, %d more acquired", m[1].Clients.Dead, m[1].Acquired-m[0].Acquired)
}

func TestAForgottenLockIsRenewedUntilTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{
			Clients: 2, Keys: Keys{N: 1}, Hold: Const(100 * time.Millisecond), Think: Const(time.Second), Lock: Lock{TTL: time.Second},
			Faults: []Fault{{At: 3 * time.Second, Kind: Leak}},
		})
		time.Sleep(20 * time.Second)
		m := summed(t, r)
		check.True(t, m.Violations.StuckKey.Count == 1 && m.Abandoned == 1 && m.Cost.Renewals >= 30,
			"%d stuck, %d abandoned, %d renewals", m.Violations.StuckKey.Count, m.Abandoned, m.Cost.Renewals)
		stop(t, r)
		if m := r.Metrics(); m.Violations.StuckKey.Count == 0 || m.Violations.StuckKey.Excused == 0 || !m.Verdict(r.Scenario()).Safe {
			t.Errorf("the fault does not explain the key: %+v", m.Violations)
		}
		checkNoKeys(t, rdb)
	})
}

// A sound lock whose key stays locked without a holder and without a fault has broken its
// promise; a historic form has shown its flaw.
func TestAKeyThatNobodyHoldsBreaksThePromiseOfALock(t *testing.T) {
	for kind, sound := range map[Kind]bool{Mutex: true, "classic/blind-delete": false} {
		synctest.Test(t, func(t *testing.T) {
			rdb := piped(t)
			r := started(t, rdb, Scenario{
				Lock: Lock{Kind: kind, TTL: time.Second}, Clients: 1, Keys: Keys{N: 1, Prefix: "p:"}, Hold: Const(100 * time.Millisecond), Think: Const(time.Second),
			})
			time.Sleep(3 * time.Second / 2) // the client thinks
			check.Require(t, rdb.SetNX(t.Context(), "p:1", "an orphan", 0).Val(), "the key is held")
			time.Sleep(20 * time.Second)
			stop(t, r)
			m := r.Metrics()
			v := m.Verdict(r.Scenario())
			if m.Violations.StuckKey.Count != 1 || v.Safe == sound || strings.Contains(v.Text(), "One key") || !strings.Contains(v.Text(), "No client could acquire one key, although no client was inside") {
				t.Errorf("%s: %d stuck, safe %t: %s", kind, m.Violations.StuckKey.Count, v.Safe, v.Text())
			}
		})
	}
}

// The holds begin at 0 and 10 s, each second from 20 to 40 s, and then every 10 s.
func TestAGreedyClientComesBackAtOnce(t *testing.T) {
	m := after(t, Scenario{
		Clients: 1, Keys: Keys{N: 1}, Hold: Const(time.Second), Think: Const(9 * time.Second),
		Faults: []Fault{{At: 15 * time.Second, Kind: Greedy, For: 20 * time.Second}},
	}, 60*time.Second)[0]
	check.Between(t, m.Acquired, 22, 25, "holds")
}

func TestEventsAreNumberedAndRememberedUpToALimit(t *testing.T) {
	told := 0
	j := &eventRing{tell: []func(Event){func(e Event) {
		told++
		check.Equal(t, e.Seq, uint64(told), "event %d", told)
	}}}
	check.Equal(t, len(j.since(0)), 0, "events before the first")
	for i := range HistoryEvents + 100 {
		j.note(Event{Client: i + 1})
	}
	all := j.since(0)
	check.True(t, len(all) == HistoryEvents && all[0].Seq == 101 && all[len(all)-1].Seq == HistoryEvents+100,
		"%d events, the first is number %d", len(all), all[0].Seq)
	for i, e := range all {
		check.Require(t, e.Client == int(e.Seq) && (i <= 0 || e.Seq == all[i-1].Seq+1), "event %d out of order: %+v", i, e)
	}
	got := j.since(HistoryEvents + 98)
	check.True(t, len(got) == 2 && got[1].Seq == HistoryEvents+100, "the newest two: %v", got)
	got = j.since(HistoryEvents + 100)
	check.True(t, got == nil && told == HistoryEvents+100, "nothing new, but %v; told of %d", got, told)
}

func TestKeysThatExistedBeforeAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		check.NoError(t, rdb.Set(t.Context(), "{mine}:1", "somebody", 0).Err())
		on := Servers{Redis: rdb}
		key, err := on.Occupied(t.Context(), "{mine}:")
		check.True(t, key == "{mine}:1" && err == nil, "looked for keys under the prefix: %q %v", key, err)
		key, err = on.Occupied(t.Context(), "{min?")
		check.True(t, key == "" && err == nil, "a prefix is no pattern, but %q %v", key, err)
		r := started(t, rdb, Scenario{Clients: 4, Keys: Keys{N: 3, Prefix: "{mine}:"}, Lock: Lock{Fence: true}, Patience: time.Second})
		time.Sleep(5 * time.Second)
		stop(t, r)
		keys := rdb.Keys(t.Context(), "*").Val()
		check.True(t, len(keys) == 1 && keys[0] == "{mine}:1", "left: %q", keys)
	})
}

func TestNumbersOfHoldersHaveATimeToLiveFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{Clients: 4, Keys: Keys{N: 2}, Think: Const(400 * time.Millisecond), Lock: Lock{Fence: true, TTL: time.Second}})
		for range 50 {
			time.Sleep(20 * time.Millisecond)
			for _, key := range rdb.Keys(t.Context(), "*").Val() {
				check.Require(t, rdb.PTTL(t.Context(), key).Val() != -1, "%s stays for ever", key)
			}
		}
		time.Sleep(25 * time.Second)
		for _, key := range r.Scenario().Keys.names() {
			// The next holder would have created a deleted counter again.
			left := rdb.PTTL(t.Context(), companion(key, "fence")).Val()
			check.True(t, left > 0, "the counter of %s vanished while the run goes on, or stays for ever: %s", key, left)
		}
	})
}

func TestTwoRunsOnOnePrefixRefuseEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		s := Scenario{Clients: 3, Keys: Keys{N: 2, Prefix: "{shared}:"}, Think: Const(time.Second)}
		first := started(t, rdb, s)
		time.Sleep(time.Minute)
		second := check.Must(New(Servers{Redis: rdb}, s))(t)
		check.ErrorContains(t, second.Start(), "another run uses the prefix", "a second run on the same prefix")
		stop(t, first)
		checkNoKeys(t, rdb)
		check.ErrorIs(t, second.Start(), nil, "after the first")
		check.ErrorIs(t, second.Close(), nil)
		// The mark of a killed run expires.
		check.NoError(t, rdb.SetNX(t.Context(), "{shared}:run", "dead", minGuard).Err())
		time.Sleep(minGuard + time.Second)
		started(t, rdb, s)
	})
}

// A random prefix needs no mark, which the inspector would show as a lock.
func TestOnlyAChosenPrefixIsMarked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{Clients: 1})
		changed := r.Scenario()
		changed.Clients = 2
		for _, c := range []struct {
			s      Scenario
			marked int
		}{
			{Scenario{Clients: 1, Lock: Lock{Kind: Fair}}, 0}, // as a scene
			{changed, 1}, // of the run before
			{Scenario{Clients: 1, Keys: Keys{Prefix: "{mine}:"}}, 1},
		} {
			check.NoError(t, r.Apply(c.s))
			for range 2 { // also after a stop
				check.Equal(t, len(rdb.Keys(t.Context(), "*:run").Val()), c.marked, "%q: marks", c.s.Keys.Prefix)
				stop(t, r)
				check.NoError(t, r.Start())
			}
			more := r.Scenario()
			more.Clients++
			check.NoError(t, r.Apply(more)) // without a new start
			stop(t, r)
			check.NoError(t, r.Start())
			check.Equal(t, len(rdb.Keys(t.Context(), "*:run").Val()), c.marked, "%q: marks after a change", c.s.Keys.Prefix)
		}
	})
}

// Ten clients arrive together and hold for 1 s each, so the first round waits for up to 9 s. From then on each client
// returns 9.1 s after its release, and waits for 0 s.
func TestAWarmupIsLeftOutOfTheFigures(t *testing.T) {
	m := after(t, Scenario{
		Clients: 10, Keys: Keys{N: 1}, Hold: Const(time.Second), Think: Const(9100 * time.Millisecond),
		Lock: Lock{Kind: Fair}, Warmup: 30 * time.Second, Duration: 90 * time.Second,
	})[0]
	check.True(t, m.Elapsed >= 59*time.Second && m.Elapsed <= 61*time.Second && len(m.Seconds) <= 62,
		"the figures are of %s, %d seconds", m.Elapsed, len(m.Seconds))
	check.True(t, m.Latency.Wait.Max <= time.Second && m.Fairness.Starved <= time.Second,
		"the waits of the warm-up count: %+v", m.Latency.Wait)
	check.False(t, m.Acquired < 57 || m.Acquired > 63 || m.CommandsPerHold() > 8 || m.Utilisation < 0.9,
		"%d acquired in 60 s, %.1f commands a hold, held %.2f of the time", m.Acquired, m.CommandsPerHold(), m.Utilisation)
}

func TestAStageChangesClientsAndRateOrLeavesThemAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 2, Rate: 1, Stages: []Stage{
			{For: 10 * time.Second}, {For: 10 * time.Second, Clients: 6}, {For: 10 * time.Second, Rate: 9},
		}})
		time.Sleep(time.Millisecond)
		for i, want := range []struct {
			clients  int
			arrivals int64
		}{{2, 10}, {6, 10}, {6, 90}} {
			before := r.Metrics().Arrivals
			time.Sleep(9 * time.Second)
			m := r.Metrics()
			time.Sleep(time.Second)
			if arrived := r.Metrics().Arrivals - before; m.Clients.Total != want.clients || arrived < want.arrivals-2 || arrived > want.arrivals+2 {
				t.Errorf("stage %d: %d clients and %d arrivals, want %+v", i+1, m.Clients.Total, arrived, want)
			}
		}
		<-r.Done()
	})
}

// A client that leaked a lock releases it when it is removed. If that fails the
// run reports it, unless the lock was deleted in between.
func TestAForgottenLockIsReleasedAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		name        string
		stolen, cut bool
	}{{name: "as it is"}, {name: "taken away", stolen: true}, {name: "out of reach", cut: true}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rdb, link := connectOver(t)
				r := started(t, rdb, Scenario{
					Clients: 1, Keys: Keys{N: 1}, Hold: Const(time.Second), Think: Const(time.Hour), Faults: []Fault{{Kind: Leak}},
				})
				time.Sleep(3 * time.Second)
				m := r.Metrics()
				check.Require(t, m.Abandoned == 1, "nothing was forgotten: %+v", m)
				n, err := rdb.Exists(t.Context(), r.Scenario().Keys.names()...).Result()
				check.Require(t, n == 1 && err == nil, "%d locks are held, %v", n, err)
				if c.stolen {
					rdb.Del(t.Context(), r.Scenario().Keys.names()...)
					time.Sleep(9 * time.Second)
				}
				if c.cut {
					link.Freeze()
				}
				err = r.Stop()
				check.True(t, (err != nil) == c.cut, "stopped with %v", err)
				link.Thaw()
				time.Sleep(time.Minute)
				checkNoKeys(t, rdb)
			})
		})
	}
}

// TestAGroupRunsWhatItsScenarioIsComparedWith checks that the other runs have keys of their own,
// exist as long as the scenario, and start and stop with the first run.
func TestAGroupRunsWhatItsScenarioIsComparedWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		compared := Scenario{
			Lock: Lock{Kind: Mutex, Wait: Wait{Poll: 20 * time.Millisecond}}, Versus: []Lock{{Kind: Mutex}, {Kind: Fair}},
			Keys: Keys{Pick: PickOne, N: 1}, Clients: 3, Hold: Const(8 * time.Millisecond), Think: Const(20 * time.Millisecond),
		}
		g := check.Must(NewGroup(Servers{Redis: rdb}, compared))(t)
		defer func() {
			check.ErrorIs(t, g.Close(), nil)
			checkNoKeys(t, rdb)
		}()
		check.NoError(t, g.Start())
		time.Sleep(200 * time.Millisecond)
		wantRunning := func(n int) {
			t.Helper()
			others := g.Beside()
			check.Require(t, len(others) == n, "%d runs beside the first, want %d", len(others), n)
			for _, c := range others {
				check.True(t, c.Metrics.Running && c.Metrics.Acquired != 0,
					"%s: running %v, %d acquired", c.Lock, c.Metrics.Running, c.Metrics.Acquired)
			}
		}
		wantRunning(2)
		check.Equal(t, g.Beside()[1].Lock.Kind, Fair, "the last is compared with")
		check.Equal(t, g.Metrics().Violations.Overlap.Count, 0, "the runs share their keys")
		alone := g.Scenario()
		alone.Versus = nil
		check.NoError(t, g.Apply(alone))
		time.Sleep(200 * time.Millisecond)
		wantRunning(0)
		check.NoError(t, g.Apply(compared))
		time.Sleep(200 * time.Millisecond)
		wantRunning(2)
		check.ErrorIs(t, g.Inject(Fault{Kind: Flush}), nil)
		check.NoError(t, g.Stop())
		for _, c := range g.Beside() {
			check.False(t, c.Metrics.Running, "%s goes on after Stop", c.Lock)
		}
	})
}

// With enter-every, the count of a hold rises and falls in steps, each for that time, and the lease of a hold that
// lasts longer than its TTL is renewed meanwhile.
func TestTheCountOfAHoldRisesAndFallsInSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const apart = 400 * time.Millisecond
		r := started(t, piped(t), Scenario{Clients: 1, Lock: Lock{Kind: Reentrant, TTL: time.Second}, Depth: 3, Apart: apart, Hold: Const(apart), Think: Const(time.Minute)})
		time.Sleep(5*apart + apart/2)
		m := summed(t, r)
		var counts []int
		var last time.Time
		renewals := int64(0)
		for _, e := range r.Events(0) {
			switch e.Kind {
			case Acquired:
				last = e.At
			case Counted:
				check.True(t, e.At.Sub(last) == apart, "count %d after %s", e.Depth, e.At.Sub(last))
				counts, last = append(counts, e.Depth), e.At
			case Renewed:
				renewals++
			case Released:
				check.DeepEqual(t, counts, []int{2, 3, 2, 1})
			}
		}
		check.True(t, m.Released == 1 && renewals == m.Cost.Renewals && renewals > 0, "%d released, %d renewals of %d", m.Released, renewals, m.Cost.Renewals)
	})
}
