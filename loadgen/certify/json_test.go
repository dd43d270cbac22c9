package certify

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"locktop/internal/jsonschema"
	"locktop/loadgen/external"
)

// fullCard is a card in which every field has a value, with each outcome and each kind of
// span.
func fullCard() Card {
	card := Card{Version: CardVersion, Date: time.Unix(1_800_000_000, 0).UTC(), Locktop: "v1", Server: "redis 7.0.15", Seed: 7, Tests: Tests()}
	hello := external.Hello{Name: "line 1", Kinds: []string{"mutex"}, Renews: true, Fences: true, Tells: true, Clock: true}
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
	text, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return v, text
}

func TestTheSchemaKnowsEveryFieldOfACard(t *testing.T) {
	s := jsonschema.Read(t, "../../docs/certify-card.schema.json")
	v, _ := encoded(t, fullCard())
	if wrong := s.Check(v, "card"); wrong != "" {
		t.Error(wrong)
	}
	verdict := v["clients"].([]any)[0].(map[string]any)["verdicts"].([]any)[0].(map[string]any)
	if verdict["took_ms"] != 1234.567 || verdict["timeline"].([]any)[0].(map[string]any)["from_ms"] != 1.5 {
		t.Errorf("times are not milliseconds: %v", verdict)
	}
	of := s.Properties["clients"].Items.Properties["verdicts"].Items.Properties
	for name, all := range map[string]int{"outcome": 5, "kind": 8} {
		values := of[name].Enum
		if name == "kind" {
			values = of["timeline"].Items.Properties["kind"].Enum
		}
		if len(values) != all {
			t.Errorf("%s: the schema has %v", name, values)
		}
	}
	verdict["colour"] = "red"
	if s.Check(v, "card") == "" {
		t.Error("the schema takes an unknown field")
	}
}

func TestACardCanBeReadFromItsJSON(t *testing.T) {
	card := fullCard()
	_, text := encoded(t, card)
	var again Card
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	for i := range card.Tests { // only what is in JSON
		card.Tests[i] = Test{Name: card.Tests[i].Name, Title: card.Tests[i].Title, About: card.Tests[i].About}
	}
	if !reflect.DeepEqual(card, again) {
		t.Errorf("wrote %+v\nread %+v", card, again)
	}
}
