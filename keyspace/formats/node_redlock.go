package formats

import (
	"time"

	"locktop/keyspace"
)

// nodeRedlock is the format of node's redlock: 16 random bytes in hexadecimal, the same
// in all keys of one acquire, under any name.
func nodeRedlock() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return isHex(v, 32) }), sure: anyKey(keyspace.Possible)}
	return r.format(keyspace.Format{
		Name:      "node-redlock",
		Library:   "redlock (npm)",
		Source:    "github.com/mike-marcacci/node-redlock: src/index.ts",
		Signature: "the value is 16 random bytes in hexadecimal, as node's redlock writes them",
		Samples: []keyspace.Sample{
			opaqueSample("held", "lock:shipment:5512", "9f86d081884c7d659a2feaa0c55ad015", keyspace.Likely, 10*time.Second),
		},
	})
}
