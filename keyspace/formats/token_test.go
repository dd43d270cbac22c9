package formats

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestATokenGivesItsTimeIfThatIsPlausible(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct{ made, want time.Time }{
		{now.Add(-time.Hour), now.Add(-time.Hour)},
		{now, now},
		{now.Add(30 * time.Second), now}, // the clock of its client is ahead
		{now.Add(time.Hour), time.Time{}},
		{time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC), time.Time{}},
	} {
		for _, id := range []fmt.Stringer{version1(c.made, 0x5e), version7(c.made, 0x5e)} {
			parsed, ok := dashed(id.String())
			got := madeAt(parsed, now)
			check.True(t, ok && got.Equal(c.want), "made at %v, %s tells %v, want %v", c.made, id, got, c.want)
		}
	}
	id, _ := dashed("0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e")
	check.True(t, madeAt(id, now).IsZero(), "a random UUID tells a time")
}

func TestNamesThatSpeakForALock(t *testing.T) {
	for key, want := range map[string]nameHint{
		"lock:a": strongHint, "orders.lock": strongHint, "app/locks/7": strongHint, "MUTEX-3": strongHint,
		"doc:readLock": strongHint, "doc:writelock": strongHint, "rwlock:doc": strongHint, "lock": strongHint, "redlock:7": strongHint,
		"scheduler:leader": weakHint, "lease_7": weakHint, "semaphore": weakHint, "singleton:x": weakHint,
		"leader:of:the:lock": strongHint, "mylock": weakHint, "orderLock:7": weakHint, "JobLock": weakHint, "lock2": strongHint,
		"BLOCK:1": noHint, "wallClock": noHint,
		"clock:1": noHint, "blocked": noHint, "leaderboard": noHint, "deadlocks": noHint, "": noHint,
		"unlock:7": noHint, "lockout:bob": noHint, "released": noHint, "\xff\xfe": noHint, "ülock": noHint,
	} {
		check.Equal(t, hintOf(key), want, "%q", key)
	}
}

func TestConfidenceOfTokens(t *testing.T) {
	const id = "0b9f2c7e-3d41-4c6a-9e58-7a1d2f3b4c5e"
	timed := version1(time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), 0x5e).String()
	for _, c := range []struct {
		key, value string
		expires    bool
		want       keyspace.Confidence
	}{
		{"lock:a", id, false, keyspace.Likely},
		{"lock:a", "anything", false, keyspace.Likely},
		{"lock:a", "anything at all", false, keyspace.Possible},
		{"lock:id", id, true, keyspace.Likely}, // the name contains lock before id
		{"leader", id, false, keyspace.Likely},
		{"leader", "some-text", true, keyspace.Likely},
		{"leader", "some-text", false, keyspace.Possible},
		{"orders:1", id, true, keyspace.Possible},
		{"orders:1", id, false, keyspace.No},
		{"session:1", id, true, keyspace.No},
		{"orders:1", timed, true, keyspace.Likely},
		{"orders:1", timed, false, keyspace.Possible},
		{"session:1", timed, true, keyspace.Possible},
		{"orders:1", id + ".1763651003123", true, keyspace.Likely},
		{"orders:1", id + ":1763651003123", false, keyspace.Likely},
		{"orders:1", id + ":7", true, keyspace.Possible},
		{"orders:1", id + "?", true, keyspace.No},
		{"orders:1", "9f86d081884c7d659a2feaa0c55ad015", true, keyspace.Possible},
		{"orders:1", "web-01:4242", true, keyspace.No},
		{"orders:1", "1", true, keyspace.No},
		{"orders:1", "", true, keyspace.No},
	} {
		check.Equal(t, tokenOf(c.value, time.Time{}).confidence(c.key, c.expires), c.want, "%s = %s, expires=%v", c.key, c.value, c.expires)
	}
}

