package loadgen

import (
	"encoding/json"
	"fmt"
	"iter"
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
	name  string // in a threshold: "wait.p99"
	unit  unit
	value func(Metrics) float64 // times in seconds, shares from 0 to 1
	known func(Metrics) bool    // whether there are samples; nil: always
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
	if f.value == nil || f.known != nil && !f.known(m) {
		return 0, false
	}
	return f.value(m), true
}

// path returns the keys of the figure in JSON, and the factor of its unit there.
func (f figure) path() (group, part string, scale float64) {
	path, scale := f.name, 1.0
	if f.unit == timed {
		path, scale = path+"_ms", 1000
	}
	group, part, _ = strings.Cut(path, ".")
	return group, part, scale
}

// figures returns the table.
var figures = sync.OnceValue(func() (all []figure) {
	count := func(name string, of func(Metrics) int64) {
		all = append(all, figure{name + ".count", number, func(m Metrics) float64 { return float64(of(m)) }, nil})
	}
	rate := func(name string, part, whole func(Metrics) int64) {
		all = append(all, figure{name + ".rate", share, func(m Metrics) float64 { return float64(part(m)) / float64(whole(m)) }, func(m Metrics) bool { return whole(m) > 0 }})
	}
	arrivals, acquired := func(m Metrics) int64 { return m.Arrivals }, func(m Metrics) int64 { return m.Acquired }
	late, timedOut, failed := func(m Metrics) int64 { return m.LateArrivals }, func(m Metrics) int64 { return m.TimedOut }, func(m Metrics) int64 { return m.Errors }
	count("offered", Metrics.Offered)
	count("arrivals", arrivals)
	count("backlog", func(m Metrics) int64 { return m.Backlog })
	count("late", late)
	rate("late", late, arrivals)
	count("acquired", acquired)
	count("timed_out", timedOut)
	rate("timed_out", timedOut, arrivals)
	count("refused", func(m Metrics) int64 { return m.Refused })
	count("errors", failed)
	rate("errors", failed, arrivals)
	count("waiting", func(m Metrics) int64 { return m.CutOff + int64(m.Clients.Waiting) })
	count("released", func(m Metrics) int64 { return m.Released })
	count("expired", func(m Metrics) int64 { return m.Expired })
	count("lost", func(m Metrics) int64 { return m.Lost })
	rate("lost_or_expired", func(m Metrics) int64 { return m.Lost + m.Expired }, acquired)
	count("unconfirmed", func(m Metrics) int64 { return m.Unconfirmed })
	count("abandoned", func(m Metrics) int64 { return m.Abandoned })
	count("holding", func(m Metrics) int64 { return int64(m.Clients.Holding) })
	count("attempts", func(m Metrics) int64 { return m.Cost.Attempts })
	count("renewals", func(m Metrics) int64 { return m.Cost.Renewals })
	count("commands", func(m Metrics) int64 { return m.Cost.Commands })
	count("unjudged", func(m Metrics) int64 { return m.Violations.Unjudged })
	for _, k := range oracle.Kinds() {
		add := func(part string, u unit, of func(*oracle.Tally) float64) {
			all = append(all, figure{string(k.ID) + "." + part, u, func(m Metrics) float64 { return of(k.Of(&m.Violations)) }, func(m Metrics) bool { return !k.Of(&m.Violations).Unknown }})
		}
		add("count", number, func(t *oracle.Tally) float64 { return float64(t.Count) })
		if k.Excusable {
			add("excused", number, func(t *oracle.Tally) float64 { return float64(t.Excused) })
		}
		if k.Lasts {
			add("total", timed, func(t *oracle.Tally) float64 { return t.Total.Seconds() })
			add("longest", timed, func(t *oracle.Tally) float64 { return t.Longest.Seconds() })
		}
	}
	held := func(m Metrics) bool { return m.Acquired > 0 }
	all = append(all,
		figure{"throughput", perSecond, func(m Metrics) float64 { return ratio(float64(m.Acquired), m.Elapsed.Seconds()) }, nil},
		figure{"commands_per_hold", number, Metrics.CommandsPerHold, held},
		figure{"attempts_per_hold", number, func(m Metrics) float64 { return float64(m.Cost.Attempts) / float64(m.Acquired) }, func(m Metrics) bool { return held(m) && m.Cost.Attempts > 0 }},
		figure{"server_cpu_per_hold", timed, func(m Metrics) float64 { return m.Cost.CPU.Seconds() / float64(m.Acquired) }, func(m Metrics) bool { return held(m) && m.Cost.CPU > 0 }},
		figure{"utilisation", share, func(m Metrics) float64 { return m.Utilisation }, held},
		figure{"fairness.jain", number, func(m Metrics) float64 { return m.Fairness.Jain }, held},
		figure{"fairness.starved", timed, func(m Metrics) float64 { return m.Fairness.Starved.Seconds() }, func(m Metrics) bool { return m.Offered() > 0 }},
		figure{"fairness.streak", number, func(m Metrics) float64 { return float64(m.Fairness.Streak) }, func(m Metrics) bool { return m.Fairness.Streak > 0 }},
		figure{"outage.total", timed, func(m Metrics) float64 { return m.Outage.Total.Seconds() }, nil},
		figure{"outage.longest", timed, func(m Metrics) float64 { return m.Outage.Longest.Seconds() }, nil},
		figure{"outage.restarts", number, func(m Metrics) float64 { return float64(m.Outage.Lost) }, nil},
		figure{"stall.total", timed, func(m Metrics) float64 { return m.Stall.Total.Seconds() }, nil},
		figure{"stall.longest", timed, func(m Metrics) float64 { return m.Stall.Longest.Seconds() }, nil},
		figure{"wait.censored", number, func(m Metrics) float64 { return float64(m.Latency.Wait.Censored) }, func(m Metrics) bool { return m.Latency.Wait.Count > 0 }})
	for i, name := range LatencyNames() {
		of := func(m Metrics) Latency {
			return []Latency{m.Latency.Wait, m.Latency.Release, m.Latency.Held, m.Latency.Handoff, m.Latency.RenewLate}[i]
		}
		for j, part := range LatencyParts() {
			all = append(all, figure{name + "." + part, timed, func(m Metrics) float64 {
				l := of(m)
				return []time.Duration{time.Duration(l.Count) * time.Second, l.Mean, l.P50, l.P90, l.P95, l.P99, l.P999, l.Max}[j].Seconds()
			}, func(m Metrics) bool { return of(m).Count > 0 }})
			if j == 0 {
				all[len(all)-1].unit = number
			}
		}
	}
	return all
})

