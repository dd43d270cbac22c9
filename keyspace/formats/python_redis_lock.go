package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// pythonRedisLock is the format of Python's python-redis-lock: base64 of 18 bytes under
// lock:, by default without a TTL. Waiters block on a list, which exists only for a
// moment after a release.
func pythonRedisLock() keyspace.Format {
	r := stringLock{token: opaqueToken(eighteenBytes), sure: fixed(keyspace.Likely)}
	return r.format(keyspace.Format{
		Name:         "python-redis-lock",
		NoTTL:        true,
		BlockingWait: true,
		Library:      "python-redis-lock",
		Source:       "github.com/ionelmc/python-redis-lock: src/redis_lock/__init__.py",
		Signature:    "the name begins with lock:, and the value is base64 of 18 bytes",
		Prefixes:     []string{"lock:"},
		Companion:    begins("lock-signal:"),
		Actions: listActions(func(key string) string { return "lock-signal:" + strings.TrimPrefix(key, "lock:") }, time.Second,
			"take an element from lock-signal:{name}"),
		Samples: []keyspace.Sample{
			opaqueSample("without a timeout", "lock:feed:atom", "bT9zQ0hXa2p4Vm1yTn+cAb3d", keyspace.Likely, 0),
			opaqueSample("with a timeout", "lock:feed:rss", "Rk1sUnZ2L0dpYnE4d3BxZz0x", keyspace.Likely, 30*time.Second),
		},
	})
}

// eighteenBytes reports whether s is base64 of 18 bytes, which has no padding. Other
// strings of 24 characters are object IDs in hexadecimal.
func eighteenBytes(s string) bool {
	return len(s) == 24 && only(s, "+/") && s != strings.ToLower(s) && s != strings.ToUpper(s)
}
