package loadgen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/internal/humanize"
	"locktop/loadgen/oracle"
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

// Verdict describes what a run showed.
type Verdict struct {
	Safe     bool     // clients acquired locks, and there was no violation of the promises of the kind
	Doubtful bool     // the only violations are overlaps that late replies can have feigned: not Safe, and not proved unsafe
	Harmless bool     // nothing happened that can harm the protected data, also outside the promises of the kind
	Overlap  string   // the sentence on overlaps
	Others   []string // the other sentences
	Missed   []string // missed thresholds with the measured values
	Expected bool     // the scenario showed what it is expected to show
	Gaps     []string // sentences on why the run shows less than it should
}

// Text returns all sentences.
func (v Verdict) Text() string { return strings.Join(append([]string{v.Overlap}, v.Others...), " ") }

// Verdict judges the metrics of a scenario.
func (m Metrics) Verdict(s Scenario) Verdict {
	unseen := Missed(s.Expect, m)
	v := Verdict{
		Safe:     m.Acquired > 0 && (!s.Lock.Kind.Sound() || m.Violations.Broken() == 0),
		Harmless: m.Violations.Harm() == 0,
		Expected: len(unseen) == 0,
	}
	for _, t := range Missed(s.Thresholds, m) {
		v.Missed = append(v.Missed, t.missed(m))
	}
	for _, t := range unseen {
		v.Gaps = append(v.Gaps, "The scene did not show its claim: "+t.missed(m)+".")
	}
	if o := m.Outage; o != (Outage{}) && !slices.ContainsFunc(s.Thresholds, func(t Threshold) bool { return strings.HasPrefix(t.Figure, "outage.") }) {
		v.Gaps = append(v.Gaps, o.String())
	}
	if s.Lock.Kind == Exec && s.Lock.Order && m.Acquired > 0 && m.Violations.Overtaken.Unknown {
		v.Gaps = append(v.Gaps, "The order of the clients is not judged: the protocol tells it only of clients that asked for a key 2 s apart, and no two such clients waited together.")
	}
	if n := m.doubtfulOverlaps(s); n > 0 {
		v.Doubtful = n == m.Violations.Broken()
		v.Gaps = append(v.Gaps, fmt.Sprintf("The overlaps are not judged: none was longer than %s, and this machine was so busy that a reply of a client may have been late by as much.", humanize.Precise(m.Violations.Overlap.Longest)))
	}
	if n := m.Violations.Unjudged; 2*n > m.Acquired {
		v.Gaps = append(v.Gaps, fmt.Sprintf("The oracle judged only %s of %s: the other leases were over when the acquires returned.", humanize.Count(max(m.Acquired-n, 0)), humanize.Plural(m.Acquired, "hold")))
	}
	v.Overlap, v.Others = m.overlapSentence(s), m.sentences(s)
	return v
}

// missed returns the threshold and the measured value as text.
func (t Threshold) missed(m Metrics) string {
	return fmt.Sprintf("%s, but it is %s", t, t.Measured(m))
}

// String describes the outage in sentences.
func (o Outage) String() string {
	var all []string
	if o.Total > 0 {
		all = append(all, fmt.Sprintf("A server did not answer for %s in all, %s at the longest.", humanize.Precise(o.Total), humanize.Precise(o.Longest)))
	}
	if o.Lost > 0 {
		all = append(all, fmt.Sprintf("A server restarted, or was replaced, %s.", humanize.Times(o.Lost)))
	}
	return strings.Join(all, " ")
}

