package loadgen

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/oracle"
)

// figure is an entry of the table of figures. Thresholds, reports, baselines and the screen
// read the table.
type figure struct {
	name  string // in a threshold: "wait.p99"; in JSON its parts are keys, and that of a time ends with _ms
	unit  unit
	value func(*Metrics) float64 // times in seconds, shares from 0 to 1
	known func(*Metrics) bool    // whether there are samples; nil: always
}

type unit uint8

const (
	number unit = iota
	timed
	share
	perSecond
)

// of returns the value of the figure, and whether it is known.
func (f figure) of(m Metrics) (v float64, known bool) {
	if f.value == nil || f.known != nil && !f.known(&m) {
		return 0, false
	}
	return f.value(&m), true
}

// figures returns the table.
var figures = sync.OnceValue(func() []figure {
	all := countFigures()
	for _, k := range oracle.Kinds() {
		all = append(all, violationFigures(k)...)
	}
	acquired := func(m *Metrics) bool { return m.Acquired > 0 }
	all = append(all,
		figure{"throughput", perSecond, func(m *Metrics) float64 { return m.Throughput() }, nil},
		figure{"commands_per_hold", number, func(m *Metrics) float64 { return m.CommandsPerHold() }, acquired},
		figure{"attempts_per_hold", number, func(m *Metrics) float64 { return float64(m.Cost.Attempts) / float64(m.Acquired) }, func(m *Metrics) bool { return acquired(m) && m.Cost.Attempts > 0 }},
		figure{"server_cpu_per_hold", timed, func(m *Metrics) float64 { return m.Cost.CPU.Seconds() / float64(m.Acquired) }, func(m *Metrics) bool { return acquired(m) && m.Cost.CPU > 0 }},
		figure{"utilisation", share, func(m *Metrics) float64 { return m.Utilisation }, acquired},
		figure{"fairness.jain", number, func(m *Metrics) float64 { return m.Fairness.Jain }, acquired},
		figure{"fairness.starved", timed, func(m *Metrics) float64 { return m.Fairness.Starved.Seconds() }, func(m *Metrics) bool { return m.Offered() > 0 }},
		figure{"fairness.streak", number, func(m *Metrics) float64 { return float64(m.Fairness.Streak) }, func(m *Metrics) bool { return m.Fairness.Streak > 0 }},
		figure{"outage.total", timed, func(m *Metrics) float64 { return m.Outage.Total.Seconds() }, nil},
		figure{"outage.longest", timed, func(m *Metrics) float64 { return m.Outage.Longest.Seconds() }, nil},
		figure{"outage.restarts", number, func(m *Metrics) float64 { return float64(m.Outage.Lost) }, nil},
		figure{"stall.total", timed, func(m *Metrics) float64 { return m.Stall.Total.Seconds() }, nil},
		figure{"stall.longest", timed, func(m *Metrics) float64 { return m.Stall.Longest.Seconds() }, nil})
	for i, name := range LatencyNames() {
		all = append(all, latencyFigures(name, func(m *Metrics) Latency { return m.Latency.all()[i] })...)
	}
	return append(all, figure{"wait.censored", number, func(m *Metrics) float64 { return float64(m.Latency.Wait.Censored) }, func(m *Metrics) bool { return m.Latency.Wait.Count > 0 }})
})

