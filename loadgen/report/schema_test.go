package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"locktop/internal/check"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/witness"
)

func TestTheSchemaOfScenariosHasTheKeysOfAFile(t *testing.T) {
	s := schemaOf(t, "scenario.schema.json")
	for what, pair := range map[string][2][]string{
		"a scenario": {readKeys("x: 1"), slices.Sorted(maps.Keys(s.Properties))},
		"a fault":    {readKeys("faults: [{x: 1}]"), slices.Sorted(maps.Keys(s.Properties["faults"].Items2020.Properties))},
	} {
		slices.Sort(pair[0])
		check.DeepEqual(t, pair[0], pair[1], "%s", what)
	}
	for _, kind := range loadgen.FaultKinds() {
		check.True(t, slices.Contains(s.Properties["faults"].Items2020.Properties["fault"].Enum.Values, any(string(kind))),
			"the schema does not know the fault %s", kind)
	}
	for name, c := range map[string]struct {
		file  string
		sound bool
	}{
		"the example":   {exampleFile(t), true},
		"a wrong key":   {"clints: 3", false},
		"a wrong fault": {"faults: [{at: 1s, fault: flood}]", false},
		"a wrong type":  {"clients: many", false},
	} {
		var v map[string]any
		check.NoError(t, yaml.Unmarshal([]byte(c.file), &v))
		err := s.Validate(v)
		check.True(t, (err == nil) == c.sound, "%s: %v", name, err)
	}
}

// readKeys returns the keys that the error about a file with a wrong key lists.
func readKeys(file string) []string {
	_, err := loadgen.Parse([]byte(file))
	_, keys, _ := strings.Cut(fmt.Sprint(err), "there are ")
	return strings.Fields(keys)
}

// schemaOf returns a schema of docs.
func schemaOf(t *testing.T, file string) *jsonschema.Schema {
	t.Helper()
	return check.Must(jsonschema.NewCompiler().Compile("../../docs/" + file))(t)
}

func TestReportsMatchTheirSchema(t *testing.T) {
	s := schemaOf(t, "load-report.schema.json")
	synctest.Test(t, func(t *testing.T) {
		r := started(t, piped(t), loadgen.Scenario{
			Clients: 5, Keys: loadgen.Keys{N: 1}, Lock: loadgen.Lock{TTL: 200 * time.Millisecond}, Duration: 1100 * time.Millisecond,
			Hold: loadgen.Const(20 * time.Millisecond), Faults: []loadgen.Fault{{At: 100 * time.Millisecond, Kind: loadgen.Freeze, For: 600 * time.Millisecond}, {At: time.Hour, Kind: loadgen.Flush}},
			Thresholds: []loadgen.Threshold{{Metric: "wait.p99", Op: "<", Value: 0}},
		})
		<-r.Done()
		report := Result{Scenario: r.Scenario(), Metrics: r.Metrics(), Seconds: r.Metrics().Seconds, Proof: &oracle.Proof{}, Witness: &witness.Results{
			Counts: witness.Counts{Examples: []witness.Overlap{{Key: "k", Client: "client-2", Others: []string{"client-1"}}}}, Err: errors.New("lost"),
		}, Agents: []loadgen.AgentState{{Number: 1, Name: "web-1:77", Clients: 5, Metrics: r.Metrics()}}}
		text := check.Must(json.Marshal(report))(t)
		var v map[string]any
		check.NoError(t, json.Unmarshal(text, &v))
		check.ErrorIs(t, s.Validate(v), nil)
		check.True(t, len(report.Metrics.Violations.Evidence) != 0 && len(report.Seconds) != 0, "the report has too little in it: %s", text)

		// The report contains a scenario that can be run again.
		again := check.Must(loadgen.Parse([]byte(v["scenario"].(string))))(t)
		check.True(t, string(again.WithDefaults().Marshal()) == string(r.Scenario().Marshal()),
			"read back: %s\nwas run: %s", again.Marshal(), r.Scenario().Marshal())
	})
}

func TestThresholdsHaveTheNamesOfTheReports(t *testing.T) {
	for _, name := range []string{"release.p99", "service.p99", "hand-off.p50", "handoff.p50", "timed-out.count", "timeouts.count", "timed_out.rate"} {
		_, err := loadgen.ParseThreshold(name + " >= 0")
		check.True(t, err == nil || strings.Contains(err.Error(), "is no time"), "%s: %v", name, err)
	}
}

func TestEventsMatchTheirSchema(t *testing.T) {
	s := schemaOf(t, "load-event.schema.json")
	kinds := map[any]bool{}
	for _, kind := range s.Properties["event"].Enum.Values {
		kinds[kind] = true
	}
	all := []loadgen.EventKind{loadgen.Arrived, loadgen.Acquired, loadgen.TimedOut, loadgen.Refused, loadgen.Failed, loadgen.Released, loadgen.Expired, loadgen.Lost, loadgen.Abandoned, loadgen.FaultBegan, loadgen.FaultEnded, loadgen.StageBegan}
	for _, kind := range oracle.Kinds() {
		all = append(all, loadgen.EventKind(kind))
	}
	for _, kind := range all {
		check.True(t, kinds[string(kind)], "the schema does not know %s", kind)
		delete(kinds, string(kind))
	}
	check.AtMost(t, len(kinds), 0, "the schema knows %v", kinds)
	at := time.Unix(1, 2)
	for name, e := range map[string]loadgen.Event{
		"full": {
			Seq: 1, At: at, Kind: loadgen.Expired, Key: "k", More: []string{"l"}, Client: 1, Token: "t", Fence: 2, Shared: true,
			Fault: loadgen.Freeze, Took: time.Second, Text: "text", Deadline: at, Told: at,
		},
		"empty": {Seq: 1, At: at, Kind: loadgen.StageBegan},
	} {
		text := check.Must(json.Marshal(e))(t)
		var v map[string]any
		check.NoError(t, json.Unmarshal(text, &v))
		check.ErrorIs(t, s.Validate(v), nil, "%s", name)
		check.True(t, name != "full" || len(v) == len(s.Properties), "%d keys, the schema has %d: %s", len(v), len(s.Properties), text)
		check.True(t, name != "empty" || len(v) == len(s.Required), "what is empty is written: %s", text)
	}
}
