package report

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

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
	out  *bufio.Writer
	runs []exposed
}

// exposed is a run with its labels.
type exposed struct {
	labels     string
	metrics    loadgen.Metrics
	histograms []*hdrhistogram.Histogram // in the order of latencies
}

// WritePrometheus writes the metrics of runs in the Prometheus text format. The labels
// scenario, kind and side (from 1) distinguish the runs.
func WritePrometheus(w io.Writer, runs ...Source) error {
	e := exposition{out: bufio.NewWriter(w)}
	for i, r := range runs {
		s := r.Scenario()
		h := r.Histograms()
		if h == nil {
			continue
		}
		e.runs = append(e.runs, exposed{
			fmt.Sprintf(`scenario="%s",kind="%s",side="%d"`, labelValue(name(s)), s.Lock.Kind, i+1), r.Metrics(),
			[]*hdrhistogram.Histogram{h.Wait, h.Held, h.Release, h.Handoff, h.RenewLate},
		})
	}
	e.family("load_total", "counter", "What the clients have done.", "what", func(m loadgen.Metrics) map[string]float64 {
		all := counts(m)
		for _, key := range []string{"waiting", "holding", "backlog", "offered"} {
			delete(all, key)
		}
		all["cut_off"] = m.CutOff
		return floats(all)
	})
	e.family("load_violations_total", "counter", "What must not happen.", "violation", func(m loadgen.Metrics) map[string]float64 {
		counts := violations(m.Violations)
		delete(counts, "overlaps_excused") // overlaps include them
		return floats(counts)
	})
	e.family("load_overlaps_excused_total", "counter", "Overlaps after a fault that no lock survives.", "", single(func(m loadgen.Metrics) float64 { return float64(m.Violations.Overlap.Excused) }))
	e.family("load_clients", "gauge", "What the clients do now.", "state", func(m loadgen.Metrics) map[string]float64 {
		return map[string]float64{"waiting": float64(m.Clients.Waiting), "holding": float64(m.Clients.Holding), "thinking": float64(m.Clients.Idle), "dead": float64(m.Clients.Dead)}
	})
	e.family("load_backlog", "gauge", "Arrivals that no client was free for.", "", single(func(m loadgen.Metrics) float64 { return float64(m.Backlog) }))
	e.family("load_seconds", "gauge", "How long the load has been running.", "", single(func(m loadgen.Metrics) float64 { return m.Elapsed.Seconds() }))
	e.family("load_outage_seconds_total", "counter", "For how long servers did not answer.", "", single(func(m loadgen.Metrics) float64 { return m.Outage.Total.Seconds() }))
	for i, l := range latencies(loadgen.Metrics{}) {
		e.histogram("load_"+underscored(l.name)+"_seconds", i)
	}
	return e.out.Flush()
}

// labelValue escapes a label value for Prometheus. Prometheus knows only these three
// escapes and rejects the whole page for any other.
func labelValue(text string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(strings.ToValidUTF8(text, "\uFFFD"))
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

func (e exposition) head(name, kind, help string) {
	fmt.Fprintf(e.out, "# HELP locktop_%s %s\n# TYPE locktop_%s %s\n", name, help, name, kind)
}

func (e exposition) family(name, kind, help, label string, of func(loadgen.Metrics) map[string]float64) {
	e.head(name, kind, help)
	for _, r := range e.runs {
		values := of(r.metrics)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			labels := r.labels
			if label != "" {
				labels += fmt.Sprintf(",%s=%q", label, key)
			}
			fmt.Fprintf(e.out, "locktop_%s{%s} %g\n", name, labels, values[key])
		}
	}
}

// histogram writes distribution i of each run.
func (e exposition) histogram(name string, i int) {
	e.head(name, "histogram", "How long it took.")
	for _, r := range e.runs {
		counts, sum := buckets(r.histograms[i])
		total := r.histograms[i].TotalCount()
		for b, bound := range bounds() {
			fmt.Fprintf(e.out, "locktop_%s_bucket{%s,le=\"%g\"} %d\n", name, r.labels, bound, counts[b])
		}
		fmt.Fprintf(e.out, "locktop_%s_bucket{%s,le=\"+Inf\"} %d\n", name, r.labels, total)
		fmt.Fprintf(e.out, "locktop_%s_sum{%s} %g\nlocktop_%s_count{%s} %d\n", name, r.labels, sum, name, r.labels, total)
	}
}
