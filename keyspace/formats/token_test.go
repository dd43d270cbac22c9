package formats

import (
	"fmt"
	"testing"
	"time"

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
		"leader:of:the:lock": strongHint,
		"clock:1":            noHint, "blocked": noHint, "leaderboard": noHint, "deadlocks": noHint, "": noHint,
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
