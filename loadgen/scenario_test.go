package loadgen

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultsFillInWhatIsMissingOnly(t *testing.T) {
	s := Scenario{Clients: 7, Hold: Dist{Const: true}}.WithDefaults()
	if s.Clients != 7 || s.Hold != (Dist{Const: true}) {
		t.Errorf("given fields were changed: %+v", s)
	}
	want := Scenario{
		Clients: 7, Keys: 3, Prefix: s.Prefix, TTL: 5 * time.Second, Seed: s.Seed,
		Hold: Dist{Const: true}, Think: Dist{Mean: 50 * time.Millisecond},
	}
	if s != want {
		t.Errorf("got  %+v\nwant %+v", s, want)
	}
	if s.Seed == 0 || !strings.HasPrefix(s.Prefix, "load:{") || !strings.HasSuffix(s.Prefix, "}:") {
		t.Errorf("no seed or no prefix: %+v", s)
	}
	if again := s.WithDefaults(); again != s {
		t.Errorf("defaults of defaults differ: %+v and %+v", again, s)
	}
}

func TestTwoRunsShareNeitherKeysNorChoices(t *testing.T) {
	a, b := Scenario{}.WithDefaults(), Scenario{}.WithDefaults()
	if a.Prefix == b.Prefix || a.Seed == b.Seed {
		t.Errorf("the same twice: %+v and %+v", a, b)
	}
}

func TestKeysCarryThePrefix(t *testing.T) {
	names := Scenario{Keys: 2, Prefix: "p:"}.names()
	if len(names) != 2 || names[0] != "p:1" || names[1] != "p:2" {
		t.Errorf("got %q", names)
	}
}

func TestValidateNamesTheFieldInOneLine(t *testing.T) {
	for field, s := range map[string]Scenario{
		"clients":            {Clients: -1},
		"clients ":           {Clients: MaxClients + 1},
		"keys":               {Keys: -1},
		"keys ":              {Keys: MaxKeys + 1},
		"ttl":                {TTL: 9 * time.Millisecond},
		"ttl ":               {TTL: -time.Second},
		"ttl must":           {TTL: 10*time.Millisecond + 1},
		"hold":               {Hold: Dist{Mean: -1}},
		"hold ":              {Hold: Dist{Mean: 25 * time.Hour}},
		"think":              {Think: Dist{Mean: -1, Const: true}},
		"patience":           {Patience: -1},
		"patience must be 0": {Patience: 25 * time.Hour},
	} {
		err := s.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), field) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %q", field, err)
		}
	}
}

func TestScenariosInOrderAreAccepted(t *testing.T) {
	for _, s := range []Scenario{
		{},
		{Clients: MaxClients, Keys: MaxKeys, TTL: minTTL, Hold: Dist{Mean: maxTime}, Think: Dist{Const: true}, Patience: 1},
	} {
		if err := s.Validate(); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}
