package compat

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"locktop/cli"
	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/formats"
	"locktop/keyspace/holds"
	"locktop/keyspace/incident"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
	"locktop/loadgen/report"
	"locktop/loadgen/witness"
)

// schemaOf returns a schema of docs.
func schemaOf(t *testing.T, document string) *jsonschema.Schema {
	t.Helper()
	return check.Must(jsonschema.NewCompiler().Compile("../../docs/" + document + ".schema.json"))(t)
}

// keepsTo checks that the JSON of a document keeps to a schema, and returns what it has.
func keepsTo(t *testing.T, s *jsonschema.Schema, document any) (v map[string]any, text []byte) {
	t.Helper()
	text = check.Must(json.Marshal(document))(t)
	check.NoError(t, json.Unmarshal(text, &v))
	check.ErrorIs(t, s.Validate(v), nil, "%.2000s", text)
	return v, text
}

// printsTo checks that the document that write prints keeps to a schema.
func printsTo(t *testing.T, s *jsonschema.Schema, write func(io.Writer) error) {
	t.Helper()
	var out bytes.Buffer
	check.NoError(t, write(&out))
	keepsTo(t, s, json.RawMessage(out.Bytes()))
}

func TestSchemaOfScenarios(t *testing.T) {
	s := schemaOf(t, "scenario")
	for name, c := range map[string]struct {
		file  string
		sound bool
	}{
		"the example":   {string(check.Must(os.ReadFile("../../loadgen/testdata/example.yaml"))(t)), true},
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

// The schema takes what locktop config --check takes, and of the wrong files those in which only
// the command can see the error.
func TestSchemaOfTheConfiguration(t *testing.T) {
	s := schemaOf(t, "config")
	var table map[string]struct {
		Lines  []string
		Schema bool
	}
	check.NoError(t, yaml.Unmarshal(check.Must(os.ReadFile("../../cli/testdata/config.yaml"))(t), &table))
	for name, c := range table {
		var v any
		err := yaml.Unmarshal([]byte(strings.Join(c.Lines, "\n")), &v)
		check.Require(t, err == nil || name == "twice", "%v", err)
		err = s.Validate(v)
		check.True(t, v == nil || (err == nil) == c.Schema, "%s: the schema says %v", name, err)
	}
}

func TestSchemaOfReports(t *testing.T) {
	s := schemaOf(t, "load-report")
	synctest.Test(t, func(t *testing.T) {
		on := server.NewPiped()
		defer on.Close()
		r := check.Must(loadgen.New(loadgen.Servers{Redis: servertest.ClientForTest(t, on.Addr(), on.Dial)}, loadgen.Scenario{
			Clients: 5, Keys: loadgen.Keys{N: 1}, Lock: loadgen.Lock{TTL: 200 * time.Millisecond}, Duration: 1100 * time.Millisecond,
			Hold: loadgen.Const(20 * time.Millisecond),
			Faults: []loadgen.Fault{
				{At: 100 * time.Millisecond, Kind: loadgen.Freeze, For: 600 * time.Millisecond}, {At: time.Hour, Kind: loadgen.Flush},
			},
			Thresholds: []loadgen.Threshold{{Figure: "wait.p99", Op: "<", Value: 0}},
		}))(t)
		check.NoError(t, r.Start())
		<-r.Done()
		m := r.Metrics()
		all := report.Result{
			Scenario: r.Scenario(), Metrics: m, Seconds: m.Seconds, Proof: &oracle.Proof{Holds: 9},
			Witness: &witness.Results{Err: errors.New("lost"), Counts: witness.Counts{Crossings: oracle.Crossings{
				Examples: []oracle.Crossing{{Key: "k", Client: "client-2", Others: []string{"client-1"}}},
			}}},
			Agents: []loadgen.AgentState{{Number: 1, Name: "web-1:77", Clients: 5, Metrics: m}},
		}
		v, text := keepsTo(t, s, all)
		check.True(t, len(m.Violations.Evidence) != 0 && len(m.Seconds) != 0, "the report has too little in it: %s", text)

		// The report contains a scenario that can be run again.
		again := check.Must(loadgen.Parse([]byte(v["scenario"].(string))))(t)
		check.True(t, string(again.WithDefaults().Marshal()) == string(r.Scenario().Marshal()),
			"read back: %s\nwas run: %s", again.Marshal(), r.Scenario().Marshal())

		all.Baseline = new(report.Baseline)
		for range 3 {
			check.NoError(t, all.Baseline.Add(text))
		}
		all.Scenario.Seed, all.Scenario.Clients = 99, 7
		v, text = keepsTo(t, s, all)
		check.True(t, v["baseline"] != nil, "no baseline: %s", text)
		check.NoError(t, r.Close())
	})
}

func TestSchemaOfEvents(t *testing.T) {
	s := schemaOf(t, "load-event")
	kinds := map[any]bool{}
	for _, kind := range s.Properties["event"].Enum.Values {
		kinds[kind] = true
	}
	all := []loadgen.EventKind{
		loadgen.Arrived, loadgen.Acquired, loadgen.Counted, loadgen.Renewed, loadgen.TimedOut, loadgen.Refused, loadgen.Failed, loadgen.Released, loadgen.Expired, loadgen.Lost,
		loadgen.Abandoned, loadgen.FaultBegan, loadgen.FaultEnded, loadgen.StageBegan,
	}
	for _, kind := range oracle.Kinds() {
		all = append(all, loadgen.EventKind(kind.ID))
	}
	for _, kind := range all {
		check.True(t, kinds[string(kind)], "the schema does not know %s", kind)
		delete(kinds, string(kind))
	}
	check.AtMost(t, len(kinds), 0, "the schema knows %v", kinds)
	at := time.Unix(1, 2)
	full, text := keepsTo(t, s, loadgen.Event{
		Seq: 1, At: at, Kind: loadgen.Expired, Key: "k", More: []string{"l"}, Client: 1, Token: "t", Fence: 2, Shared: true, Depth: 2,
		Fault: loadgen.Freeze, Took: time.Second, Text: "text", Deadline: at, Told: at,
	})
	check.Equal(t, len(full), len(s.Properties), "keys of %s", text)
	empty, text := keepsTo(t, s, loadgen.Event{Seq: 1, At: at, Kind: loadgen.StageBegan})
	check.Equal(t, len(empty), len(s.Required), "keys of %s", text)
}

// A report of contention has a class of each way in which the waiting is known, and one without any.
func TestSchemaOfContention(t *testing.T) {
	s := schemaOf(t, "contention")
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	span, wait := contention.Span{From: at, Until: at.Add(21 * time.Second)}, contention.Quantile{Duration: time.Second, AtLeast: true}
	all := contention.Report{Watched: span, Monitored: span, Classes: []contention.Class{{Name: "idle:*", Locks: 3}}}
	for _, by := range []holds.Source{holds.Stored, holds.Asked, holds.Seen} {
		lock := keyspace.ID{Node: "a:1", Key: "order:" + string(by)}
		all.Classes = append(all.Classes, contention.Class{
			Name: lock.Key, Locks: 2, Held: 0.67, Source: by, MostWaiting: 7, Blocked: 4.98, Waited: 10 * time.Second, Attempts: 40, Acquired: 10,
			Worst: "worker-8", WorstShare: 0.17, P50: wait, P99: wait,
		})
		all.Blames = append(all.Blames, contention.Blame{
			Lock: lock, Holder: "worker-8", Source: by, Clients: 2, Total: 10 * time.Second, Longest: time.Second,
		})
		for _, waiter := range []string{"", "worker-1"} {
			all.Waits = append(all.Waits, contention.Blocked{Lock: lock, Holder: "worker-8", Waiter: waiter, Waited: 4 * time.Second})
		}
	}
	hostile := all
	hostile.Blames = slices.Clone(all.Blames)
	hostile.Blames[0].Lock.Key = "\xff"
	seen := keyspace.Snapshot{Complete: true, Problems: []string{"p"}}
	for _, d := range []render.ContentionDocument{
		render.ContentionOf(contention.Report{}, seen, 10), render.ContentionOf(all, seen, 10), render.ContentionOf(all, seen, 1), render.ContentionOf(hostile, seen, 10),
	} {
		printsTo(t, s, func(w io.Writer) error { return render.JSON(w, d) })
	}
}

func TestSchemaOfStories(t *testing.T) {
	s := schemaOf(t, "explain")
	at := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	all := render.Stories{Recording: "box", From: at, To: at.Add(time.Hour), Found: 40, Calm: []string{"lock:a: 3 holds ended."}}
	for _, cause := range keyspace.Causes() {
		all.Stories = append(all.Stories, incident.Story{
			Lock: keyspace.ID{Key: "job\xff"}, Format: "redis-py", Cause: incident.Cause(cause.ID), From: at, To: at.Add(time.Minute), Headline: "h",
			Lines:   []incident.Line{{At: at, Text: "l"}, {At: at, Text: "l", Cost: time.Second, Note: "n"}},
			Blocked: time.Minute, Usual: incident.Usual{Holds: 5, P50: time.Second, P99: time.Second}, Unknown: []string{"u"},
		})
	}
	for _, stories := range []render.Stories{{From: at, To: at}, all} {
		printsTo(t, s, func(w io.Writer) error { return render.JSON(w, stories.Document()) })
	}
	// Each cause of the schema exists.
	for _, cause := range s.Properties["stories"].Items2020.Ref.Properties["cause"].Enum.Values {
		check.True(t, slices.ContainsFunc(keyspace.Causes(), func(p keyspace.Problem) bool { return p.ID == cause.(string) }), "no story has the cause %v of the schema", cause)
	}
}

// What the commands print about the locks of all formats keeps to their schemas.
func TestSchemaOfWhatCommandsPrint(t *testing.T) {
	addr := servertest.EmbeddedForTest(t).Addr()
	rdb := servertest.ClientForTest(t, addr, nil)
	for _, f := range formats.All() {
		for _, sample := range formats.Samples(f.Name) {
			for _, argv := range formats.At(sample, check.Must(rdb.Time(t.Context()).Result())(t)).Commands {
				args := make([]any, len(argv))
				for i, arg := range argv {
					args[i] = arg
				}
				check.NoError(t, rdb.Do(t.Context(), args...).Err())
			}
		}
	}
	for command, keys := range map[string][]string{
		"list --all": {""}, "watch --for 500ms": {""}, "doctor --for 500ms": {""}, "inspect": {"orders:4711", "{gpu}:timeout", "desks"}, "who": {"orders:4712"},
	} {
		for _, key := range keys {
			args := append(strings.Fields(command), "--json", "-u", "redis://"+addr)
			if key != "" {
				args = append(args, key)
			}
			var out, errs bytes.Buffer
			cli.Run(t.Context(), args, strings.NewReader(""), &out, &errs)
			check.Require(t, out.Len() > 0, "%v prints only %s", args, errs.String())
			s := schemaOf(t, args[0])
			for line := range strings.Lines(out.String()) {
				v, _ := keepsTo(t, s, json.RawMessage(line))
				v["colour"] = "red"
				check.True(t, s.Validate(v) != nil, "the schema takes an unknown field")
			}
		}
	}
}
