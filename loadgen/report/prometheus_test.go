package report

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"locktop/loadgen"
)

// sample is a line of an exposition.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

var (
	metricName = regexp.MustCompile(`^[a-zA-Z_:][a-zA-Z0-9_:]*$`)
	labelName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
)

// family is one metric of an exposition.
type family struct {
	help, kind string
	samples    []sample
}

// parseExposition reads the text format of Prometheus (version 0.0.4) as
// strictly as a linter: each family has HELP, then TYPE, then its samples, all
// in one place, and no sample twice.
func parseExposition(text string) (map[string]*family, error) {
	if !strings.HasSuffix(text, "\n") {
		return nil, fmt.Errorf("the last line does not end")
	}
	all, seen, current := map[string]*family{}, map[string]bool{}, ""
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("line %d: %s: %s", i+1, fmt.Sprintf(format, args...), line)
		}
		if rest, found := strings.CutPrefix(line, "# HELP "); found {
			name, help, _ := strings.Cut(rest, " ")
			if !metricName.MatchString(name) || help == "" || all[name] != nil {
				return nil, wrong("not the first help of a metric")
			}
			all[name], current = &family{help: help}, name
			continue
		}
		if rest, found := strings.CutPrefix(line, "# TYPE "); found {
			name, kind, _ := strings.Cut(rest, " ")
			if name != current || all[name].kind != "" || len(all[name].samples) > 0 || !slices.Contains([]string{"counter", "gauge", "histogram"}, kind) {
				return nil, wrong("not the type of %s", current)
			}
			all[name].kind = kind
			continue
		}
		s, err := parseSample(line)
		if err != nil {
			return nil, wrong("%v", err)
		}
		f := all[current]
		base := s.name
		if f != nil && f.kind == "histogram" {
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				base = strings.TrimSuffix(base, suffix)
			}
		}
		key := fmt.Sprint(s.name, s.labels)
		if f == nil || base != current || f.kind == "" || seen[key] {
			return nil, wrong("not a new sample of %s", current)
		}
		if _, le := s.labels["le"]; le != strings.HasSuffix(s.name, "_bucket") {
			return nil, wrong("le goes with buckets")
		}
		seen[key] = true
		f.samples = append(f.samples, s)
	}
	return all, nil
}

// parseSample reads a line like name{label="value"} 1.5.
func parseSample(line string) (sample, error) {
	s := sample{labels: map[string]string{}}
	name, rest, labelled := strings.Cut(line, "{")
	if !labelled || !metricName.MatchString(name) {
		return s, fmt.Errorf("not a metric with labels")
	}
	s.name = name
	for {
		label, after, found := strings.Cut(rest, `="`)
		if !found || !labelName.MatchString(label) || s.labels[label] != "" {
			return s, fmt.Errorf("%q is no new label", label)
		}
		var value strings.Builder
		escaped, end := false, -1
		for i, c := range after {
			if escaped {
				plain, known := map[rune]rune{'\\': '\\', '"': '"', 'n': '\n'}[c]
				if !known {
					return s, fmt.Errorf("there is no \\%c", c)
				}
				value.WriteRune(plain)
				escaped = false
				continue
			}
			if c == '"' {
				end = i
				break
			}
			if escaped = c == '\\'; !escaped {
				value.WriteRune(c)
			}
		}
		if end < 0 {
			return s, fmt.Errorf("the value of %s does not end", label)
		}
		s.labels[label] = value.String()
		rest = after[end+1:]
		if next, more := strings.CutPrefix(rest, ","); more {
			rest = next
			continue
		}
		number, closed := strings.CutPrefix(rest, "} ")
		if !closed {
			return s, fmt.Errorf("the labels do not end")
		}
		var err error
		s.value, err = strconv.ParseFloat(number, 64)
		return s, err
	}
}

func TestTheParserOfExpositionsIsStrict(t *testing.T) {
	const head = "# HELP a_total What.\n# TYPE a_total counter\n"
	if _, err := parseExposition(head + "a_total{x=\"1\",y=\"\\\"\\n\\\\\"} 1e+06\n"); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{
		head + `a_total{x="1"} 1`, head + "a_total{x=\"1\"} 1\na_total{x=\"1\"} 2\n", head + "b_total{x=\"1\"} 1\n", "a_total{x=\"1\"} 1\n",
		"# TYPE a_total counter\na_total{x=\"1\"} 1\n", "# HELP a_total What.\na_total{x=\"1\"} 1\n", head + head, head + "a_total{x=\"\\x41\"} 1\n",
		head + "a_total{x=\"1\" 1\n", head + "a_total{x=\"1\"} one\n", head + "a_total{x-y=\"1\"} 1\n", head + "a_total{x=\"1\",x=\"2\"} 1\n",
		head + "a_total{x=\"1} 1\n", head + "a_total{le=\"1\"} 1\n", head + "a_total 1\n", "# HELP a b\n# TYPE a summary\n", "\n",
	} {
		if _, err := parseExposition(wrong); err == nil {
			t.Errorf("accepted:\n%s", wrong)
		}
	}
}

