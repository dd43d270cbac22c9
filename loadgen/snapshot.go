package loadgen

import (
	"encoding/base64"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"locktop/internal/humanize"
)

// Snapshot is what one process knows of a run of several processes. It can be sent as JSON
// and merged with the snapshots of the others by a [Merger].
type Snapshot struct {
	Metrics Metrics // without Latency and Seconds

	Latencies [5]Distribution // in the order of Metrics.Latency

	Seconds []SecondShare // those that ended since the snapshot before

	Clients     int           // that have ever taken part
	Squares     float64       // sum of the squares of the acquires of each client
	ClockBehind time.Duration // what must be added to the times of Metrics to get those of a common clock
}

// AgentState is the state of one of the processes of a run, seen by the coordinator.
type AgentState struct {
	Number  int           // from 1
	Name    string        // host:pid
	Clock   time.Duration // what must be added to its clock to get the common one
	Seen    time.Duration // since its newest message
	Ready   bool          // it has come
	Lost    bool          // it has not been heard of for too long
	Stopped bool          // its clients have ended
	Clients int           // of its share
	Metrics Metrics       // of its clients; Began is zero before they start
}

// Offset describes how far the clock of the process is ahead of the common one.
func (a AgentState) Offset() string {
	switch {
	case a.Clock.Abs() < time.Millisecond:
		return "±1 ms"
	case a.Clock > 0:
		return "-" + humanize.Precise(a.Clock)
	}
	return "+" + humanize.Precise(-a.Clock)
}

// SecondShare is the share of a process in one second of a run.
type SecondShare struct {
	Number int // from 0
	Second     // without its Wait
	Wait   Distribution
}

// Distribution is a histogram of durations in a form that can be sent.
type Distribution struct {
	Counts   string // as HdrHistogram encodes them, version 2, compressed, in base64
	Max      time.Duration
	Censored int64
}

// keepSecond keeps the distribution of a second until the next [Run.Snapshot].
func (r *recorder) keepSecond(number int, of Second, waits *histogram) {
	r.unsent = append(r.unsent, SecondShare{number, of, waits.distribution()})
	r.unsent = r.unsent[max(0, len(r.unsent)-HistorySeconds):]
}

// Snapshot returns the state of a run that has joined others; see [Run.Join]. Each second
// is in one snapshot only.
func (r *Run) Snapshot() Snapshot {
	f := r.newest()
	if f == nil {
		return Snapshot{}
	}
	s := Snapshot{Metrics: f.metrics()}
	s.Metrics.Latency, s.Metrics.Seconds = Latencies{}, nil
	rec := f.recorder
	rec.mu.Lock()
	defer rec.mu.Unlock()
	for i, h := range rec.all() {
		s.Latencies[i] = h.distribution()
	}
	if !s.Metrics.Running { // the last second was cut short
		t := rec.timeline
		t.keep(t.current, t.now(), t.wait)
	}
	s.Seconds, rec.unsent = rec.unsent, nil
	for i := range rec.clients {
		s.Clients++
		s.Squares += float64(rec.clients[i].acquired) * float64(rec.clients[i].acquired)
	}
	return s
}

// distribution returns the histogram in a form that can be sent.
func (h *histogram) distribution() Distribution {
	if h.hdr.TotalCount() == 0 {
		return Distribution{}
	}
	text, err := h.hdr.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		panic(fmt.Sprintf("encode a histogram: %v", err)) // it has the bounds of newHistogram
	}
	return Distribution{string(text), h.max, h.censored}
}

// addTo adds the distribution to a histogram.
func (d Distribution) addTo(h *histogram) error {
	h.max = max(h.max, d.Max)
	h.censored += d.Censored
	if d.Counts == "" {
		return nil
	}
	if _, err := base64.StdEncoding.DecodeString(d.Counts); err != nil || len(d.Counts) > 64<<10 { // all its buckets take less
		return fmt.Errorf("a histogram is not as this program sends it")
	}
	hdr, err := hdrhistogram.Decode([]byte(d.Counts))
	if err != nil {
		return fmt.Errorf("a histogram is not as this program sends it: %w", err)
	}
	if dropped := h.hdr.Merge(hdr); dropped > 0 {
		return fmt.Errorf("a histogram has %d values that are out of bounds", dropped)
	}
	return nil
}

