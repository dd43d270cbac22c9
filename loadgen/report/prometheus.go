package report

import (
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"locktop/internal/promtext"
	"locktop/loadgen"
)

// bounds returns the upper bounds of the Prometheus buckets, in seconds.
func bounds() []float64 {
	return []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}
}

// buckets returns for each bound how many values are not above it, and the sum of all
// values in seconds.
func buckets(h *hdrhistogram.Histogram) (counts []int64, sum float64) {
	counts = make([]int64, len(bounds()))
	for _, bar := range h.Distribution() {
		if bar.Count == 0 {
			continue
		}
		sum += float64(bar.Count) * time.Duration(bar.From+(bar.To-bar.From)/2).Seconds()
		for i, bound := range bounds() {
			if time.Duration(bar.From).Seconds() <= bound {
				counts[i] += bar.Count
			}
		}
	}
	return counts, sum
}

// exposition writes the metrics of several runs in the Prometheus text format.
type exposition struct {
	out  *promtext.Writer
	runs []exposed
}

// exposed is a run with its labels.
type exposed struct {
	labels     []promtext.Label
	metrics    loadgen.Metrics
	histograms []*hdrhistogram.Histogram // in the order of latencies
}

// WritePrometheus writes the metrics of runs in the Prometheus text format. The labels
// scenario, kind and side (from 1) distinguish the runs.
func WritePrometheus(w io.Writer, runs ...Source) error {
	e := exposition{out: promtext.NewWriter(w)}
	for i, r := range runs {
		s := r.Scenario()
		h := r.Histograms()
		if h == nil {
			continue
		}
		e.runs = append(e.runs, exposed{
			[]promtext.Label{{Name: "scenario", Value: name(s)}, {Name: "kind", Value: string(s.Lock.Kind)}, {Name: "side", Value: strconv.Itoa(i + 1)}}, r.Metrics(),
			[]*hdrhistogram.Histogram{h.Wait, h.Held, h.Release, h.Handoff, h.RenewLate},
		})
	}
	e.family("load_total", promtext.Counter, "What the clients have done.", "what", func(m loadgen.Metrics) map[string]float64 {
		all := counts(m)
		for _, key := range []string{"waiting", "holding", "backlog", "offered"} {
			delete(all, key)
		}
		all["cut_off"] = m.CutOff
		return floats(all)
	})
	e.family("load_violations_total", promtext.Counter, "What must not happen.", "violation", func(m loadgen.Metrics) map[string]float64 {
		counts := violations(m.Violations)
		delete(counts, "overlaps_excused") // overlaps include them
		return floats(counts)
	})
	e.family("load_overlaps_excused_total", promtext.Counter, "Overlaps after a fault that no lock survives.", "", single(func(m loadgen.Metrics) float64 { return float64(m.Violations.Overlap.Excused) }))
	e.family("load_clients", promtext.Gauge, "What the clients do now.", "state", func(m loadgen.Metrics) map[string]float64 {
		return map[string]float64{"waiting": float64(m.Clients.Waiting), "holding": float64(m.Clients.Holding), "thinking": float64(m.Clients.Idle), "dead": float64(m.Clients.Dead)}
	})
	e.family("load_backlog", promtext.Gauge, "Arrivals that no client was free for.", "", single(func(m loadgen.Metrics) float64 { return float64(m.Backlog) }))
	e.family("load_seconds", promtext.Gauge, "How long the load has been running.", "", single(func(m loadgen.Metrics) float64 { return m.Elapsed.Seconds() }))
	e.family("load_outage_seconds_total", promtext.Counter, "For how long servers did not answer.", "", single(func(m loadgen.Metrics) float64 { return m.Outage.Total.Seconds() }))
	for i, l := range latencies(loadgen.Metrics{}) {
		e.histogram("load_"+underscored(l.name)+"_seconds", i)
	}
	return e.out.Flush()
}

func floats(counts map[string]int64) map[string]float64 {
	all := make(map[string]float64)
	for key, n := range counts {
		all[key] = float64(n)
	}
	return all
}

// single makes a family with one value and no additional label.
func single(of func(loadgen.Metrics) float64) func(loadgen.Metrics) map[string]float64 {
	return func(m loadgen.Metrics) map[string]float64 { return map[string]float64{"": of(m)} }
}

func underscored(name string) string { return strings.NewReplacer(" ", "_", "-", "_").Replace(name) }

func (e exposition) family(name string, kind promtext.Kind, help, label string, of func(loadgen.Metrics) map[string]float64) {
	e.out.Family("locktop_"+name, kind, help)
	for _, r := range e.runs {
		values := of(r.metrics)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			labels := r.labels
			if label != "" {
				labels = append(slices.Clip(labels), promtext.Label{Name: label, Value: key})
			}
			e.out.Sample(values[key], labels...)
		}
	}
}

// histogram writes distribution i of each run.
func (e exposition) histogram(name string, i int) {
	e.out.Family("locktop_"+name, promtext.Histogram, "How long it took.")
	for _, r := range e.runs {
		counts, sum := buckets(r.histograms[i])
		e.out.Distribution(bounds(), counts, sum, r.histograms[i].TotalCount(), r.labels...)
	}
}
