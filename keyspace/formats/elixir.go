package formats

import (
	"time"

	"locktop/keyspace"
)

// redlockEx is the format of Elixir's lyokato/redlock: 40 random bytes in hexadecimal.
func redlockEx() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return isHex(v, 80) }), sure: anyKey(keyspace.Likely)}
	return r.format(keyspace.Format{
		Name:      "redlock-ex",
		Library:   "redlock (Elixir)",
		Source:    "github.com/lyokato/redlock: lib/redlock",
		Signature: "the value is 80 hexadecimal digits",
		Samples:   []keyspace.Sample{opaqueSample("held", "room:lobby", sampleHex1+sampleHex2+sampleHex3[:16], keyspace.Likely, 10*time.Second)},
	})
}

// redisMutexEx is the format of Elixir's podium/redis_mutex: a UUID v1, which contains
// its time.
func redisMutexEx() keyspace.Format {
	r := stringLock{sure: anyKey(keyspace.Likely), token: func(value string, now time.Time) (keyspace.Holder, bool) {
		id, ok := dashed(value)
		if !ok || id.Version() != 1 || !timeBased(id) {
			return keyspace.Holder{}, false
		}
		made := madeAt(id, now)
		return keyspace.Holder{ID: value, Count: 1, Since: made}, now.IsZero() || !made.IsZero()
	}}
	return r.format(keyspace.Format{
		Name:      "redis-mutex-ex",
		Library:   "redis_mutex (Elixir)",
		Source:    "github.com/podium/redis_mutex: lib/redis_mutex",
		Signature: "the value is a UUID that contains the time",
		Samples:   []keyspace.Sample{opaqueSample("held", "campaign:9", "{v1-2500/63}", keyspace.Likely, 20*time.Second)},
	})
}