// Merger adds up the snapshots of several processes. The zero value has none. Not safe for
// concurrent use.
type Merger struct {
	agents map[int]*merged // by number
	whole  map[int]Second  // the newest seconds that are known of all processes, by number
}

// merged is what is known of one process.
type merged struct {
	newest  Snapshot
	lost    bool
	seconds map[int]SecondShare // the newest ones
	ended   int                 // number of seconds that have ended
}

// Add adds a newer snapshot of a process. It returns an error, and changes nothing, if the
// snapshot is not as [Run.Snapshot] returns it.
func (m *Merger) Add(agent int, s Snapshot) error {
	if err := s.Metrics.check(); err != nil {
		return err
	}
	check := newHistogram()
	for _, d := range s.Latencies {
		if err := d.addTo(check); err != nil {
			return err
		}
	}
	for _, second := range s.Seconds {
		if err := second.Wait.addTo(check); err != nil {
			return err
		}
	}
	if m.agents == nil {
		m.agents = make(map[int]*merged)
	}
	a := m.agents[agent]
	if a == nil || !a.newest.Metrics.Began.Equal(s.Metrics.Began) { // the end of the warm-up
		a = &merged{seconds: make(map[int]SecondShare)}
		m.agents[agent] = a
		m.whole = make(map[int]Second)
	}
	a.newest = s
	for _, second := range s.Seconds {
		a.seconds[second.Number] = second
		a.ended = max(a.ended, second.Number+1)
		delete(a.seconds, second.Number-HistorySeconds)
	}
	a.newest.Seconds = nil
	return nil
}

// check returns an error for figures that no run can have.
func (m *Metrics) check() error {
	c := m.Clients
	if m.Arrivals != m.Acquired+m.TimedOut+m.Refused+m.Errors+m.CutOff+int64(c.Waiting) ||
		m.Acquired != m.Released+m.Expired+m.Lost+m.Unconfirmed+m.Abandoned+int64(c.Holding) ||
		c.Total != c.Idle+c.Waiting+c.Holding+c.Dead || c.Total != len(c.States) ||
		slices.ContainsFunc(c.States, func(s ClientState) bool { return s > Dead }) {
		return fmt.Errorf("a snapshot is not as this program sends it: its counts do not agree")
	}
	return nil
}

// Lost notes that a process is gone. Its clients count as crashed.
func (m *Merger) Lost(agent int) {
	if a := m.agents[agent]; a != nil {
		a.lost = true
	}
}

// Of returns the newest metrics of one process. Seconds has only the newest one that has
// ended.
func (m *Merger) Of(agent int) Metrics {
	a := m.agents[agent]
	if a == nil {
		return Metrics{}
	}
	metrics := a.metrics()
	one := Merger{agents: map[int]*merged{agent: a}}
	metrics.Latency = one.latencies()
	if a.ended > 0 {
		metrics.Seconds = []Second{one.second(a.ended - 1)}
	}
	return metrics
}

// Metrics returns the sums of all processes. Times are those of the common clock. These
// figures cannot be added up: Utilisation is the sum of the shares, which is exact if all
// processes use the same keys; the CPU time and the outage of the servers, and the stall, are
// the largest of any process. Fairness has no Streak, and Latency no Handoff.
func (m *Merger) Metrics() Metrics {
	var all Metrics
	var clients int
	var squares float64
	for _, number := range slices.Sorted(maps.Keys(m.agents)) {
		a := m.agents[number]
		one := a.metrics()
		all.add(one)
		clients += a.newest.Clients
		squares += a.newest.Squares
	}
	all.Fairness.Jain = ratio(float64(all.Acquired)*float64(all.Acquired), float64(clients)*squares)
	all.Utilisation = min(all.Utilisation, 1)
	all.Latency = m.latencies()
	all.Seconds = m.seconds(&all)
	return all
}

