package loadgen

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

//go:embed report.html
var reportPage string

// page is what the HTML report is filled with.
type page struct {
	Title, Lock, Load  string
	Seed               uint64
	Elapsed            time.Duration
	Verdict            Verdict
	Counts, Violations []pair
	Latencies          []namedLatency
	Evidence           []string
	Throughput, Wait   chart
}

type pair struct {
	Name  string
	Value string
}

// chart is a curve over the seconds of a run, as points of an SVG of 600 by 120.
type chart struct {
	Points string
	Top    string
}

// WriteHTML writes the report as one page with its charts, which needs nothing
// else.
func (r Report) WriteHTML(w io.Writer) error {
	tmpl, err := template.New("report").Funcs(template.FuncMap{"rounded": rounded}).Parse(reportPage)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	m := r.Metrics
	p := page{
		Title: name(r.Scenario), Lock: r.Scenario.Lock.String(), Load: r.Scenario.load(), Seed: r.Scenario.Seed,
		Elapsed: rounded(m.Elapsed), Verdict: r.Verdict(),
		Throughput: curve(r.Seconds, func(s Second) float64 { return float64(s.Acquired) }, func(v float64) string { return fmt.Sprintf("%.0f/s", v) }),
		Wait: curve(r.Seconds, func(s Second) float64 { return s.Wait.P99.Seconds() }, func(v float64) string {
			return rounded(time.Duration(v * float64(time.Second))).String()
		}),
	}
	for _, l := range m.latencies() {
		if l.latency.Count > 0 {
			p.Latencies = append(p.Latencies, l)
		}
	}
	p.Counts = []pair{
		{"arrivals", fmt.Sprint(m.Arrivals)}, {"acquired", fmt.Sprint(m.Acquired)}, {"released", fmt.Sprint(m.Released)},
		{"expired", fmt.Sprint(m.Expired)}, {"lost", fmt.Sprint(m.Lost)}, {"unconfirmed", fmt.Sprint(m.Unconfirmed)},
		{"abandoned", fmt.Sprint(m.Abandoned)}, {"timed out", fmt.Sprint(m.TimedOut)}, {"refused", fmt.Sprint(m.Refused)},
		{"errors", fmt.Sprint(m.Errors)}, {"throughput", fmt.Sprintf("%.1f/s", m.Throughput())},
		{"commands a hold", fmt.Sprintf("%.1f", m.CommandsPerHold())}, {"fairness", fmt.Sprintf("%.2f", m.Fairness.Jain)},
	}
	p.Violations = []pair{
		{"overlaps", fmt.Sprint(m.Overlap.Count)}, {"longest overlap", rounded(m.Overlap.Longest).String()},
		{"late work", fmt.Sprint(m.LateWork.Count)}, {"stale writes refused", fmt.Sprint(m.Fenced)},
		{"stale writes accepted", fmt.Sprint(m.Corrupt)}, {"foreign unlocks", fmt.Sprint(m.Foreign)}, {"stuck keys", fmt.Sprint(m.Stuck)},
	}
	for _, e := range m.Evidence {
		p.Evidence = append(p.Evidence, e.sentence(m.Began, func(s string) string { return s }))
	}
	if err := tmpl.Execute(w, p); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// Name and Latency are for the page.
func (l namedLatency) Name() string     { return l.name }
func (l namedLatency) Latency() Latency { return l.latency }

// curve draws a figure of each second.
func curve(seconds []Second, of func(Second) float64, label func(float64) string) chart {
	top := 0.0
	for _, s := range seconds {
		top = max(top, of(s))
	}
	var points strings.Builder
	for i, s := range seconds {
		x := 600 * float64(i) / float64(max(len(seconds)-1, 1))
		fmt.Fprintf(&points, "%.1f,%.1f ", x, 120*(1-ratio(of(s), top)))
	}
	return chart{Points: points.String(), Top: label(top)}
}