// sentences returns the sentences of the verdict that are not about overlaps.
func (m Metrics) sentences(s Scenario) (all []string) {
	if m.Acquired == 0 {
		return nil
	}
	for _, k := range oracle.Kinds() {
		t := k.Of(&m.Violations)
		switch {
		case k.ID == oracle.Overlap || k.ID == oracle.WorkOverlap:
		case s.Lock.Kind.Sound() && k.Excusable:
			all = append(all, sentence(k, t.Count-t.Excused, k.Unexplained), sentence(k, t.Excused, ""))
		default:
			all = append(all, sentence(k, t.Count, ""))
		}
	}
	all = slices.DeleteFunc(all, func(text string) bool { return text == "" })
	if n := m.Violations.Unjudged; n > 0 {
		all = append(all, fmt.Sprintf("The oracle did not judge %s: the lease was over when the acquire returned.", humanize.Plural(n, "hold")))
	}
	if excuses := m.Violations.Excuses(); excuses != "" {
		all = append(all, excuses)
	}
	if short := m.LateArrivals + m.Backlog; s.Rate > 0 && short*100 > m.Offered() {
		all = append(all, fmt.Sprintf("The generator had too few clients: %s of %s arrivals had to wait for one.", humanize.Count(short), humanize.Count(m.Offered())))
	}
	if m.Stall.Longest >= 50*time.Millisecond {
		all = append(all, fmt.Sprintf("The generator had too little CPU time: it was delayed by up to %s, %s in total.", humanize.Precise(m.Stall.Longest), humanize.Precise(m.Stall.Total)))
	}
	return all
}

// sentence returns a sentence about n violations with this end, "" if there are none.
func sentence(k oracle.Kind, n int64, end string) string {
	if n == 0 {
		return ""
	}
	return capital(k.Sentence(n, "") + end + ".")
}

// capital returns a text with a capital letter first.
func capital(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// overlapSentence describes the overlaps.
func (m Metrics) overlapSentence(s Scenario) string {
	overlap, work := m.Violations.Overlap, m.Violations.WorkOverlap
	many := s.Lock.TooMany()
	if m.Oracles > 1 {
		many += " of one agent"
	}
	worked := fmt.Sprintf("%s worked at the same time (%s), with or without valid leases.", many, howOften(work))
	switch {
	case m.Acquired == 0:
		return fmt.Sprintf("No client acquired a lock in %s, so the run says nothing about its safety.", humanize.Plural(m.Arrivals, "attempt"))
	case overlap.Count > 0:
		text := fmt.Sprintf("%s held the lock at the same time (%s)%s.", capital(many), howOften(overlap), m.overlapCause(s))
		if work.Count > overlap.Count {
			text += " In all, " + worked
		}
		return text
	case work.Count > 0:
		return "No " + many + " had valid leases at once, but " + worked
	case m.Oracles > 1:
		return "No overlap was seen: each agent saw its own clients, the witness those with valid leases."
	}
	return "No " + many + " were inside at once."
}

// howOften describes the number and the longest time, like "once, for 138 ms".
func howOften(t oracle.Tally) string {
	if t.Count == 1 {
		return "once, for " + humanize.Duration(t.Longest)
	}
	return fmt.Sprintf("%s, for up to %s", humanize.Times(t.Count), humanize.Duration(t.Longest))
}

// doubtfulOverlaps returns the number of overlaps of client processes without a cause, if none was longer than the
// generator was once delayed. A lease ends some time after its reply was read, and a late reply was read that much too late.
func (m Metrics) doubtfulOverlaps(s Scenario) int64 {
	if t := m.Violations.Overlap; s.Lock.Kind == Exec && t.Longest < m.Stall.Longest {
		return t.Count - t.Excused
	}
	return 0
}

// overlapCause describes the cause of the overlaps.
func (m Metrics) overlapCause(s Scenario) string {
	switch {
	case m.doubtfulOverlaps(s) > 0:
		return ", or a reply was late"
	case m.Violations.Overlap.Count == m.Violations.Overlap.Excused:
		return ", after a fault that no lock survives without fencing"
	case s.Lock.Kind.Sound():
		return ": the lock broke its promise"
	}
	return fmt.Sprintf(": this is the known flaw of %s", s.Lock.Kind)
}
