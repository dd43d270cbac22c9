package formats

import (
	"time"

	"locktop/keyspace"
)

// alturkovic is Java's alturkovic/distributed-lock: a UUID, the same in all
// keys that were locked together.
func alturkovic() keyspace.Format {
	r := reading{token: shaped(isUUID), sure: leased(keyspace.Certain)}
	return keyspace.Format{
		Name:      "alturkovic",
		Library:   "alturkovic/distributed-lock",
		Source:    "github.com/alturkovic/distributed-lock: distributed-lock-redis",
		Signature: "the name begins with distributed_lock:, and the value is a UUID",
		Type:      "string",
		Prefixes:  []string{"distributed_lock:"},
		Probe:     r.glance,
		Decode:    r.decode,
		Actions:   tokenHands(),
		Samples:   []keyspace.Sample{opaque("held", "distributed_lock:account:17", sampleUUID2, keyspace.Certain, 10*time.Second)},
	}
}
