package loadgen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Threshold is a condition that a run must meet, like "wait.p99 < 250ms".
type Threshold struct {
	Figure   string  // its name
	Op       string  // == != < <= > >=
	Value    float64 // times in seconds, shares from 0 to 1
	Relative bool    // Value is a share of the baseline; no run meets it, see [Threshold.Against]
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

// Against returns the threshold with its value, if the baseline has value for its figure.
func (t Threshold) Against(value float64) Threshold {
	if t.Relative {
		t.Value, t.Relative = t.Value*value, false
	}
	return t
}

// ParseThreshold parses a threshold like "wait.p99 < 250ms", "lost_or_expired.rate < 0.1%",
// "overlap.count == 0" or "wait.p99 < 110% of baseline".
func ParseThreshold(text string) (Threshold, error) {
	for _, op := range operators() {
		name, value, found := strings.Cut(text, op)
		if !found {
			continue
		}
		t := Threshold{Figure: strings.TrimSpace(name), Op: op}
		f, known := figureNamed(t.Figure)
		if !known {
			return t, t.validate()
		}
		var err error
		value = strings.TrimSpace(value)
		if of, relative := strings.CutSuffix(value, ofBaseline); relative {
			t.Relative = true
			t.Value, err = parsePercent(of)
		} else {
			t.Value, err = f.unit.parse(value)
		}
		if err != nil {
			return Threshold{}, fmt.Errorf("threshold %q: %w", text, err)
		}
		return t, nil
	}
	return Threshold{}, fmt.Errorf("threshold %q: write one like \"wait.p99 < 250ms\", \"lost_or_expired.rate < 0.1%%\" or \"overlap.count == 0\"", text)
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
	case perSecond:
		return ParseRate(text)
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
	f, _ := figureNamed(t.Figure)
	value := f.unit.format(t.Value)
	if t.Relative {
		value = strconv.FormatFloat(100*t.Value, 'g', 6, 64) + "%" + ofBaseline
	}
	return fmt.Sprintf("%s %s %s", t.Figure, t.Op, value)
}

func (t Threshold) validate() error {
	if _, known := figureNamed(t.Figure); !known {
		return fmt.Errorf("threshold: there is no figure called %q%s; there are: %s", t.Figure, nearest(t.Figure, FigureNames()), strings.Join(FigureNames(), " "))
	}
	if !slices.Contains(operators(), t.Op) {
		return fmt.Errorf("threshold: %q is no comparison; there are: %s", t.Op, strings.Join(operators(), " "))
	}
	return nil
}

// Met reports whether m meets the threshold. Without samples it reports false.
func (t Threshold) Met(m Metrics) bool {
	f, _ := figureNamed(t.Figure)
	v, known := f.of(m)
	return known && !t.Relative && map[string]bool{
		"==": v == t.Value, "!=": v != t.Value, "<": v < t.Value, "<=": v <= t.Value, ">": v > t.Value, ">=": v >= t.Value,
	}[t.Op]
}

// Measured returns the measured value as text.
func (t Threshold) Measured(m Metrics) string {
	f, _ := figureNamed(t.Figure)
	v, known := f.of(m)
	if !known {
		return "unknown: there was not one sample"
	}
	return f.unit.text(v)
}

// Missed returns the thresholds that m does not meet.
func Missed(thresholds []Threshold, m Metrics) []Threshold {
	return slices.DeleteFunc(slices.Clone(thresholds), func(t Threshold) bool { return t.Met(m) })
}
