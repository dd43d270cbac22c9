package loadgen

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
)

// Threshold is a condition that a run must meet, like "wait.p99 < 250ms".
type Threshold struct {
	Metric   string
	Op       string  // == != < <= > >=
	Value    float64 // times in seconds, shares from 0 to 1
	Relative bool    // Value is a share of the baseline; no run meets it, see [Threshold.Against]
}

// metric is a figure that a threshold can name.
type metric struct {
	name  string
	unit  unit
	value func(Metrics) float64
	from  func(Metrics) int64 // number of samples; nil: needs none
}

// known reports whether there are samples.
func (m metric) known(of Metrics) bool { return m.from == nil || m.from(of) > 0 }

type unit uint8

const (
	number unit = iota
	timed
	share
)

// metrics returns all metrics, in the order of MeasureNames.
func metrics() []metric {
	count := func(name string, of func(Metrics) int64) metric {
		return metric{name, number, func(m Metrics) float64 { return float64(of(m)) }, nil}
	}
	rate := func(name string, part, whole func(Metrics) int64) metric {
		return metric{name, share, func(m Metrics) float64 { return ratio(float64(part(m)), float64(whole(m))) }, whole}
	}
	arrivals := func(m Metrics) int64 { return m.Arrivals }
	acquired := func(m Metrics) int64 { return m.Acquired }
	all := []metric{
		count("overlap.count", func(m Metrics) int64 { return m.Violations.Overlap.Count }),
		{"overlap.longest", timed, func(m Metrics) float64 { return m.Violations.Overlap.Longest.Seconds() }, nil},
		count("work-overlap.count", func(m Metrics) int64 { return m.Violations.WorkOverlap.Count }),
		{"work-overlap.longest", timed, func(m Metrics) float64 { return m.Violations.WorkOverlap.Longest.Seconds() }, nil},
		count("untold.count", func(m Metrics) int64 { return m.Violations.Unnotified }),
		count("unexplained-loss.count", func(m Metrics) int64 { return m.Violations.UnexplainedLoss }),
		count("overtaken.count", func(m Metrics) int64 { return m.Violations.Overtaken }),
		count("fence-order.count", func(m Metrics) int64 { return m.Violations.FenceOrder }),
		count("late-work.count", func(m Metrics) int64 { return m.Violations.LateWork.Count }),
		count("fenced.count", func(m Metrics) int64 { return m.Violations.Fenced }),
		count("corrupt.count", func(m Metrics) int64 { return m.Violations.AcceptedStaleWrites }),
		count(stuckKeys, func(m Metrics) int64 { return m.Violations.Stuck }),
		count("foreign-unlock.count", func(m Metrics) int64 { return m.Violations.ForeignUnlocks }),
		count("offered.count", Metrics.Offered),
		count("arrivals.count", arrivals),
		count("acquired.count", acquired),
		count("waiting.count", func(m Metrics) int64 { return m.CutOff + int64(m.Clients.Waiting) }),
		count("backlog.count", func(m Metrics) int64 { return m.Backlog }),
		count("errors.count", func(m Metrics) int64 { return m.Errors }),
		count("late.count", func(m Metrics) int64 { return m.LateArrivals }),
		count("abandoned.count", func(m Metrics) int64 { return m.Abandoned }),
		count("timed-out.count", func(m Metrics) int64 { return m.TimedOut }),
		count("renewals.count", func(m Metrics) int64 { return m.Cost.Renewals }),
		count("expired.count", func(m Metrics) int64 { return m.Expired }),
		rate("lost.rate", func(m Metrics) int64 { return m.Lost + m.Expired }, acquired),
		rate("timed-out.rate", func(m Metrics) int64 { return m.TimedOut }, arrivals),
		rate("errors.rate", func(m Metrics) int64 { return m.Errors }, arrivals),
		rate("late.rate", func(m Metrics) int64 { return m.LateArrivals }, arrivals),
		{"throughput", number, Metrics.Throughput, nil},
		{"commands.per-hold", number, Metrics.CommandsPerHold, acquired},
		{"utilisation", share, func(m Metrics) float64 { return m.Utilisation }, acquired},
		{"fairness.jain", number, func(m Metrics) float64 { return m.Fairness.Jain }, acquired},
		{"fairness.starved", timed, func(m Metrics) float64 { return m.Fairness.Starved.Seconds() }, Metrics.Offered},
		{"outage.total", timed, func(m Metrics) float64 { return m.Outage.Total.Seconds() }, nil},
		{"outage.longest", timed, func(m Metrics) float64 { return m.Outage.Longest.Seconds() }, nil},
		{"stall.longest", timed, func(m Metrics) float64 { return m.Stall.Longest.Seconds() }, nil},
	}
	for _, l := range []struct {
		name string
		of   func(Metrics) Latency
	}{
		{"wait", func(m Metrics) Latency { return m.Latency.Wait }},
		{"release", func(m Metrics) Latency { return m.Latency.Release }},
		{"held", func(m Metrics) Latency { return m.Latency.Held }},
		{"hand-off", func(m Metrics) Latency { return m.Latency.Handoff }},
		{"renewal-late", func(m Metrics) Latency { return m.Latency.RenewLate }},
	} {
		samples := func(m Metrics) int64 { return l.of(m).Count }
		all = append(all,
			metric{l.name + ".mean", timed, func(m Metrics) float64 { return l.of(m).Mean.Seconds() }, samples},
			metric{l.name + ".p50", timed, func(m Metrics) float64 { return l.of(m).P50.Seconds() }, samples},
			metric{l.name + ".p90", timed, func(m Metrics) float64 { return l.of(m).P90.Seconds() }, samples},
			metric{l.name + ".p95", timed, func(m Metrics) float64 { return l.of(m).P95.Seconds() }, samples},
			metric{l.name + ".p99", timed, func(m Metrics) float64 { return l.of(m).P99.Seconds() }, samples},
			metric{l.name + ".p99.9", timed, func(m Metrics) float64 { return l.of(m).P999.Seconds() }, samples},
			metric{l.name + ".max", timed, func(m Metrics) float64 { return l.of(m).Max.Seconds() }, samples})
	}
	return all
}

