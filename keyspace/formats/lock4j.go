package formats

import (
	"time"

	"locktop/keyspace"
)

// lock4j is the format of Java's lock4j: a random UUID without dashes.
func lock4j() keyspace.Format {
	r := stringLock{sure: needsTTL(keyspace.Certain), token: opaqueToken(func(v string) bool {
		id, ok := undashed(v)
		return ok && id.Version() == 4
	})}
	return r.format(keyspace.Format{
		Name:      "lock4j",
		Library:   "lock4j",
		Source:    "github.com/baomidou/lock4j: RedisTemplateLockExecutor",
		Signature: "the name begins with lock4j:, and the value is a UUID without dashes",
		Prefixes:  []string{"lock4j:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "lock4j:com.shop.OrderService.pay#4711", "0f6a3d528b1c4e7fa2d96c5b4a392817", keyspace.Certain, 30*time.Second)},
	})
}
