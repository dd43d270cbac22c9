package formats

import (
	"time"

	"locktop/keyspace"
)

// redisObjects is the Lock of Ruby's redis-objects: an empty string that
// expires.
func redisObjects() keyspace.Format {
	r := reading{token: shaped(func(v string) bool { return v == "" }), sure: anywhere(keyspace.Possible)}
	return keyspace.Format{
		Name:      "redis-objects",
		Library:   "redis-objects",
		Source:    "github.com/nateware/redis-objects: lib/redis/lock.rb",
		Signature: "the value is empty",
		Type:      "string",
		Probe:     r.glance,
		Decode:    r.decode,
		Actions:   tokenHands(),
		Samples:   []keyspace.Sample{opaque("held", "team:1:reorder_lock", "", keyspace.Likely, 15*time.Second)},
	}
}