// The output has the text format of Prometheus, follows its rules for names,
// and has the figures of the report.
func TestTheFiguresForPrometheusAreInItsFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs []*loadgen.Run
		names := []string{"a \"b\" \\ \n \x1b é \xff", ""}
		for i, name := range names {
			runs = append(runs, started(t, piped(t), loadgen.Scenario{
				Name: name, Clients: 8, Keys: loadgen.Keys{N: 1}, Rate: 100, Hold: loadgen.Exp(20 * time.Millisecond), Patience: 50 * time.Millisecond, Seed: 5,
				Lock: loadgen.Lock{Kind: []loadgen.Kind{loadgen.Mutex, "classic/two-key-rw"}[i], TTL: 90 * time.Millisecond},
			}))
		}
		time.Sleep(10 * time.Second)
		runs[0].SetClients(5)
		time.Sleep(time.Second)
		for _, r := range runs {
			stop(t, r)
		}
		var text strings.Builder
		if err := WritePrometheus(&text, runs[0], runs[1]); err != nil {
			t.Fatal(err)
		}
		all, err := parseExposition(text.String())
		if err != nil {
			t.Fatal(err)
		}
		for name, f := range all {
			if !strings.HasPrefix(name, "locktop_load_") || (f.kind == "counter") != strings.HasSuffix(name, "_total") || !strings.HasSuffix(f.help, ".") {
				t.Errorf("%s is a %s: %s", name, f.kind, f.help)
			}
			if (f.kind == "histogram") != strings.HasSuffix(name, "_seconds") && name != "locktop_load_seconds" {
				t.Errorf("%s is a %s", name, f.kind)
			}
			if len(f.samples) == 0 {
				t.Errorf("%s has no samples", name)
			}
		}
		for i, r := range runs {
			m := r.Metrics()
			value := func(name, label, is string) float64 {
				f := all["locktop_"+name]
				for _, s := range f.samples {
					if s.labels["side"] == strconv.Itoa(i+1) && s.labels[label] == is && s.name == "locktop_"+name {
						want := map[string]string{"scenario": strings.ToValidUTF8(names[i], "\uFFFD"), "kind": string(r.Scenario().Lock.Kind)}
						if i == 1 {
							want["scenario"] = "load"
						}
						if s.labels["scenario"] != want["scenario"] || s.labels["kind"] != want["kind"] {
							t.Errorf("labels %q, want %q", s.labels, want)
						}
						return s.value
					}
				}
				t.Errorf("side %d has no %s with %s=%s", i+1, name, label, is)
				return math.NaN()
			}
			for what, want := range map[string]int64{
				"arrivals": m.Arrivals, "acquired": m.Acquired, "timed_out": m.TimedOut, "cut_off": m.CutOff, "commands": m.Cost.Commands, "late": m.LateArrivals, "released": m.Released,
			} {
				if got := value("load_total", "what", what); got != float64(want) {
					t.Errorf("side %d: %s is %g, want %d", i+1, what, got, want)
				}
			}
			for what, want := range violations(m.Violations) {
				name, label := "load_violations_total", "violation"
				if what == "overlaps_excused" {
					name, label, what = "load_overlaps_excused_total", "side", strconv.Itoa(i+1)
				}
				if got := value(name, label, what); got != float64(want) {
					t.Errorf("side %d: %s is %g, want %d", i+1, what, got, want)
				}
			}
			side := strconv.Itoa(i + 1)
			if got := value("load_seconds", "side", side); math.Abs(got-m.Elapsed.Seconds()) > 1e-3 || m.Elapsed < 11*time.Second {
				t.Errorf("side %d ran %g s, want %s", i+1, got, m.Elapsed)
			}
			if got := value("load_backlog", "side", side); got != float64(m.Backlog) {
				t.Errorf("backlog %g, want %d", got, m.Backlog)
			}
			for name, l := range map[string]loadgen.Latency{"wait": m.Latency.Wait, "held": m.Latency.Held, "release": m.Latency.Release, "hand_off": m.Latency.Handoff, "renewal_late": m.Latency.RenewLate} {
				checkHistogram(t, all["locktop_load_"+name+"_seconds"], "locktop_load_"+name+"_seconds", side, l)
			}
		}
	})
}

// checkHistogram fails the test unless the histogram of a side has the values
// of a distribution and its buckets are cumulative.
func checkHistogram(t *testing.T, f *family, name, side string, l loadgen.Latency) {
	t.Helper()
	last, bound, sum, count := 0.0, math.Inf(-1), math.NaN(), math.NaN()
	buckets := 0
	for _, s := range f.samples {
		if s.labels["side"] != side {
			continue
		}
		switch s.name {
		case name + "_sum":
			sum = s.value
		case name + "_count":
			count = s.value
		case name + "_bucket":
			le, err := strconv.ParseFloat(s.labels["le"], 64)
			if err != nil || le <= bound || s.value < last {
				t.Errorf("%s: %g up to %q after %g up to %g", name, s.value, s.labels["le"], last, bound)
			}
			if le > 1.02*l.P99.Seconds() && s.value < 0.98*float64(l.Count) || le < 0.98*l.P50.Seconds() && s.value > 0.52*float64(l.Count) {
				t.Errorf("%s: %g of %d up to %g s, p50 %s, p99 %s", name, s.value, l.Count, le, l.P50, l.P99)
			}
			last, bound = s.value, le
			buckets++
		}
	}
	if !math.IsInf(bound, 1) || last != count || count != float64(l.Count) || buckets != len(bounds())+1 {
		t.Errorf("%s: %d buckets up to %g with %g, count %g, want %d", name, buckets, bound, last, count, l.Count)
	}
	if want := l.Mean.Seconds() * float64(l.Count); math.Abs(sum-want) > want/50+float64(l.Count)/1e6 {
		t.Errorf("%s: sum %g s, want %g s", name, sum, want)
	}
}
