package loadgen

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
)

// busy makes clients contend: hardly any time passes except that of Redis.
var busy = Scenario{
	Clients: 16,
	Keys:    Keys{N: 2},
	Hold:    Exp(200 * time.Microsecond),
	Think:   Exp(200 * time.Microsecond),
}

func TestSumsAgreeInAllMetrics(t *testing.T) {
	t.Parallel()
	rdb := connect(t, servertest.RedisForTest(t).Addr())
	s := busy
	s.Lock = Lock{TTL: 10 * time.Millisecond, Renew: Renew{Off: true}} // some leases end early
	s.Hold = Exp(3 * time.Millisecond)
	s.Patience = 5 * time.Millisecond // some attempts time out
	r := started(t, rdb, s)

	var all sync.WaitGroup
	done := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				summed(t, r)
			}
		}
	})
	all.Go(func() {
		random := rand.New(rand.NewPCG(5, 6))
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
				r.SetClients(random.IntN(40))
			}
		}
	})
	until(t, r, "releases, losses and time-outs", func(m Metrics) bool { return m.Released > 50 && m.Expired > 5 && m.TimedOut > 50 })
	close(done)
	all.Wait()
	stop(t, r)
	m := summed(t, r)
	check.Equal(t, m.Clients.Waiting+m.Clients.Holding+m.Clients.Idle, 0, "clients left: %+v", m)
}

func TestLoadSurvivesTheServer(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	s := busy
	s.Lock.TTL = 500 * time.Millisecond
	r := started(t, connect(t, child.Addr()), s)
	until(t, r, "acquisitions", func(m Metrics) bool { return m.Acquired > 100 })
	check.NoError(t, child.Kill())
	// Attempts that wait already do not fail; new ones cannot reach the server.
	down := until(t, r, "errors", func(m Metrics) bool { return m.Errors > 2 && m.LastErr != "" })
	checkSums(t, down)
	check.NoError(t, child.Restart(context.Background()))
	until(t, r, "acquisitions again", func(m Metrics) bool { return m.Acquired > down.Acquired+100 })
	stop(t, r)
	summed(t, r)
}

func TestClientsBackOffFromAFailingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// A go-redis pool that was closed while it could not dial tries once
		// more, one second later. Wait for it after everything else has ended.
		t.Cleanup(func() { time.Sleep(2 * time.Second) })
		gone := server.NewPiped()
		gone.Close()
		r := started(t, piping(t, gone), Scenario{Clients: 5, Think: Const(0)})
		time.Sleep(30 * time.Second)
		m := summed(t, r)
		// Pauses of 0.5 s to 1 s allow 30 to 60 attempts per client, and five
		// more that come earlier.
		check.Between(t, m.Errors, 5*30, 5*65, "errors in half a minute with 5 clients")
		check.True(t, m.LastErr != "" && m.Acquired == 0, "got %+v", m)
	})
}

func TestRemovedClientFinishesItsHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{Clients: 1, Hold: Const(time.Minute)})
		time.Sleep(time.Second)
		r.SetClients(0)
		time.Sleep(58 * time.Second)
		m := summed(t, r)
		check.Require(t, m.Clients.Holding == 1 && m.Clients.Total == 1, "did not finish its hold: %+v", m)
		time.Sleep(2 * time.Second)
		m = summed(t, r)
		check.True(t, m.Clients.Total == 0 && m.Released == 1 && m.Lost == 0 && m.Running, "did not go: %+v", m)
		checkNoKeys(t, rdb)
	})
}

func TestARemovedClientStopsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 1, Keys: Keys{N: 1}, Hold: Const(time.Hour), Think: Const(0)})
		time.Sleep(time.Second)
		r.SetClients(2)
		time.Sleep(time.Second)
		if m := r.Metrics(); m.Clients.Waiting != 1 || m.Clients.Holding != 1 || m.Arrivals != 2 {
			t.Fatalf("one should hold, one wait: %+v", m)
		}
		r.SetClients(1)
		time.Sleep(time.Second)
		m := summed(t, r)
		check.True(t, m.Clients.Total == 1 && m.Clients.Holding == 1 && m.Arrivals == 2 && m.CutOff == 1 && m.TimedOut+m.Errors == 0,
			"an attempt that was called off should count as that: %+v", m)
		check.True(t, m.Latency.Wait.Max == time.Second && m.Latency.Wait.Censored == 1 && m.Fairness.Starved == time.Second,
			"it waited for 1 s: %+v, longest wait %s", m.Latency.Wait, m.Fairness.Starved)
	})
}

func TestLeavingClientsAreNotToldAgainNorReplacedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), Scenario{Clients: 4, Keys: Keys{N: 100}, Seed: 5, Hold: Const(time.Minute)})
		time.Sleep(time.Second)
		if m := r.Metrics(); m.Clients.Holding != 4 {
			t.Fatalf("%d hold: with this seed not all choose keys of their own", m.Clients.Holding)
		}
		r.SetClients(3)
		r.SetClients(1) // three clients are to leave, but hold for a minute
		r.SetClients(2)
		time.Sleep(time.Second)
		m := summed(t, r)
		check.Equal(t, m.Clients.Total, 5, "clients")
		time.Sleep(time.Minute)
		m = summed(t, r)
		check.Equal(t, m.Clients.Total, 2, "clients")
	})
}

func TestStopCutsWorkShortAndReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{Clients: 5, Keys: Keys{N: 2}, Seed: 1, Hold: Const(time.Hour)})
		time.Sleep(10 * time.Second)
		before := time.Now()
		stop(t, r)
		check.AtMost(t, time.Since(before), time.Second)
		checkNoKeys(t, rdb)
		m := summed(t, r)
		// A holder may be stopped, and release, a moment before a waiter is stopped.
		check.True(t, m.Acquired >= 2 && m.Released == m.Acquired && m.Arrivals == 5 && m.Acquired+m.CutOff == 5 && !m.Running,
			"two held and three waited: %+v", m)
		time.Sleep(time.Minute)
		if again := r.Metrics(); again.Elapsed != m.Elapsed || m.Elapsed < 10*time.Second || m.Elapsed > 11*time.Second {
			t.Errorf("the clock went on from %s to %s", m.Elapsed, again.Elapsed)
		}
	})
}

func TestImpatientClientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		check.NoError(t, rdb.Set(t.Context(), "stuck:1", "somebody", 0).Err())
		r := started(t, rdb, Scenario{
			Clients: 1, Keys: Keys{N: 1, Prefix: "stuck:"}, Patience: 2 * time.Second, Think: Const(time.Second),
		})
		time.Sleep(28 * time.Second)
		m := summed(t, r)
		check.True(t, m.TimedOut == 9 && m.Clients.Waiting == 1 && m.Errors == 0 && m.LastErr == "",
			"2 s of patience every 3 s, after 28 s: %+v", m)
	})
}

// The first client holds for 3 s. The other arrives 1 s later and waits for 2 s.
func TestWaitIsTimedFromTheArrival(t *testing.T) {
	m := after(t, Scenario{Clients: 2, Keys: Keys{N: 1}, Hold: Const(3 * time.Second), Think: Const(2 * time.Second)}, 4*time.Second)[0]
	check.True(t, m.Acquired == 2 && m.Latency.Wait.Max >= 2*time.Second && m.Latency.Wait.Max <= 2100*time.Millisecond, "got %+v", m)
}

func TestRestartBeginsNewFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		r := started(t, rdb, Scenario{Clients: 2})
		time.Sleep(5 * time.Second)
		stop(t, r)
		first := r.Metrics()
		r.SetClients(3)
		check.NoError(t, r.Start())
		time.Sleep(time.Second)
		m := summed(t, r)
		check.True(t, m.Clients.Total == 3 && m.Running && m.Elapsed == time.Second && m.Acquired != 0 && m.Acquired < first.Acquired,
			"got %+v after %+v", m, first)
	})
}

func TestStartAndStopMayBeRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := check.Must(New(Servers{Redis: piped(t)}, Scenario{Clients: 3}))(t)
		m := r.Metrics()
		check.True(t, !m.Running && m.Clients.Total == 0 && m.Elapsed == 0, "before the start: %+v", m)
		stop(t, r)
		for range 2 {
			check.NoError(t, r.Start())
		}
		m = r.Metrics()
		check.True(t, m.Running && m.Clients.Total == 3, "after two starts: %+v", m)
		stop(t, r)
		stop(t, r)
		for range 2 {
			check.ErrorIs(t, r.Close(), nil)
		}
		check.ErrorIs(t, r.Start(), ErrClosed, "Start after Close")
	})
}

func TestAllMethodsAtOnce(t *testing.T) {
	t.Parallel()
	r := started(t, connect(t, servertest.RedisForTest(t).Addr()), busy)
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			for n := range 10 {
				r.SetClients((n * i) % 30)
				summed(t, r)
				check.ErrorIs(t, r.Stop(), nil)
				check.ErrorIs(t, r.Start(), nil)
				check.Between(t, r.Scenario().Clients, 0, 30, "clients")
			}
		})
	}
	all.Wait()
}

// SetClients sets the number of clients, 0 to MaxClients, for now and for the next
// start. It does not wait. New clients start immediately. Those with the highest
// numbers finish their hold and leave.
func (r *Run) SetClients(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.scenario.Clients = min(max(n, 0), MaxClients)
	if r.running {
		s := *r.fleet.scenario.Load()
		s.Clients = r.scenario.Clients
		if err := r.fleet.apply(s); err != nil {
			r.fleet.recorder.setError(err)
		}
	}
}

// BenchmarkLoop runs the loop with all features, hardly any contention, and no
// hold or think time. B1 of lab/docs/benchmarks.md has the rate of the locks without it.
func BenchmarkLoop(b *testing.B) {
	r := check.Must(New(Servers{Redis: connect(b, servertest.RedisForTest(b).Addr())}, Scenario{
		Clients: 64, Conns: 1, Keys: Keys{N: MaxKeys}, Hold: Const(0), Think: Const(0),
	}))(b)
	running(b, r)
	b.ResetTimer()
	began := r.Metrics().Acquired
	for r.Metrics().Acquired < began+int64(b.N) {
		time.Sleep(100 * time.Millisecond) // a snapshot of so many keys takes milliseconds
	}
	b.ReportMetric(float64(r.Metrics().Acquired-began)/b.Elapsed().Seconds(), "cycles/s")
}
