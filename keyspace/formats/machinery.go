package formats

import "locktop/keyspace"

// machinery is the format of periodic tasks in Go's machinery v1: the time of the next
// run in ns. The library uses the same number as the TTL, and never deletes the key.
func machinery() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return digits(v, 19, 19) }), sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "machinery",
		Library:   "machinery",
		Source:    "github.com/RichardKnop/machinery: v1/locks/redis/redis.go",
		Signature: "the name begins with machinery_lock_, and the value is a time in nanoseconds",
		Prefixes:  []string{"machinery_lock_"},
		Actions:   valueActions(),
		Samples: []keyspace.Sample{
			opaqueSample("until the next run", "machinery_lock_workerreports0 6 * * ?", "{ms+3600000}000000", keyspace.Certain, 0),
		},
	})
}
