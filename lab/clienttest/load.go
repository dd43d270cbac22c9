package clienttest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// load runs a scenario on the server of the rig, with processes of the client, until its
// end. It returns the metrics and all events.
func (r *rig) load(s loadgen.Scenario) (loadgen.Metrics, []loadgen.Event) {
	s.Lock.Exec, s.Seed = r.profile.Command, r.options.Seed
	s.Keys = loadgen.Keys{Pick: loadgen.PickOne, N: 1}
	run, err := loadgen.New(loadgen.Servers{Redis: r.admin[0]}, s)
	must(err, "%v")
	defer func() { _ = run.Close() }() // the server ends with the test
	var mu sync.Mutex
	var events []loadgen.Event
	run.Listen(func(e loadgen.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	must(run.Start(), "%v")
	select {
	case <-run.Done():
	case <-r.ctx.Done():
	}
	_ = run.Close()
	mu.Lock()
	defer mu.Unlock()
	return run.Metrics(), events
}

// hotKey lets clients contend for one lock.
func hotKey(r *rig) Verdict {
	const clients = 8
	m, events := r.load(loadgen.Scenario{
		Lock: loadgen.Lock{TTL: r.ttl}, Clients: clients, Hold: loadgen.Exp(10 * time.Millisecond), Think: loadgen.Exp(5 * time.Millisecond), Duration: 3 * time.Second,
	})
	holds := fmt.Sprintf("%s by %d clients in %s", humanize.Plural(m.Acquired, "hold"), clients, humanize.Precise(m.Elapsed))
	switch together := m.Violations.Overlap.Count; {
	case together > 0:
		v := failed("%s, and %s while another client was inside. %s", holds, humanize.Plural(together, "acquire"), overlapText(m.Violations))
		v.Overlap = true
		r.around(m.Violations, events)
		return v
	case m.Acquired < 2*clients:
		return inconclusive("Only %s; last error: %s.", holds, m.LastErr)
	}
	return passed("%s, never two inside at once.", holds)
}

// waiters lets many clients wait for one lock.
func waiters(r *rig) Verdict {
	n := r.options.Waiters
	m, events := r.load(loadgen.Scenario{
		Lock: loadgen.Lock{TTL: 5 * r.ttl}, Clients: n, Hold: loadgen.Const(5 * time.Millisecond), Think: loadgen.Const(0), Duration: max(time.Duration(n)*100*time.Millisecond, 3*time.Second),
	})
	if m.Acquired < 2 {
		return inconclusive("%s by %d clients; last error: %s.", humanize.Plural(m.Acquired, "hold"), n, m.LastErr)
	}
	return r.judgeWaiters(m, events, n)
}

func (r *rig) judgeWaiters(m loadgen.Metrics, events []loadgen.Event, n int) Verdict {
	least, most, passed := fairness(events, n)
	text := fmt.Sprintf("%s by %d clients in %s: %.1f commands per hold, hand-off p50 %s, wait p50 %s, p99 %s, max %s; %d to %s per client; a waiter was passed over %s at most.",
		humanize.Plural(m.Acquired, "hold"), n, humanize.Precise(m.Elapsed), float64(m.Cost.Commands)/float64(m.Acquired), humanize.Precise(m.Latency.Handoff.P50),
		humanize.Precise(m.Latency.Wait.P50), humanize.Precise(m.Latency.Wait.P99), humanize.Precise(m.Latency.Wait.Max), least, humanize.Plural(most, "hold"), humanize.Times(passed))
	v := Verdict{Outcome: Observed, Evidence: text}
	switch {
	case m.Violations.Overlap.Count > 0:
		v.Outcome, v.Overlap, v.Evidence = Fail, true, text+" "+overlapText(m.Violations)
		r.around(m.Violations, events)
	case least == 0 && m.Acquired >= starved*int64(n):
		v.Outcome = Fail
	}
	return v
}

// starved is how often the clients get the lock on average, in a run in which one of them
// never gets it, if that one starves.
const starved = 20

// fairness returns the fewest and the most holds of a client, and how often a waiter was
// passed over at most: how many others got the lock while it waited.
func fairness(events []loadgen.Event, clients int) (least, most, passed int) {
	holds, since := make([]int, clients), make([]int, clients)
	all := 0
	for _, e := range events {
		if e.Client < 1 || e.Client > clients {
			continue
		}
		c := e.Client - 1
		switch e.Kind {
		case loadgen.Arrived:
			since[c] = all
		case loadgen.Acquired:
			passed = max(passed, all-since[c])
			all++
			holds[c]++
			since[c] = all
		}
	}
	for c := range holds {
		passed = max(passed, all-since[c])
	}
	return slices.Min(holds), slices.Max(holds), passed
}

// around adds the spans around the first overlap.
func (r *rig) around(found oracle.Violations, events []loadgen.Event) {
	e, ok := firstOverlap(found)
	if !ok {
		return
	}
	from, to := e.First.From.Add(-100*time.Millisecond), e.At.Add(e.Length+100*time.Millisecond)
	for _, ev := range events {
		r.addEvent(ev, from, to)
	}
	r.violated(found)
}

// addEvent adds the span of an event that ended between two times.
func (r *rig) addEvent(e loadgen.Event, from, to time.Time) {
	if e.At.Before(from) || e.At.After(to) || e.Client == 0 {
		return
	}
	row := oracle.ClientLabel(e.Client)
	switch e.Kind {
	case loadgen.Acquired, loadgen.TimedOut:
		r.span(row, e.At.Add(-e.Took), e.At, Waiting, "lock")
	case loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Abandoned:
		r.span(row, e.At.Add(-e.Took), e.At, Holding, "")
	}
}