// LatencyNames returns the names of the latencies.
func LatencyNames() []string { return []string{"wait", "release", "held", "hand_off", "renewal_late"} }

// LatencyParts returns the names of the figures of each latency, without the latency.
func LatencyParts() []string {
	return []string{"count", "mean", "p50", "p90", "p95", "p99", "p99_9", "max"}
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
	of, _ := figureNamed(name)
	return of.unit.text(v)
}

// MarshalJSON returns the figures as nested objects: hand_off.p99 is {"hand_off": {"p99_ms": …}}.
func (f Figures) MarshalJSON() ([]byte, error) {
	return json.Marshal(NestFigures(f, func(v, scale float64) any { return InJSON(v * scale) }))
}

// InJSON rounds a number for JSON.
func InJSON(v float64) float64 { return math.Round(v*1e6) / 1e6 }

// NestFigures returns values by the names of figures as nested objects for JSON. convert returns a
// value in JSON; scale is 1000 for a time, which is in milliseconds there.
func NestFigures[V any](values map[string]V, convert func(v V, scale float64) any) map[string]any {
	all := make(map[string]any)
	for name, v := range values {
		f, _ := figureNamed(name)
		group, part, scale := f.path()
		if part == "" {
			all[group] = convert(v, scale)
			continue
		}
		if all[group] == nil {
			all[group] = make(map[string]any)
		}
		all[group].(map[string]any)[part] = convert(v, scale)
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
		group, part, scale := one.path()
		value := all[group]
		if object, nested := value.(map[string]any); nested {
			value = object[part]
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

// InText yields the parts of a text such as [Scenario.Watch]: words, and the name of the figure whose label follows
// them, "" at the end.
func InText(text string) iter.Seq2[string, string] {
	return func(yield func(words, figure string) bool) {
		for text != "" {
			first, label, name := len(text), "", ""
			for _, f := range figures() {
				l := Label(f.name)
				if at := strings.Index(text, l); at >= 0 && (at < first || at == first && len(l) > len(label)) {
					first, label, name = at, l, f.name
				}
			}
			if !yield(text[:first], name) {
				return
			}
			text = text[first+len(label):]
		}
	}
}

func ratio(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

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
