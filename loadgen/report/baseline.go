package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"locktop/internal/humanize"
	"locktop/loadgen"
)

// Baseline is a set of earlier reports with which a run is compared. The zero value has
// none.
type Baseline struct {
	load    string // description of the load of the first report
	earlier []loadgen.Figures
}

// Add adds a report, as Result.MarshalJSON returns it.
func (b *Baseline) Add(file []byte) error {
	var r struct {
		Scenario string          `json:"scenario"`
		Figures  loadgen.Figures `json:"figures"`
	}
	if err := json.Unmarshal(file, &r); err != nil {
		return fmt.Errorf("it is no report of one load, as --json prints it: %w", err)
	}
	if len(r.Figures) == 0 {
		return errors.New("it has no figures; a report of locktop load --json has")
	}
	s, err := loadgen.Parse([]byte(r.Scenario))
	if err != nil {
		return fmt.Errorf("its scenario: %w", err)
	}
	load := comparable(s)
	if len(b.earlier) == 0 {
		b.load = load
	} else if was, now := difference(b.load, load); was != now {
		return fmt.Errorf("its load is another than that of the first report: %q instead of %q", now, was)
	}
	b.earlier = append(b.earlier, r.Figures)
	return nil
}

// Median returns the median of a figure, and whether a report has it.
func (b *Baseline) Median(figure string) (float64, bool) {
	values := b.values(figure)
	if len(values) == 0 {
		return 0, false
	}
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// values returns the values of a figure, the smallest first.
func (b *Baseline) values(figure string) []float64 {
	var values []float64
	for _, m := range b.earlier {
		if v, ok := m[figure]; ok {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// comparable describes the load of a scenario without what differs between two runs of it.
func comparable(s loadgen.Scenario) string {
	s.Seed, s.Keys.Prefix, s.Thresholds = 0, "", nil
	return string(s.Marshal())
}

// difference returns the first lines in which two descriptions differ.
func difference(a, b string) (string, string) {
	first, second := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(first), len(second)) {
		if first[i] != second[i] {
			return first[i], second[i]
		}
	}
	return "", ""
}

// minRepetitions is the number of reports from which the noise of a figure is known.
const minRepetitions = 3

// change is the change of a figure since the earlier reports. Times are in seconds, and
// shares from 0 to 1.
type change struct {
	Median float64 `json:"median"`
	Least  float64 `json:"least"`
	Most   float64 `json:"most"`
	Now    float64 `json:"current"`
	Beyond *bool   `json:"beyond_noise,omitempty"` // nil = the reports are too few
}

// changes returns the changes of all figures that the reports and m have, by name.
func (b *Baseline) changes(m loadgen.Figures) map[string]change {
	all := make(map[string]change)
	for name, now := range m {
		median, ok := b.Median(name)
		if !ok {
			continue
		}
		values := b.values(name)
		c := change{Median: median, Least: values[0], Most: values[len(values)-1], Now: now}
		if len(values) >= minRepetitions {
			// A run is noise if it is as near to the others as they are to one another.
			noise := c.Most - c.Least
			beyond := c.Now < c.Least-noise || c.Now > c.Most+noise
			c.Beyond = &beyond
		}
		all[name] = c
	}
	return all
}

// shownFigures are the figures that the text compares, and those of the thresholds.
func shownFigures(s loadgen.Scenario) []string {
	names := []string{
		"throughput", "wait.p50", "wait.p99", "hand_off.p50", "hand_off.p99", "held.p50", "release.p99", "commands_per_hold",
		"fairness.jain", "lost_or_expired.rate", "errors.count", "overlap.count",
	}
	for _, t := range s.Thresholds {
		if !slices.Contains(names, t.Figure) {
			names = append(names, t.Figure)
		}
	}
	return names
}

// writeBaseline writes the comparison with the earlier reports as a table.
func (r Result) writeBaseline(w io.Writer, plain func(string) string) {
	b := r.Baseline
	if b == nil {
		return
	}
	fmt.Fprintf(w, "\ncompared with %s\tmedian\tleast\tmost\tnow\tchange\tnoise\n", humanize.Plural(len(b.earlier), "earlier report"))
	changes := b.changes(r.Metrics.Figures())
	for _, name := range shownFigures(r.Scenario) {
		c, known := changes[name]
		if !known {
			continue
		}
		text := func(v float64) string { return loadgen.Figures{name: v}.Text(name) }
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, text(c.Median), text(c.Least), text(c.Most), text(c.Now), c.percent(), c.verdict())
	}
	if len(b.earlier) < minRepetitions {
		fmt.Fprintf(w, "The noise is known from %d reports of the same load on.\n", minRepetitions)
	}
	if was, now := difference(b.load, comparable(r.Scenario)); was != now {
		fmt.Fprintf(w, "The earlier load was another: %s; now %s\n", plain(was), plain(now))
	}
}

// percent returns the change in percent of the median; "" if that is 0.
func (c change) percent() string {
	if c.Median == 0 {
		return ""
	}
	return fmt.Sprintf("%+.0f%%", 100*(c.Now-c.Median)/c.Median)
}

func (c change) verdict() string {
	switch {
	case c.Beyond == nil:
		return "unknown"
	case *c.Beyond:
		return "beyond"
	}
	return "within"
}
