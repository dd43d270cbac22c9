package formats

import (
	"time"

	"locktop/keyspace"
)

// csredis is the format of .NET's csredis and FreeRedis.
func csredis() keyspace.Format {
	r := stringLock{token: opaqueToken(isUUID), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "csredis",
		Library:   "csredis, FreeRedis",
		Source:    "github.com/2881099/csredis: CSRedisClient.cs; github.com/2881099/FreeRedis: Modules/Lock.cs",
		Signature: "the name begins with CSRedisClientLock: or RedisClientLock:, and the value is a UUID",
		Prefixes:  []string{"CSRedisClientLock:", "RedisClientLock:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "CSRedisClientLock:basket:5", sampleUUID2, keyspace.Certain, 10*time.Second)},
	})
}
