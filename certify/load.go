package certify

import (
	"fmt"
	"sync"
	"time"

	"locktop/humanize"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// load runs a scenario on the server of the rig, with processes of the client, until its
// end. It returns the metrics and all events.
func (r *rig) load(s loadgen.Scenario) (loadgen.Metrics, []loadgen.Event) {
	s.Lock.Exec, s.Seed = r.profile.Command, r.options.Seed
	s.Keys = loadgen.Keys{Pick: loadgen.PickOne, N: 1}
	run, err := loadgen.New(loadgen.Servers{Redis: r.admin[0]}, s)
	if err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: err.Error()}})
	}
	defer func() { _ = run.Close() }() // the server ends with the test
	var mu sync.Mutex
	var events []loadgen.Event
	run.Listen(func(e loadgen.Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, e)
	})
	if err := run.Start(); err != nil {
		panic(stop{Verdict{Outcome: Inconclusive, Evidence: err.Error()}})
	}
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
		Lock: loadgen.Lock{TTL: ttl}, Clients: clients, Hold: loadgen.Exp(10 * time.Millisecond), Think: loadgen.Exp(5 * time.Millisecond), Duration: 5 * time.Second,
	})
	holds := fmt.Sprintf("%s by %d clients in %s", humanize.Plural(m.Acquired, "hold"), clients, humanize.Precise(m.Elapsed))
	switch together := m.Violations.Overlap.Count; {
	case together > 0:
		v := failed("%s, and %s while another client was inside. %s", holds, humanize.Plural(together, "acquire"), overlapText(m.Violations))
		v.Overlap = true
		r.around(m.Violations, events)
		return v
	case m.Acquired < 2*clients:
		return Verdict{Outcome: Inconclusive, Evidence: fmt.Sprintf("Only %s; last error: %s.", holds, m.LastErr)}
	}
	return passed("%s, never two inside at once.", holds)
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
