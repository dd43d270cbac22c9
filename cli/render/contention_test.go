package render

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/contention"
	"locktop/keyspace/incident"
)

// someContention is a report with a class of each way in which the waiting is known, and one without any.
func someContention() contention.Report {
	at := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	seen, asked := keyspace.ID{Node: "a:1", Key: "order:1"}, keyspace.ID{Node: "a:1", Key: "job;1"}
	return contention.Report{
		Watched: contention.Span{From: at, Until: at.Add(21 * time.Second)}, Monitored: contention.Span{From: at.Add(time.Second), Until: at.Add(3 * time.Second)},
		Classes: []contention.Class{
			{Name: "order:*", Locks: 2, Held: 0.67, Rung: contention.Seen, MostWaiting: 7, Blocked: 4.98, Waited: 10 * time.Second, Attempts: 40, Acquired: 10, Worst: "worker-8", WorstShare: 0.17,
				P50: contention.Quantile{Duration: 153 * time.Millisecond}, P99: contention.Quantile{Duration: 711 * time.Millisecond, AtLeast: true}},
			{Name: "job;*", Locks: 1, Held: 1, Rung: contention.Asked, MostWaiting: 1, Blocked: 0.5, Waited: 10 * time.Second, Attempts: 9, Worst: "cron", WorstShare: 1},
			{Name: "idle:*", Locks: 3},
		},
		Blames: []contention.Blame{
			{Lock: seen, Holder: "worker-8", Rung: contention.Seen, Clients: 2, Total: 10 * time.Second, Longest: 700 * time.Millisecond},
			{Lock: asked, Holder: "cron", Rung: contention.Asked, Clients: 1, Total: 10 * time.Second, Longest: 10 * time.Second},
		},
		Waits: []contention.Blocked{
			{Lock: asked, Holder: "cron", Waited: 10 * time.Second},
			{Lock: seen, Holder: "worker-8", Waiter: "worker-1", Waited: 4 * time.Second},
			{Lock: seen, Holder: "worker-8", Waiter: "10.0.0.1:4711", Waited: 6 * time.Second},
		},
	}
}

func TestTheTableOfContention(t *testing.T) {
	var out strings.Builder
	check.NoError(t, Contention(&out, someContention(), false, 10, 0))
	want := `CLASS    LOCKS  HELD  WAITERS  TRIES/ACQ  BLOCKED    WORST HOLDER  WAIT P50  P99      BY
order:*  2      67%   7        4.0        4.98 s/s   worker-8 17%  153 ms    ≥711 ms  seen
job;*    1      100%  ≥1       9/0        ≥0.50 s/s  cron 100%                        asked
idle:*   3      0%

Blocked by
HOLDER    LOCK     CLIENTS  TOTAL   LONGEST  BY
worker-8  order:1  2        10 s  700 ms   seen
cron      job;1    ≥1       ≥10 s  ≥10 s  asked
watched for 21 s, MONITOR ran for 2.0 s of it
`
	got := out.String()
	check.True(t, squeezed(got) == squeezed(want), "it prints\n%s\nwant\n%s", got, want)
	out.Reset()
	r := someContention()
	r.Monitored = contention.Span{}
	if err := Contention(&out, r, true, 1, 60); err != nil || !strings.Contains(out.String(), "0:order:*") || strings.Contains(out.String(), "job") ||
		!strings.Contains(out.String(), "clients that only poll are seen with --monitor") {
		t.Errorf("%v: it prints\n%s", err, out.String())
	}
}

// squeezed returns a text with one blank where it has several.
func squeezed(s string) string {
	for strings.Contains(s, "  ") {
		s = strings.ReplaceAll(s, "  ", " ")
	}
	return s
}

func TestTheFoldedContentionHasALineForEachWaiter(t *testing.T) {
	var out strings.Builder
	want := "*;job,1;cron;(not_named) 10000\norder:*;order:1;worker-8;worker-1 4000\norder:*;order:1;worker-8;10.0.0.1:4711 6000\n"
	err := Folded(&out, someContention())
	check.True(t, err == nil && out.String() == want, "%v: it prints\n%s\nwant\n%s", err, out.String(), want)
}

// schemaOf returns the schema of a document in docs.
func schemaOf(t *testing.T, document string) *jsonschema.Schema {
	t.Helper()
	schema := check.Must(jsonschema.NewCompiler().Compile("../../docs/" + document + ".schema.json"))(t)
	return schema
}

// keepsTo checks that a document that write prints keeps to its schema.
func keepsTo(t *testing.T, schema *jsonschema.Schema, write func(io.Writer) error) {
	t.Helper()
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(textOf(t, write)))
	check.ErrorIs(t, errors.Join(err, schema.Validate(v)), nil)
}

func TestTheDocumentOfContentionKeepsToItsSchema(t *testing.T) {
	schema := schemaOf(t, "contention")
	hostile := someContention()
	hostile.Blames[0].Lock.Key = "\xff"
	for _, d := range []ContentionDocument{ContentionOf(contention.Report{}, 10), ContentionOf(someContention(), 10), ContentionOf(someContention(), 1), ContentionOf(hostile, 10)} {
		keepsTo(t, schema, func(w io.Writer) error { return JSON(w, d) })
	}
	d := ContentionOf(someContention(), 1)
	text, err := json.Marshal(d)
	if err != nil || d.MoreClass != 2 || d.MoreBlamed != 1 || len(d.BlockedBy) != 1 || len(d.BlockedBy[0].Waiters) != 2 || d.Classes[0].P99.MS != 711 || !d.Classes[0].P99.AtLeast {
		t.Errorf("%v: it is %s", err, text)
	}
}

func TestTheDocumentOfStoriesKeepsToItsSchema(t *testing.T) {
	schema := schemaOf(t, "explain")
	at := time.Date(2026, 11, 22, 3, 12, 0, 0, time.UTC)
	all := Stories{Recording: "box", From: at, To: at.Add(time.Hour), Found: 40, Calm: []string{"lock:a: 3 holds ended."}}
	for _, cause := range incident.Causes() {
		all.Stories = append(all.Stories, incident.Story{Lock: keyspace.ID{Key: "job\xff"}, Format: "redis-py", Cause: cause, From: at, To: at.Add(time.Minute), Headline: "h",
			Lines: []incident.Line{{At: at, Text: "l"}, {At: at, Text: "l", Cost: time.Second, Note: "n"}}, Blocked: time.Minute, Usual: incident.Usual{Holds: 5, P50: time.Second, P99: time.Second}, Unknown: []string{"u"}})
	}
	for _, s := range []Stories{{}, all} {
		keepsTo(t, schema, s.JSON)
	}
	// Each cause of the schema exists.
	for _, cause := range schema.Properties["stories"].Items2020.Properties["cause"].Enum.Values {
		check.True(t, slices.Contains(incident.Causes(), incident.Cause(cause.(string))), "no story has the cause %v of the schema", cause)
	}
}
