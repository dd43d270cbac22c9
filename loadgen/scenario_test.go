package loadgen

import (
	_ "embed"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/lock"
)

// example is a scenario with every key.
//
//go:embed testdata/example.yaml
var example string

func parsed(t *testing.T, text string) Scenario {
	t.Helper()
	s, err := Parse([]byte(text))
	check.NoError(t, err, "\n%s", text)
	return s
}

func TestEveryKeyOfAScenarioFileIsRead(t *testing.T) {
	got := parsed(t, example)
	want := Scenario{
		Name: "hot-key", Caption: "One. Two.", Watch: "the queue",
		Lock: Lock{Kind: Fair, TTL: 6 * time.Second, Renew: Renew{PerTTL: 3, Max: 4}, Fence: true},
		Versus: []Lock{
			{Kind: Mutex, Wait: Wait{Poll: 50 * time.Millisecond, Jitter: 0.2, Tries: 5}, Renew: Renew{Off: true}},
			{Kind: Reentrant},
		},
		Keys: Keys{Pick: PickZipf, N: 50, Skew: 1.1, Prefix: "demo:{hot}:"}, Clients: 200, Rate: 500,
		Hold: LogNormal(20*time.Millisecond, 400*time.Millisecond), Think: Exp(50 * time.Millisecond),
		Patience: 2 * time.Second, Conns: 4,
		Stages: []Stage{{For: 30 * time.Second, Clients: 50}, {For: time.Minute, Clients: 500, Rate: 0.5}},
		Faults: []Fault{
			{At: 40 * time.Second, Kind: Freeze, Clients: 3, For: 12 * time.Second},
			{At: 50 * time.Second, Kind: Slow, Delay: 20 * time.Millisecond, Jitter: 5 * time.Millisecond},
		},
		Thresholds: []Threshold{{Figure: "overlap.count", Op: "==", Value: 0}, {Figure: "wait.p99", Op: "<", Value: 0.25}, {Figure: "lost_or_expired.rate", Op: "<", Value: 0.001}},
		Expect:     []Threshold{{Figure: "late_work.count", Op: ">", Value: 0}},
		Seed:       42, Duration: 2 * time.Minute,
	}
	check.DeepEqual(t, got, want)
}

func TestARenewalThatIsAPartOfTheTTLFollowsIt(t *testing.T) {
	s := parsed(t, "lock: {kind: mutex, ttl: 9s, renew: {every: ttl/3}}")
	check.NoError(t, s.Set("lock.ttl", "3s"))
	check.Equal(t, s.WithDefaults().Lock.Renew.every(s.Lock.TTL), time.Second, "a lease of 3s is renewed every")
}

// A word replaces the whole setting of the file: --wait notify over {poll: 50ms}.
func TestAWordReplacesTheSettingsOfTheFile(t *testing.T) {
	s := parsed(t, "lock: {kind: mutex, wait: {poll: 50ms, tries: 20}, renew: {every: 1s, max: 4}}")
	for key, value := range map[string]string{"lock.wait": "notify", "lock.renew": "on"} {
		check.NoError(t, s.Set(key, value))
	}
	check.True(t, s.Lock.Wait == (Wait{}) && s.Lock.Renew == (Renew{}), "waits %+v, renews %+v", s.Lock.Wait, s.Lock.Renew)
}

func TestAWrittenScenarioIsReadUnchanged(t *testing.T) {
	for _, s := range []Scenario{
		parsed(t, example),
		parsed(t, example).WithDefaults(),
		Scenario{Name: "x: \"y\"\n#z"}.WithDefaults(),
		{Name: "rw", Lock: Lock{Kind: RW}, Reads: 0.85, Depth: 3, Hold: Bimodal(time.Millisecond, time.Second, 0.07), Think: Dist{Shape: ShapeUniform, Low: 0, High: time.Second}},
		{Name: "skew", Lock: Lock{Kind: "classic/getset"}, Faults: []Fault{{Kind: Skew, By: -90 * time.Second, Client: 2}, {Kind: Crash, Before: "GET"}}},
	} {
		check.DeepEqual(t, parsed(t, string(s.Marshal())), s, "%s", s.Marshal())
	}
}

