//go:build unix

package main

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/lab/clienttest"
	"locktop/loadgen/external"
)

// schemaOf returns a schema of the documents.
func schemaOf(t *testing.T, document string) *jsonschema.Schema {
	t.Helper()
	return check.Must(jsonschema.NewCompiler().Compile("../docs/" + document + ".schema.json"))(t)
}

// keepsTo checks that the JSON of a document keeps to a schema, and returns what it has.
func keepsTo(t *testing.T, s *jsonschema.Schema, document any) (v map[string]any, text []byte) {
	t.Helper()
	text = check.Must(json.Marshal(document))(t)
	check.NoError(t, json.Unmarshal(text, &v))
	check.ErrorIs(t, s.Validate(v), nil, "%.2000s", text)
	return v, text
}

// fullCard is a card in which every field has a value, with each outcome and each kind of
// span.
func fullCard() clienttest.Card {
	card := clienttest.Card{
		Version: clienttest.CardVersion, Date: time.Unix(1_800_000_000, 0).UTC(), Locktop: "v1", Server: "redis 7.0.15", Seed: 7,
		Tests: clienttest.Tests(),
	}
	hello := external.Hello{Name: "line 1", Kinds: []string{"mutex"}, Renews: true, Fences: true, Tells: true, Clock: true, Cancels: true}
	result := clienttest.Result{Client: clienttest.Client{Name: "line 1", Command: "./line", Hello: hello, Extends: true, Error: "it exited"}}
	for _, o := range []clienttest.Outcome{clienttest.Pass, clienttest.Fail, clienttest.Observed, clienttest.Unsupported, clienttest.Inconclusive} {
		v := clienttest.Verdict{
			Test: "crash", Outcome: o, Overlap: o == clienttest.Fail, Evidence: "client-1 …", Took: clienttest.Milliseconds(1234567 * time.Microsecond),
		}
		for _, k := range []clienttest.SpanKind{
			clienttest.Waiting, clienttest.Holding, clienttest.Late, clienttest.Request, clienttest.Faulty, clienttest.Told, clienttest.Note, clienttest.Violated,
		} {
			v.Timeline = append(v.Timeline, clienttest.Span{
				Row: "client-1", From: clienttest.Milliseconds(1500 * time.Microsecond), To: clienttest.Milliseconds(2 * time.Second), Kind: k, Label: "lock",
			})
		}
		result.Verdicts = append(result.Verdicts, v)
	}
	card.Clients = []clienttest.Result{result, {Client: clienttest.Client{Name: "true", Command: "true"}, Verdicts: []clienttest.Verdict{}}}
	return card
}

func TestSchemaOfCards(t *testing.T) {
	s := schemaOf(t, "certify-card")
	card := fullCard()
	v, text := keepsTo(t, s, card)
	verdict := v["clients"].([]any)[0].(map[string]any)["verdicts"].([]any)[0].(map[string]any)
	check.True(t, verdict["took_ms"] == 1234.567 && verdict["timeline"].([]any)[0].(map[string]any)["from_ms"] == 1.5,
		"times are not milliseconds: %v", verdict)
	of := s.Properties["clients"].Items2020.Properties["verdicts"].Items2020.Properties
	check.Equal(t, len(of["outcome"].Enum.Values), 5, "outcomes in the schema")
	check.Equal(t, len(of["timeline"].Items2020.Properties["kind"].Enum.Values), 8, "kinds of spans in the schema")
	verdict["colour"] = "red"
	check.True(t, s.Validate(v) != nil, "the schema takes an unknown field")

	// A card can be read from its JSON.
	var again clienttest.Card
	check.NoError(t, json.Unmarshal(text, &again))
	for i := range card.Tests { // only what is in JSON
		card.Tests[i] = clienttest.Test{Name: card.Tests[i].Name, Title: card.Tests[i].Title, About: card.Tests[i].About}
	}
	check.DeepEqual(t, card, again)
}

func TestSchemaOfOrders(t *testing.T) {
	s := schemaOf(t, "certify-orders")
	v, _ := keepsTo(t, s, clienttest.Search{Clients: []clienttest.SearchResult{{Client: fullCard().Clients[0].Client, Plays: []clienttest.Played{{
		Unsupported: "no", Error: "it exited", Orders: []int{1, 2},
		Found: &clienttest.Counterexample{
			Steps: []clienttest.Step{{Client: "client-1", Fault: "killed", Command: "GET k", Reply: "v", Result: "lock: ok"}},
		},
	}}}}})
	v["colour"] = "red"
	check.True(t, s.Validate(v) != nil, "the schema takes an unknown field")
}

// The documents about a client with a flaw, a sound one and a command that is no client keep to
// their schemas.
func TestSchemaOfWhatIsPrinted(t *testing.T) {
	servertest.RedisForTest(t) // skips without redis-server
	for document, flags := range map[string]string{
		"certify-card":   "--tests readers,nodes-2-down,between-release",
		"certify-orders": "--exhaustive --order release/a.a.af.b.a",
	} {
		t.Run(document, func(t *testing.T) {
			t.Parallel()
			out, _ := prints(t, exitFailed, "classic/get-then-del mutex --json --exec 'echo hello' "+flags) // the flaw is found
			keepsTo(t, schemaOf(t, document), json.RawMessage(out))
		})
	}
}
