package formats

import (
	"time"

	"locktop/keyspace"
)

// alturkovic is the format of Java's alturkovic/distributed-lock: a UUID, the same in
// all keys of one acquire.
func alturkovic() keyspace.Format {
	r := stringLock{token: opaqueToken(isUUID), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "alturkovic",
		Library:   "alturkovic/distributed-lock",
		Source:    "github.com/alturkovic/distributed-lock: distributed-lock-redis",
		Signature: "the name begins with distributed_lock:, and the value is a UUID",
		Prefixes:  []string{"distributed_lock:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "distributed_lock:account:17", sampleUUID2, keyspace.Certain, 10*time.Second)},
	})
}
