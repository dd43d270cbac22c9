package formats

import (
	"time"

	"locktop/keyspace"
)

// goZero is the format of Go's go-zero: 16 random letters and digits under any name.
// Laravel without a prefix and .NET's Foundatio store the same.
func goZero() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return len(v) == 16 && only(v, "") }), sure: anyKey(keyspace.Possible)}
	return r.format(keyspace.Format{
		Name:      "go-zero",
		Library:   "go-zero, Laravel without a prefix, Foundatio",
		Source:    "github.com/zeromicro/go-zero: core/stores/redis/redislock.go",
		Signature: "the value is 16 letters and digits, as go-zero, Laravel and Foundatio write them",
		Samples:   []keyspace.Sample{opaqueSample("held", "lock:export:archive", "x9KfQ2mB7tZrW4Lp", keyspace.Likely, 60500*time.Millisecond)},
	})
}
