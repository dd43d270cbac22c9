package formats

import (
	"time"

	"locktop/keyspace"
)

// redisObjects is the format of Lock in Ruby's redis-objects: an empty string with a
// TTL.
func redisObjects() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return v == "" }), sure: anyKey(keyspace.Possible)}
	return r.format(keyspace.Format{
		Name:      "redis-objects",
		Library:   "redis-objects",
		Source:    "github.com/nateware/redis-objects: lib/redis/lock.rb",
		Signature: "the value is empty",
		Samples:   []keyspace.Sample{opaqueSample("held", "team:1:reorder_lock", "", keyspace.Likely, 15*time.Second)},
	})
}
