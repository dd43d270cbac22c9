package formats

import (
	"time"

	"locktop/keyspace"
)

// redlockNet is the format of .NET's RedLock.net and of Python's pottery.
func redlockNet() keyspace.Format {
	r := stringLock{token: opaqueToken(isUUID), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "redlock-net",
		Library:   "RedLock.net, pottery",
		Source:    "github.com/samcook/RedLock.net: RedLockNet.SERedis; github.com/brainix/pottery: pottery/redlock.py",
		Signature: "the name begins with redlock:, and the value is a UUID",
		Prefixes:  []string{"redlock:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "redlock:warehouse:3", "7d1f4b8e-2a5c-4e90-b3d6-8f7a6b5c4d3e", keyspace.Certain, 30*time.Second)},
	})
}