func TestAnErrorInAFileNamesTheLineTheKeyAndAValidValue(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"", "the file is empty; a scenario begins with a name: …"},
		{"name: x\nklients: 3", `line 2: there is no key "klients", did you mean "clients"; there are name caption`},
		{"lock:\n  kind: mutex\n  tll: 5s", `line 3: lock: there is no key "tll", did you mean "ttl"; there are kind ttl renew wait fence`},
		{"clients: many", `line 1: clients: "many" is not a whole number`},
		{"\n\nhold: quick", `line 3: hold: "quick" is no distribution; write 20ms, exp:20ms`},
		{"hold: {dist: normal, mean: 3s}", "line 1: hold: dist must be one of const exp uniform lognormal bimodal"},
		{"patience: 5", `line 1: patience: "5" is not a time like 500ms or 2m`},
		{"rate: fast", `line 1: rate: "fast" is not a rate like 500/s or 30/m`},
		{"reads: most", `line 1: reads: "most" is not a share like 80% or 0.8`},
		{"lock: {renew: sometimes}", `line 1: lock: renew: "sometimes" is neither on nor off`},
		{"lock: {wait: patiently}", `line 1: lock: wait: "patiently" is neither notify nor poll`},
		{"lock: {renew: {every: ttl/x}}", `line 1: lock: renew: every: "ttl/x" is not a time like 500ms or ttl/3`},
		{"clients: 2\nclients: 3", "line 2: clients is there already, in line 1"},
		{"name: x\nlock: {kind: latch}", "line 2: lock: kind must be one of mutex reentrant rw fair redlock semaphore all nested classic/"},
		{"name: x\nclients: 900000", "line 2: clients must be 1 to 100000, not 900000"},
		{"name: x\nlock: {ttl: 1ms}", "line 2: ttl must be 10ms to"},
		{"faults: crash", "line 1: faults: not a list"},
		{"faults:\n- {at: 1s, fault: freez}", `line 1: fault 1: fault must be one of crash freeze`},
		{"thresholds:\n- wait.p98 < 3s", `line 2: thresholds: threshold: there is no figure called "wait.p98"`},
		{"thresholds: [wait.p99 < fast]", `line 1: thresholds: threshold "wait.p99 < fast": "fast" is not a duration`},
		{"- a\n- b", "line 1: not a mapping; its keys are name caption"},
		{"name: [a", "line 1: did not find expected"},
		{"name: a\n---\nname: b", "line 2: a second document begins; a file is one scenario"},
		{"name: a\n--- [", "line 2: did not find expected"},
		{"hold: &h 5ms\nthink: *h", "line 2: *h: a scenario has no aliases; write the value again"},
		{"lock: &l {kind: mutex}\nkeys:\n  <<: *l", "line 3: *l: a scenario has no aliases"},
		{"lock: {ttl: 0s}", "line 1: lock: ttl: 0s is too short; write a time like 500ms or 2m"},
		{"clients: 0", "line 1: clients: 0 is too few; write at least 1"},
		{"keys: 0", "line 1: keys: 0 is too few; write at least 1"},
		{"keys: {n: -1}", "line 1: keys: n: -1 is too few; write at least 1"},
		{"conns: 0", "line 1: conns: 0 is too few; write at least 1"},
		{"stages:\n- {for: 1s, clients: 0}", "line 2: stages: clients: 0 is too few; write at least 1"},
		{"hold: {dist: exp, min: 5ms, max: 60ms}", "line 1: hold: exp has no min; it has mean"},
		{"hold: {dist: exp, p50: 5ms}", "line 1: hold: exp has no p50; it has mean"},
		{"hold: {dist: exp}", "line 1: hold: exp needs mean"},
		{"hold: {dist: bimodal, fast: 1ms, slow: 2ms}", "line 1: hold: bimodal needs fast slow share"},
	} {
		_, err := Parse([]byte(c.file))
		check.True(t, err != nil && strings.HasPrefix(err.Error(), c.want) && !strings.Contains(err.Error(), "\n"),
			"%q:\n got %v\nwant %s…", c.file, err, c.want)
	}
}

// A field without a key cannot be set by a file. An option that does not exist changes nothing.
func TestEveryFieldOfAScenarioHasAKey(t *testing.T) {
	known := []string{"positive", "always", "short", "live"}
	for name := range formats {
		known = append(known, name)
	}
	var without []string
	var walk func(reflect.Type)
	walk = func(of reflect.Type) {
		for i := range of.NumField() {
			f := of.Field(i)
			if f.IsExported() && f.Tag.Get("yaml") == "" {
				without = append(without, of.Name()+"."+f.Name)
			}
			switch {
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type)
			case f.Type.Kind() == reflect.Slice && f.Type.Elem() != reflect.TypeFor[Threshold]():
				walk(f.Type.Elem())
			}
		}
		for _, f := range fieldsOf(reflect.New(of).Elem()) {
			for _, option := range f.options {
				check.True(t, slices.Contains(known, option), "%s: %q is neither an option nor a format", f.keys, option)
			}
		}
	}
	walk(reflect.TypeFor[Scenario]())
	slices.Sort(without)
	// "off" stands for the mapping of Renew.
	if without = slices.Compact(without); !slices.Equal(without, []string{"Renew.Off"}) {
		t.Errorf("no key for %v", without)
	}
}

func FuzzAnyFileIsReadOrRefused(f *testing.F) {
	f.Add(example)
	f.Add("lock: &a {kind: *a}")
	f.Add("{: }")
	f.Fuzz(func(t *testing.T, file string) {
		s, err := Parse([]byte(file))
		switch {
		case err != nil && strings.Contains(err.Error(), "\n"):
			t.Errorf("more than a line: %q", err)
		case err != nil:
		case s.Validate() != nil:
			t.Errorf("was read, but %v", s.Validate())
		}
	})
}

func TestAFileForClientProcessesIsCheckedAsTheirs(t *testing.T) {
	file := []byte("lock: {kind: mutex, ttl: 2s}\nkeys: 3\ndepth: 2\n")
	s, err := ParseWithClient(file, "./client")
	check.True(t, err == nil && s.Depth == 2 && s.Lock.Kind == Exec && s.Lock.Exec == "./client" && s.Lock.TTL == 2*time.Second,
		"%+v, %v", s, err)
	if _, err := Parse(file); err == nil || !strings.Contains(err.Error(), "line 3: depth goes with a lock that can be entered again") {
		t.Errorf("for the own clients: %v", err)
	}
	_, err = ParseWithClient([]byte("depth: 1\nclients: 100000\n"), "./client")
	check.True(t, err != nil && strings.Contains(err.Error(), "line 2: clients must be 1 to 1000"), "too many processes: %v", err)
}

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
				_, err := locker(client, s, []string{"a", "b"}, true)
				if kind == Redlock {
					_, err = q.Redlock("a", s.Lock.options())
				}
				check.ErrorIs(t, err, nil, "%+v is valid, and package lock", s.Lock)
			}
		}
	}
	check.Equal(t, len(valid), 8, "valid locks of each kind: %v, want all 8 kinds", valid)
}
