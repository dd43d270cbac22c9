package render

import (
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
	"locktop/keyspace/incident"
)

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
