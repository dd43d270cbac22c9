package report

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen"
)

// baselineOf returns the baseline of reports of the example with these median waits.
func baselineOf(t *testing.T, waits ...time.Duration) *Baseline {
	t.Helper()
	b := new(Baseline)
	for _, wait := range waits {
		check.NoError(t, b.Add(reportOf(t, example(t), wait)))
	}
	return b
}

// reportOf returns the JSON of a report with this median wait.
func reportOf(t *testing.T, s loadgen.Scenario, wait time.Duration) []byte {
	t.Helper()
	r := Result{Scenario: s}
	r.Metrics.Acquired, r.Metrics.Elapsed = 100, 10*time.Second
	r.Metrics.Latency.Wait = loadgen.Latency{Count: 100, P50: wait}
	return check.Must(json.Marshal(r))(t)
}

// A run is within the noise if it is no further outside the range of the earlier reports
// than that range is wide.
func TestOnlyAChangeBeyondTheNoiseIsBeyond(t *testing.T) {
	for _, c := range []struct {
		earlier []time.Duration
		now     time.Duration
		want    string
	}{
		{[]time.Duration{10, 12, 11}, 14, "within"},
		{[]time.Duration{10, 12, 11}, 15, "beyond"},
		{[]time.Duration{10, 12, 11}, 8, "within"},
		{[]time.Duration{10, 12, 11}, 7, "beyond"},
		{[]time.Duration{10, 10, 10}, 10, "within"},
		{[]time.Duration{10, 12}, 100, "unknown"},
	} {
		ms := func(d time.Duration) time.Duration { return d * time.Millisecond }
		b := new(Baseline)
		for _, wait := range c.earlier {
			check.NoError(t, b.Add(reportOf(t, example(t), ms(wait))))
		}
		changes := b.changes(loadgen.Figures{"wait.p50": ms(c.now).Seconds()})
		check.True(t, len(changes) == 1 && changes["wait.p50"].verdict() == c.want, "after %v, %v is %+v, want %s", c.earlier, c.now, changes, c.want)
	}
}

func TestAReportIsComparedWithEarlierOnes(t *testing.T) {
	r := Result{Scenario: example(t), Baseline: baselineOf(t, 20*time.Millisecond, 10*time.Millisecond, 12*time.Millisecond)}
	r.Scenario.Seed, r.Scenario.Clients = 99, 7
	r.Metrics.Acquired, r.Metrics.Elapsed = 50, 10*time.Second
	r.Metrics.Latency.Wait = loadgen.Latency{Count: 100, P50: 60 * time.Millisecond}
	var text strings.Builder
	check.NoError(t, r.WriteText(&text, strings.Clone))
	lines := text.String()
	for _, want := range []string{
		"compared with 3 earlier reports median least most now change noise",
		"throughput 10.0/s 10.0/s 10.0/s 5.0/s -50% beyond",
		"wait.p50 12 ms 10 ms 20 ms 60 ms +400% beyond",
		"The earlier load was another: clients: 200; now clients: 7",
	} {
		if !slices.ContainsFunc(strings.Split(lines, "\n"), func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
			t.Errorf("the report has no line %q:\n%s", want, lines)
		}
	}
}

func TestABaselineOfSomethingElseIsRefused(t *testing.T) {
	other := example(t)
	other.Clients++
	for what, c := range map[string]struct {
		file []byte
		want string
	}{
		"no JSON":      {[]byte("hello"), "no report"},
		"other JSON":   {[]byte(`{"a": 1}`), "no figures"},
		"another load": {reportOf(t, other, time.Second), "another than that of the first report"},
	} {
		b := baselineOf(t, time.Second)
		check.ErrorContains(t, b.Add(c.file), c.want, "%s", what)
	}
}
