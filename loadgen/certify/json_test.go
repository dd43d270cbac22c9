package certify

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"locktop/internal/check"
	"locktop/loadgen/external"
)

// fullCard is a card in which every field has a value, with each outcome and each kind of
// span.
func fullCard() Card {
	card := Card{Version: CardVersion, Date: time.Unix(1_800_000_000, 0).UTC(), Locktop: "v1", Server: "redis 7.0.15", Seed: 7, Tests: Tests()}
	hello := external.Hello{Name: "line 1", Kinds: []string{"mutex"}, Renews: true, Fences: true, Tells: true, Clock: true, Cancels: true}
	result := Result{Client: Client{Name: "line 1", Command: "./line", Hello: hello, Extends: true, Error: "it exited"}}
	for _, o := range []Outcome{Pass, Fail, Observed, Unsupported, Inconclusive} {
		v := Verdict{Test: "crash", Outcome: o, Overlap: o == Fail, Evidence: "client-1 …", Took: Milliseconds(1234567 * time.Microsecond)}
		for _, k := range []SpanKind{Waiting, Holding, Late, Request, Faulty, Told, Note, Violated} {
			v.Timeline = append(v.Timeline, Span{Row: "client-1", From: Milliseconds(1500 * time.Microsecond), To: Milliseconds(2 * time.Second), Kind: k, Label: "lock"})
		}
		result.Verdicts = append(result.Verdicts, v)
	}
	card.Clients = []Result{result, {Client: Client{Name: "true", Command: "true"}, Verdicts: []Verdict{}}}
	return card
}

// encoded returns a card as it is in JSON.
func encoded(t *testing.T, card Card) (v map[string]any, text []byte) {
	t.Helper()
	text = check.Must(json.Marshal(card))(t)
	check.NoError(t, json.Unmarshal(text, &v))
	return v, text
}

// schemaOf returns a schema of docs.
func schemaOf(t *testing.T, file string) *jsonschema.Schema {
	t.Helper()
	return check.Must(jsonschema.NewCompiler().Compile("../../docs/" + file))(t)
}

func TestTheSchemaKnowsEveryFieldOfACard(t *testing.T) {
	s := schemaOf(t, "certify-card.schema.json")
	v, _ := encoded(t, fullCard())
	check.ErrorIs(t, s.Validate(v), nil)
	verdict := v["clients"].([]any)[0].(map[string]any)["verdicts"].([]any)[0].(map[string]any)
	check.True(t, verdict["took_ms"] == 1234.567 && verdict["timeline"].([]any)[0].(map[string]any)["from_ms"] == 1.5,
		"times are not milliseconds: %v", verdict)
	of := s.Properties["clients"].Items2020.Properties["verdicts"].Items2020.Properties
	check.Equal(t, len(of["outcome"].Enum.Values), 5, "outcomes in the schema")
	check.Equal(t, len(of["timeline"].Items2020.Properties["kind"].Enum.Values), 8, "kinds of spans in the schema")
	verdict["colour"] = "red"
	check.True(t, s.Validate(v) != nil, "the schema takes an unknown field")
}

func TestACardCanBeReadFromItsJSON(t *testing.T) {
	card := fullCard()
	_, text := encoded(t, card)
	var again Card
	check.NoError(t, json.Unmarshal(text, &again))
	for i := range card.Tests { // only what is in JSON
		card.Tests[i] = Test{Name: card.Tests[i].Name, Title: card.Tests[i].Title, About: card.Tests[i].About}
	}
	check.DeepEqual(t, card, again)
}