// countFigures returns the counts of attempts and holds, and the shares of some.
func countFigures() (all []figure) {
	for _, c := range []struct {
		name  string
		of    func(*Metrics) int64
		whole func(*Metrics) int64 // of which a share is a figure, too; nil: none
		part  func(*Metrics) int64 // that is the share; nil: the count
	}{
		{name: "offered", of: func(m *Metrics) int64 { return m.Offered() }},
		{name: "arrivals", of: arrivals},
		{name: "backlog", of: func(m *Metrics) int64 { return m.Backlog }},
		{name: "late", of: func(m *Metrics) int64 { return m.LateArrivals }, whole: arrivals},
		{name: "acquired", of: acquisitions},
		{name: "timed_out", of: func(m *Metrics) int64 { return m.TimedOut }, whole: arrivals},
		{name: "refused", of: func(m *Metrics) int64 { return m.Refused }},
		{name: "errors", of: func(m *Metrics) int64 { return m.Errors }, whole: arrivals},
		{name: "waiting", of: func(m *Metrics) int64 { return m.CutOff + int64(m.Clients.Waiting) }},
		{name: "released", of: func(m *Metrics) int64 { return m.Released }},
		{name: "expired", of: func(m *Metrics) int64 { return m.Expired }},
		{name: "lost", of: func(m *Metrics) int64 { return m.Lost }, whole: acquisitions, part: func(m *Metrics) int64 { return m.Lost + m.Expired }},
		{name: "unconfirmed", of: func(m *Metrics) int64 { return m.Unconfirmed }},
		{name: "abandoned", of: func(m *Metrics) int64 { return m.Abandoned }},
		{name: "holding", of: func(m *Metrics) int64 { return int64(m.Clients.Holding) }},
		{name: "attempts", of: func(m *Metrics) int64 { return m.Cost.Attempts }},
		{name: "renewals", of: func(m *Metrics) int64 { return m.Cost.Renewals }},
		{name: "commands", of: func(m *Metrics) int64 { return m.Cost.Commands }},
		{name: "unjudged", of: func(m *Metrics) int64 { return m.Violations.Unjudged }},
	} {
		all = append(all, figure{c.name + ".count", number, func(m *Metrics) float64 { return float64(c.of(m)) }, nil})
		if c.whole == nil {
			continue
		}
		part := c.of
		if c.part != nil {
			part = c.part
		}
		all = append(all, figure{c.name + ".rate", share, func(m *Metrics) float64 { return float64(part(m)) / float64(c.whole(m)) }, func(m *Metrics) bool { return c.whole(m) > 0 }})
	}
	return all
}

func arrivals(m *Metrics) int64     { return m.Arrivals }
func acquisitions(m *Metrics) int64 { return m.Acquired }

// violationFigures returns the figures of a kind of violation.
func violationFigures(k oracle.Kind) []figure {
	add := func(name string, u unit, of func(*oracle.Tally) float64) figure {
		return figure{string(k.ID) + "." + name, u, func(m *Metrics) float64 { return of(k.Of(&m.Violations)) }, func(m *Metrics) bool { return !k.Of(&m.Violations).Unknown }}
	}
	all := []figure{add("count", number, func(t *oracle.Tally) float64 { return float64(t.Count) })}
	if k.Excusable {
		all = append(all, add("excused", number, func(t *oracle.Tally) float64 { return float64(t.Excused) }))
	}
	if k.Lasts {
		all = append(all, add("total", timed, func(t *oracle.Tally) float64 { return t.Total.Seconds() }),
			add("longest", timed, func(t *oracle.Tally) float64 { return t.Longest.Seconds() }))
	}
	return all
}

// LatencyNames returns the names of the latencies in the order of the fields.
func LatencyNames() []string { return []string{"wait", "release", "held", "hand_off", "renewal_late"} }

// LatencyParts returns the names of the figures of each latency, without the latency.
func LatencyParts() []string {
	return []string{"count", "mean", "p50", "p90", "p95", "p99", "p99_9", "max"}
}

func (l Latencies) all() []Latency {
	return []Latency{l.Wait, l.Release, l.Held, l.Handoff, l.RenewLate}
}

// latencyFigures returns the figures of a latency.
func latencyFigures(name string, latency func(*Metrics) Latency) (all []figure) {
	samples := func(m *Metrics) bool { return latency(m).Count > 0 }
	all = append(all, figure{name + ".count", number, func(m *Metrics) float64 { return float64(latency(m).Count) }, samples})
	for i, part := range LatencyParts()[1:] {
		all = append(all, figure{name + "." + part, timed, func(m *Metrics) float64 {
			l := latency(m)
			return []time.Duration{l.Mean, l.P50, l.P90, l.P95, l.P99, l.P999, l.Max}[i].Seconds()
		}, samples})
	}
	return all
}