// MeasureNames returns the names that a threshold can use.
func MeasureNames() []string {
	var names []string
	for _, m := range metrics() {
		names = append(names, m.name)
	}
	return names
}

// Measures are figures of a run by the names of [MeasureNames]: times in seconds, shares
// from 0 to 1.
type Measures map[string]float64

// Measures returns the figures that have samples.
func (m Metrics) Measures() Measures {
	all := make(Measures)
	for _, of := range metrics() {
		if of.known(m) {
			all[of.name] = of.value(m)
		}
	}
	return all
}

// MeasureText returns a value of a figure with its unit.
func MeasureText(name string, v float64) string {
	m, _ := metricNamed(name)
	return m.unit.text(v)
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

// formerNames replaces old names of metrics by the current ones.
func formerNames() *strings.Replacer {
	return strings.NewReplacer("service.", "release.", "handoff.", "hand-off.", "timeouts.", "timed-out.", "_", "-")
}

func metricNamed(name string) (metric, bool) {
	all := metrics()
	name = formerNames().Replace(name)
	i := slices.IndexFunc(all, func(m metric) bool { return m.name == name })
	if i < 0 {
		return metric{}, false
	}
	return all[i], true
}

// operators returns the operators. Longer ones come first, so that ParseThreshold finds
// them first.
func operators() []string { return []string{"==", "!=", "<=", ">=", "<", ">"} }

// ofBaseline ends the value of a relative threshold.
const ofBaseline = " of baseline"

// parsePercent reads a percentage, which may be above 100%.
func parsePercent(text string) (float64, error) {
	number, ok := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !ok || !(v >= 0) {
		return 0, fmt.Errorf("%q is no percentage; write one like 110%%", text)
	}
	return v / 100, nil
}

// Against returns the threshold with its value, if the baseline has value for its metric.
func (t Threshold) Against(value float64) Threshold {
	if t.Relative {
		t.Value, t.Relative = t.Value*value, false
	}
	return t
}

// ParseThreshold parses a threshold like "wait.p99 < 250ms", "lost.rate < 0.1%",
// "overlap.count == 0" or "wait.p99 < 110% of baseline".
func ParseThreshold(text string) (Threshold, error) {
	for _, op := range operators() {
		name, value, found := strings.Cut(text, op)
		if !found {
			continue
		}
		t := Threshold{Metric: strings.TrimSpace(name), Op: op}
		m, known := metricNamed(t.Metric)
		if !known {
			return t, t.validate()
		}
		var err error
		t.Metric = m.name
		value = strings.TrimSpace(value)
		if of, relative := strings.CutSuffix(value, ofBaseline); relative {
			t.Relative = true
			t.Value, err = parsePercent(of)
		} else {
			t.Value, err = m.unit.parse(value)
		}
		if err != nil {
			return Threshold{}, fmt.Errorf("threshold %q: %w", text, err)
		}
		return t, nil
	}
	return Threshold{}, fmt.Errorf("threshold %q: write one like \"wait.p99 < 250ms\", \"lost.rate < 0.1%%\" or \"overlap.count == 0\"", text)
}

// parseShort reads the form of [ParseThreshold].
func (t *Threshold) parseShort(text string) (err error) {
	*t, err = ParseThreshold(text)
	return err
}

func (t *Threshold) shortText() string { return strconv.Quote(t.String()) }

func (u unit) parse(text string) (float64, error) {
	switch u {
	case timed:
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration; write one like 250ms", text)
		}
		return d.Seconds(), nil
	case share:
		return parseShare(text)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", text)
	}
	return v, nil
}

