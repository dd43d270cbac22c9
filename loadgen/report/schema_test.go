package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

// Each figure that a threshold can name has its value in the document, at the parts of its name:
// hand_off.p99 is .figures.hand_off.p99_ms.
func TestThresholdsHaveTheNamesOfTheReports(t *testing.T) {
	r := fullReport(t)
	var document struct{ Figures map[string]any }
	var again struct{ Figures loadgen.Figures }
	text := check.Must(json.Marshal(r))(t)
	check.NoError(t, errors.Join(json.Unmarshal(text, &document), json.Unmarshal(text, &again)))
	simple := regexp.MustCompile(`^[a-z0-9_]+$`)
	for _, name := range loadgen.FigureNames() {
		want, known := r.Metrics.Figures()[name]
		got, read := again.Figures[name]
		check.True(t, known == read && math.Abs(got-want) < 1e-6, "%s is %v, known %t, want %v, known %t", name, got, read, want, known)
		group, part, _ := strings.Cut(name, ".")
		check.True(t, simple.MatchString(group) && (part == "" || simple.MatchString(part)), "%s needs quotes in jq", name)
	}
	check.Equal(t, document.Figures["hand_off"].(map[string]any)["p99_ms"], any(float64(r.Metrics.Latency.Handoff.P99.Milliseconds())))
	all := make(map[string]any)
	for _, name := range loadgen.FigureNames() {
		all[name] = map[string]any{"type": "number"}
	}
	for group, parts := range loadgen.NestFigures(all, func(v any, _ float64) any { return v }) {
		want := check.Part[map[string]any](t, "../../docs/load-report.schema.json", "$defs/figures/properties/"+group)
		if properties, nested := want["properties"]; nested {
			want = properties.(map[string]any)
		}
		check.DeepEqual(t, parts, any(want), "%s in the schema", group)
	}
	_, found := document.Figures["renewal_late"]
	check.False(t, found, "a latency without samples has figures")
}

// Each kind of violation is a figure of thresholds, and has its sentence in the verdict, its row in
// the reports and its key in the document.
func TestEachViolationIsInEachOutput(t *testing.T) {
	tallies := 0
	for _, field := range reflect.VisibleFields(reflect.TypeFor[oracle.Violations]()) {
		if field.Type == reflect.TypeFor[oracle.Tally]() {
			tallies++
		}
	}
	check.Equal(t, len(oracle.Kinds()), tallies, "kinds in the table")
	for _, k := range oracle.Kinds() {
		var r Result
		r.Metrics.Acquired = 1
		*k.Of(&r.Metrics.Violations) = oracle.Tally{Count: 7}
		r.Metrics.Violations.Evidence = []oracle.Evidence{{Violation: k.ID}}
		threshold := check.Must(loadgen.ParseThreshold(string(k.ID) + ".count == 7"))(t)
		check.True(t, threshold.Met(r.Metrics), "%s is not met", threshold)
		var text, page strings.Builder
		check.NoError(t, errors.Join(r.WriteText(&text, strings.Clone), r.WriteHTML(&page)))
		document := string(check.Must(json.Marshal(r))(t))
		check.Contains(t, document, fmt.Sprintf(`"%s":{"count":7`, k.ID))
		check.Contains(t, document, fmt.Sprintf(`"violation":"%s"`, k.ID))
		check.Contains(t, page.String(), fmt.Sprintf("<th>%s</th><td>7", loadgen.Label(string(k.ID))))
		check.True(t, regexp.MustCompile(`(?m)^`+loadgen.Label(string(k.ID))+` +7`).MatchString(text.String()), "no row of %s in\n%s", k.ID, text.String())
		check.Contains(t, text.String(), "  "+string(k.ID)+" at ")
		said := "at the same time (7 times"
		if k.ID != oracle.Overlap && k.ID != oracle.WorkOverlap {
			said = k.Sentence(7, "")[1:]
		}
		check.Contains(t, r.Verdict().Text(), said)
	}
}

func TestMain(m *testing.M) {
	logging.Disable() // go-redis reports on every connection it cannot have
	goleak.VerifyTestMain(servertest.Tests{M: m, Parallel: 4})
}

// piped returns a client of a server inside the test's synctest bubble.
func piped(t *testing.T) loadgen.RedisClient {
	t.Helper()
	s := server.NewPiped()
	t.Cleanup(s.Close)
	return servertest.ClientForTest(t, s.Addr(), s.Dial)
}

// started returns a run that stops at the end of the test.
func started(t *testing.T, rdb loadgen.RedisClient, s loadgen.Scenario) *loadgen.Run {
	t.Helper()
	r := check.Must(loadgen.New(loadgen.Servers{Redis: rdb}, s))(t)
	return running(t, r)
}

func running(t *testing.T, r *loadgen.Run) *loadgen.Run {
	t.Helper()
	t.Cleanup(func() { check.ErrorIs(t, r.Close(), nil) })
	check.NoError(t, r.Start())
	return r
}

func stop(t *testing.T, r *loadgen.Run) {
	t.Helper()
	check.NoError(t, r.Stop())
}

// example returns a scenario with every key.
func example(t *testing.T) loadgen.Scenario {
	t.Helper()
	return check.Must(loadgen.Parse([]byte(exampleFile(t))))(t)
}

func exampleFile(t *testing.T) string {
	t.Helper()
	text := check.Must(os.ReadFile("../testdata/example.yaml"))(t)
	return string(text)
}