func figureNamed(name string) (figure, bool) {
	i := slices.IndexFunc(figures(), func(f figure) bool { return f.name == name })
	if i < 0 {
		return figure{}, false
	}
	return figures()[i], true
}

// FigureNames returns the names that a threshold can use.
func FigureNames() (names []string) {
	for _, f := range figures() {
		names = append(names, f.name)
	}
	return names
}

// Figures are the figures of a run that have samples, by their names: times in seconds, shares
// from 0 to 1.
type Figures map[string]float64

// Figures returns the figures that have samples.
func (m Metrics) Figures() Figures {
	all := make(Figures)
	for _, f := range figures() {
		if v, known := f.of(m); known {
			all[f.name] = v
		}
	}
	return all
}

// Text returns a figure with its unit, "?" if there are no samples.
func (f Figures) Text(name string) string {
	v, known := f[name]
	if !known {
		return "?"
	}
	return FigureText(name, v)
}

// FigureText returns a value of a figure with its unit.
func FigureText(name string, v float64) string {
	f, _ := figureNamed(name)
	return f.unit.text(v)
}

// MarshalJSON returns the figures as nested objects: hand_off.p99 is {"hand_off": {"p99_ms": …}}.
func (f Figures) MarshalJSON() ([]byte, error) {
	return json.Marshal(NestFigures(f, func(v, scale float64) any { return math.Round(v*scale*1e6) / 1e6 }))
}

// NestFigures returns values by the names of figures as nested objects for JSON. A value in
// JSON is that of the figure times scale: times are in milliseconds.
func NestFigures[V any](values map[string]V, convert func(v V, scale float64) any) map[string]any {
	all := make(map[string]any)
	for name, v := range values {
		f, _ := figureNamed(name)
		group, part, nested := strings.Cut(name, ".")
		key, scale := group, 1.0
		in := all
		if nested {
			if all[group] == nil {
				all[group] = make(map[string]any)
			}
			in, key = all[group].(map[string]any), part
		}
		if f.unit == timed {
			key, scale = key+"_ms", 1000
		}
		in[key] = convert(v, scale)
	}
	return all
}

// UnmarshalJSON reads the form of MarshalJSON. It ignores figures that it does not know.
func (f *Figures) UnmarshalJSON(text []byte) error {
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("read the figures: %w", err)
	}
	*f = make(Figures)
	for _, one := range figures() {
		value, scale, path := any(all), 1.0, one.name
		if one.unit == timed {
			path, scale = path+"_ms", 1000
		}
		for key := range strings.SplitSeq(path, ".") {
			object, _ := value.(map[string]any)
			value = object[key]
		}
		if v, ok := value.(float64); ok {
			(*f)[one.name] = v / scale
		}
	}
	return nil
}

// Label returns the words for a figure, or for a part of its name.
func Label(name string) string {
	return strings.NewReplacer("p99_9", "p99.9", "hand_off", "hand-off", "_", " ", ".", " ").Replace(strings.TrimSuffix(name, ".count"))
}

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// Throughput returns acquires per second, over the whole run.
func (m Metrics) Throughput() float64 { return ratio(float64(m.Acquired), m.Elapsed.Seconds()) }

// CommandsPerHold returns the number of commands per acquire, including those of
// waiting, renewal and release.
func (m Metrics) CommandsPerHold() float64 {
	return ratio(float64(m.Cost.Commands), float64(m.Acquired))
}

// text returns a measured value for people.
func (u unit) text(v float64) string {
	switch {
	case u == share:
		return fmt.Sprintf("%.3g%%", 100*v)
	case u == timed:
		return humanize.Precise(time.Duration(v * float64(time.Second)))
	case u == perSecond:
		return fmt.Sprintf("%.1f/s", v)
	case v == math.Trunc(v):
		return humanize.Count(int64(v))
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}