// The same library is seen for every token that it can make, under one name and with one confidence.
func TestEveryTokenOfALibraryIsSeen(t *testing.T) {
	const small, digit = "abcdefghijklmnopqrstuvwxyz", "0123456789"
	const letters = small + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digit
	random := rand.NewChaCha8([32]byte{})
	raw := func(n int) []byte { b := make([]byte, n); _, _ = random.Read(b); return b }
	of := func(alphabet string, n int) string {
		return strings.Map(func(rune) rune { return rune(alphabet[random.Uint64()%uint64(len(alphabet))]) }, strings.Repeat("x", n))
	}
	id := func() uuid.UUID { return uuid.Must(uuid.NewRandomFromReader(random)) }
	float := func() float64 { return float64(random.Uint64()>>11) / (1 << 53) }
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		library, key, format string
		make                 func() string
	}{
		{"redsync", "orders:1", "redsync", func() string { return base64.StdEncoding.EncodeToString(raw(16)) }},
		{"bsm/redislock", "orders:1", "redislock", func() string { return base64.RawURLEncoding.EncodeToString(raw(16)) }},
		{"redlock-py", "orders:1", "redislock", func() string { return of(letters, 22) }},
		{"@redis-kit/lock", "orders:1", "redislock", func() string { return base64.StdEncoding.EncodeToString(raw(17))[:22] }},
		{"go-zero", "orders:1", "go-zero", func() string { return of(letters, 16) }},
		{"node-redlock", "orders:1", "node-redlock", func() string { return hex.EncodeToString(raw(16)) }},
		{"redlock (Elixir)", "orders:1", "redlock-ex", func() string { return hex.EncodeToString(raw(40)) }},
		{"redlock-rb", "orders:1", "set-nx", func() string { return id().String() }},
		{"jedis-lock", "orders:1", "jedis-lock", func() string { return id().String() + ":1795801737123" }},
		{"redis-py", "orders:1", "redis-py", func() string { return strings.ReplaceAll(version1(now, raw(1)[0]).String(), "-", "") }},
		{"redis_mutex (Elixir)", "orders:1", "redis-mutex-ex", func() string { return version1(now, raw(1)[0]).String() }},
		{"symfony before 5.2", "orders:1", "symfony-string", func() string { return base64.StdEncoding.EncodeToString(raw(32)) }},
		{"rslock", "orders:1", "rslock", func() string { return string(raw(20)) }},
		{"EasyCaching", "orders:1", "easycaching", func() string { b := id(); b[6], b[7] = b[7], b[6]; return string(b[:]) }},
		{"XdpCs/redis-lock", "orders:1", "set-nx", func() string { return string(raw(48 + int(raw(1)[0])%16)) }},
		{"Verrou", "orders:1", "set-nx", func() string { return of(small+digit, 9+int(raw(1)[0])%4) }},
		{"Math.random()", "orders:1", "set-nx", func() string { return strconv.FormatFloat(0.001+float()/2, 'g', -1, 64) }},
		{"nanoid", "orders:1", "set-nx", func() string { return of(letters+"-_", 21) }},
		{"token_urlsafe()", "orders:1", "set-nx", func() string { return base64.RawURLEncoding.EncodeToString(raw(32)) }},
		{"yii2", strings.Repeat("5d414", 7) + "ab", "yii2", func() string { return of(letters+"-_", 20) }},
		{"python-redis-lock", "lock:a", "python-redis-lock", func() string { return base64.StdEncoding.EncodeToString(raw(18)) }},
		{"walrus", "lock:a", "walrus", func() string { return string(raw(32)) }},
		{"rueidis", "rueidislock:0:a", "rueidislock", func() string { return string(raw(24)) }},
		{"ULID", "orders:1", "set-nx", func() string { return of("0123456789ABCDEFGHJKMNPQRSTVWXYZ", 26) }},
	} {
		seen := make(map[string]int)
		for range 1_000 {
			value := c.make()
			format, sure := bestOf(keyspace.Entry{Key: c.key, Type: "string", Now: now, Expires: now.Add(time.Minute), Value: value, Len: int64(len(value))})
			seen[format+" "+sure.String()]++
			if format != c.format {
				t.Errorf("%s: %q is seen as %q", c.library, value, format)
			}
		}
		check.True(t, len(seen) == 1, "%s: its tokens are seen as %v", c.library, seen)
	}
}

// bestOf returns the format of a string that is the surest.
func bestOf(e keyspace.Entry) (name string, best keyspace.Confidence) {
	for _, f := range all() {
		if f.Type == e.Type && f.MatchesName(e.Key) && (f.Probe == nil || f.Probe(e.Key, e.Value[:min(len(e.Value), probeBytes)]) > best) {
			if _, sure := f.DecodeLock(e); sure > best {
				name, best = f.Name, sure
			}
		}
	}
	return name, best
}