func (u unit) format(v float64) string {
	switch u {
	case timed:
		return short(time.Duration(v * float64(time.Second)).Round(time.Microsecond))
	case share:
		return FormatShare(v)
	}
	return strconv.FormatFloat(v, 'f', -1, 64)
}

// String returns the threshold in the form that [ParseThreshold] reads.
func (t Threshold) String() string {
	m, _ := metricNamed(t.Metric)
	value := m.unit.format(t.Value)
	if t.Relative {
		value = strconv.FormatFloat(100*t.Value, 'g', 6, 64) + "%" + ofBaseline
	}
	return fmt.Sprintf("%s %s %s", t.Metric, t.Op, value)
}

func (t Threshold) validate() error {
	if _, known := metricNamed(t.Metric); !known {
		return fmt.Errorf("threshold: there is no figure called %q; there are: %s", t.Metric, strings.Join(MeasureNames(), " "))
	}
	if !slices.Contains(operators(), t.Op) {
		return fmt.Errorf("threshold: %q is no comparison; there are: %s", t.Op, strings.Join(operators(), " "))
	}
	return nil
}

// Met reports whether m meets the threshold. Without samples it reports false.
func (t Threshold) Met(m Metrics) bool {
	of, known := metricNamed(t.Metric)
	if !known || !of.known(m) || t.Relative {
		return false
	}
	v := of.value(m)
	return map[string]bool{
		"==": v == t.Value, "!=": v != t.Value, "<": v < t.Value, "<=": v <= t.Value, ">": v > t.Value, ">=": v >= t.Value,
	}[t.Op]
}

// Measured returns the measured value as text.
func (t Threshold) Measured(m Metrics) string {
	of, _ := metricNamed(t.Metric)
	if !of.known(m) {
		return "unknown: there was not one sample"
	}
	return of.unit.text(of.value(m))
}

// text returns a measured value for people.
func (u unit) text(v float64) string {
	switch u {
	case number:
		if v == math.Trunc(v) {
			return strconv.FormatFloat(v, 'f', 0, 64)
		}
		return strconv.FormatFloat(v, 'g', 5, 64)
	case share:
		return fmt.Sprintf("%.3g%%", 100*v)
	}
	return humanize.Precise(time.Duration(v * float64(time.Second)))
}

// Missed returns the thresholds that m does not meet.
func Missed(thresholds []Threshold, m Metrics) []Threshold {
	return slices.DeleteFunc(slices.Clone(thresholds), func(t Threshold) bool { return t.Met(m) })
}
