package formats

import (
	"time"

	"locktop/keyspace"
)

// redisLockNPM is the format of node's redis-lock: the deadline in ms.
func redisLockNPM() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return digits(v, 13, 13) }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "redis-lock-npm",
		Library:   "redis-lock (npm)",
		Source:    "github.com/errorception/redis-lock: index.js",
		Signature: "the name begins with lock., and the value is a time in ms",
		Prefixes:  []string{"lock."},
		Actions:   valueActions(),
		Samples:   []keyspace.Sample{opaqueSample("held", "lock.sitemap", "{ms+5001}", keyspace.Certain, 5*time.Second)},
	})
}
