package formats

import "locktop/keyspace"

// machinery is the lock of a periodic task of Go's machinery v1: the time of
// its next run, in ns, and a TTL that is that number taken for a duration. It is
// never deleted.
func machinery() keyspace.Format {
	r := reading{token: shaped(func(v string) bool { return digits(v, 19, 19) }), sure: always(keyspace.Certain)}
	return keyspace.Format{
		Name:      "machinery",
		Library:   "machinery",
		Source:    "github.com/RichardKnop/machinery: v1/locks/redis/redis.go",
		Signature: "the name begins with machinery_lock_, and the value is a time in nanoseconds",
		Type:      "string",
		Prefixes:  []string{"machinery_lock_"},
		Probe:     r.glance,
		Decode:    r.decode,
		Actions:   valueHands(),
		Samples: []keyspace.Sample{
			opaque("until the next run", "machinery_lock_workerreports0 6 * * ?", "{ms+3600000}000000", keyspace.Certain, 0),
		},
	}
}
