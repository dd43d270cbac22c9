package loadgen

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

func TestDefaultsSetOnlyZeroFields(t *testing.T) {
	s := Scenario{Clients: 7, Hold: Const(0)}.WithDefaults()
	want := Scenario{
		Lock:    Lock{Kind: Mutex, TTL: 5 * time.Second, Renew: Renew{PerTTL: 3}},
		Keys:    Keys{Pick: PickUniform, N: 3, Prefix: s.Keys.Prefix},
		Clients: 7, Seed: s.Seed, Depth: 1, Conns: 100, Arrivals: Even,
		Hold: Const(0), Think: Exp(50 * time.Millisecond),
	}
	check.DeepEqual(t, s, want)
	check.True(t, s.Seed != 0 && strings.HasPrefix(s.Keys.Prefix, "load:{") && strings.HasSuffix(s.Keys.Prefix, "}:"),
		"no seed or no prefix: %+v", s)
	check.DeepEqual(t, s.WithDefaults(), s, "defaults of defaults differ")
}

func TestTwoRunsShareNeitherKeysNorChoices(t *testing.T) {
	a, b := Scenario{}.WithDefaults(), Scenario{}.WithDefaults()
	check.True(t, a.Keys.Prefix != b.Keys.Prefix && a.Seed != b.Seed, "the same twice: %+v and %+v", a, b)
}

func TestARunLastsAsLongAsItsStages(t *testing.T) {
	s := Scenario{Stages: []Stage{{For: time.Second}, {For: 2 * time.Second}}}
	check.Equal(t, s.WithDefaults().Duration, 3*time.Second, "lasts")
	s.Duration = time.Second
	check.Equal(t, s.WithDefaults().Duration, time.Second, "the duration, though it was told")
}

func TestKeysCarryThePrefix(t *testing.T) {
	names := Keys{N: 2, Prefix: "p:"}.names()
	check.True(t, len(names) == 2 && names[0] == "p:1" && names[1] == "p:2", "got %q", names)
}

func TestValidateNamesTheFieldInOneLine(t *testing.T) {
	for field, s := range map[string]Scenario{
		"clients":                 {Clients: -1},
		"clients ":                {Clients: MaxClients + 1},
		"rate":                    {Rate: -1},
		"keys":                    {Keys: Keys{N: -1}},
		"keys ":                   {Keys: Keys{N: MaxKeys + 1}},
		"keys: pick":              {Keys: Keys{Pick: "all"}},
		"keys: the skew of zipf":  {Keys: Keys{Pick: PickZipf, Skew: -1}},
		"lock: kind":              {Lock: Lock{Kind: "sempahore"}},
		"ttl":                     {Lock: Lock{TTL: 9 * time.Millisecond}},
		"ttl ":                    {Lock: Lock{TTL: -time.Second}},
		"ttl must":                {Lock: Lock{TTL: 10*time.Millisecond + 1}},
		"renew: every":            {Lock: Lock{Renew: Renew{Every: 5 * time.Second}}},
		"lock: bad argument":      {Lock: Lock{Renew: Renew{Every: 500 * time.Microsecond}}},
		"wait: tries":             {Lock: Lock{Wait: Wait{Tries: 3}}},
		"wait: the fair lock":     {Lock: Lock{Kind: Fair, Wait: Wait{Poll: time.Second}}},
		"fence: classic/getset":   {Lock: Lock{Kind: "classic/getset", Fence: true}},
		"reads go with":           {Reads: 0.5},
		"depth goes with":         {Depth: 2},
		"hold: times":             {Hold: Exp(-1)},
		"hold: ":                  {Hold: Exp(25 * time.Hour)},
		"think: ":                 {Think: Const(-1)},
		"patience":                {Patience: -1},
		"patience must be 0":      {Patience: 25 * time.Hour},
		"stage 1: for":            {Stages: []Stage{{Clients: 3}}},
		"fault 1: fault must":     {Faults: []Fault{{Kind: "crush"}}},
		"fault 1: slow needs":     {Faults: []Fault{{Kind: Slow}}},
		"fault 1: skew: ":         {Faults: []Fault{{Kind: Skew, By: time.Second}}},
		"fault 1: before: mutex":  {Faults: []Fault{{Kind: Crash, Before: "DEL"}}},
		"versus 1: lock: kind":    {Versus: []Lock{{Kind: "fairer"}}},
		"threshold: there is no ": {Thresholds: []Threshold{{Metric: "p99", Op: "<"}}},
	} {
		err := s.Validate()
		check.True(t, err != nil && strings.HasPrefix(err.Error(), field) && !strings.Contains(err.Error(), "\n"), "%s: got %q", field, err)
	}
}

// Package lock accepts each lock that a valid scenario has.
func TestAValidLockIsOneOfPackageLock(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"}) // nothing is sent
	defer rdb.Close()
	client := check.Must(lock.New(rdb, lock.Config{}))(t)
	defer client.Close()
	q := check.Must(lock.NewQuorum([]*redis.Client{rdb}, lock.QuorumConfig{}))(t)
	defer q.Close()
	valid := map[Kind]int{}
	for _, kind := range Kinds() {
		for _, fence := range []bool{false, true} {
			for _, wait := range []Wait{{}, {Poll: time.Second, Tries: 3}} {
				s := Scenario{Lock: Lock{Kind: kind, Fence: fence, Wait: wait}}.WithDefaults()
				if !kind.Sound() || s.Validate() != nil {
					continue
				}
				valid[kind]++
				var l any = locker(client, s, []string{"a", "b"}, true)
				if kind == Redlock {
					l = q.Redlock("a", s.Lock.options())
				}
				check.ErrorIs(t, l.(interface{ Validate() error }).Validate(), nil, "%+v is valid, and package lock", s.Lock)
			}
		}
	}
	check.Equal(t, len(valid), 7, "valid locks of each kind: %v, want all 7 kinds", valid)
}

func TestValidScenariosAreAccepted(t *testing.T) {
	for _, s := range []Scenario{
		{},
		{Clients: MaxClients, Keys: Keys{N: MaxKeys}, Lock: Lock{TTL: minTTL}, Hold: Exp(maxTime), Think: Const(0), Patience: 1},
		{Lock: Lock{Kind: "classic/getset"}, Faults: []Fault{{Kind: Skew, By: -time.Second}}},
		{Faults: []Fault{{Kind: Pause, Node: 1, For: time.Second}}}, // there is only this node
		{Lock: Lock{Kind: Redlock}, Faults: []Fault{{Kind: Pause, Node: 2, For: time.Second}}},
	} {
		check.ErrorIs(t, s.Validate(), nil, "%+v", s)
	}
}