// metrics returns the metrics of the process at the times of the common clock. The clients
// of a lost process have crashed.
func (a *merged) metrics() Metrics {
	one, s := a.newest.Metrics, a.newest
	one.Began = one.Began.Add(s.ClockBehind)
	one.Violations.Evidence = slices.Clone(one.Violations.Evidence)
	for i := range one.Violations.Evidence {
		one.Violations.Evidence[i] = one.Violations.Evidence[i].Shift(s.ClockBehind)
	}
	if a.lost {
		one.Running = false
		one.Abandoned += int64(one.Clients.Holding)
		one.CutOff += int64(one.Clients.Waiting)
		one.Clients = ClientCounts{Total: one.Clients.Total, Dead: one.Clients.Total, States: slices.Repeat([]ClientState{Dead}, len(one.Clients.States))}
	}
	return one
}

// add adds the figures of one process, without those that need a histogram.
func (m *Metrics) add(one Metrics) {
	if m.Began.IsZero() || one.Began.Before(m.Began) {
		m.Began = one.Began
	}
	m.Elapsed = max(m.Elapsed, one.Elapsed)
	m.Running = m.Running || one.Running
	addCounts(&m.Counts, one.Counts)
	if one.LastErr != "" {
		m.LastErr = one.LastErr
	}
	addCounts(&m.Clients, one.Clients)
	m.Clients.States = append(m.Clients.States, one.Clients.States...)
	cpu := max(m.Cost.CPU, one.Cost.CPU)
	addCounts(&m.Cost, one.Cost)
	m.Cost.CPU = cpu
	m.Utilisation += one.Utilisation
	m.Fairness.Starved = max(m.Fairness.Starved, one.Fairness.Starved)
	m.Violations.Add(one.Violations)
	o := &m.Outage
	if one.Outage.Total > o.Total || o.Error == "" {
		o.Error = one.Outage.Error
	}
	o.Total, o.Longest, o.Lost = max(o.Total, one.Outage.Total), max(o.Longest, one.Outage.Longest), max(o.Lost, one.Outage.Lost)
	m.Stall = Stall{max(m.Stall.Total, one.Stall.Total), max(m.Stall.Longest, one.Stall.Longest)}
}

// addCounts adds the numbers of a struct to those of another one.
func addCounts[T any](to *T, one T) {
	sum, other := reflect.ValueOf(to).Elem(), reflect.ValueOf(one)
	for i := range sum.NumField() {
		if sum.Field(i).CanInt() {
			sum.Field(i).SetInt(sum.Field(i).Int() + other.Field(i).Int())
		}
	}
}

// latencies returns those of the sums of the distributions.
func (m *Merger) latencies() Latencies {
	sums := newHistograms()
	for _, a := range m.agents {
		for i, h := range sums.all() {
			_ = a.newest.Latencies[i].addTo(h) // Add has checked it
		}
	}
	return sums.latencies()
}

// seconds returns the newest seconds, for metrics all, which it shortens to the seconds that
// are known of every running process.
func (m *Merger) seconds(all *Metrics) []Second {
	whole := int(all.Elapsed / time.Second)
	if !all.Running {
		whole++ // the last second was cut short
	}
	for _, a := range m.agents {
		if all.Running && a.newest.Metrics.Running && !a.lost && a.ended < whole {
			whole = a.ended
			all.Elapsed = min(all.Elapsed, time.Duration(whole+1)*time.Second-1)
		}
	}
	last := whole
	if all.Running {
		last++ // the current second
	}
	var seconds []Second
	first := max(0, last-HistorySeconds)
	for number := first; number < last; number++ {
		second, known := m.whole[number]
		if !known {
			second = m.second(number)
			if all.Running && number < whole {
				m.whole[number] = second
			}
		}
		seconds = append(seconds, second)
	}
	delete(m.whole, first-1)
	return seconds
}

// second returns the sum of one second.
func (m *Merger) second(number int) Second {
	h, sum := newHistogram(), Second{}
	for _, a := range m.agents {
		second := a.seconds[number]
		addCounts(&sum, second.Second)
		_ = second.Wait.addTo(h) // Add has checked it
	}
	sum.Wait = h.latency()
	return sum
}
