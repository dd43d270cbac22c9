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
