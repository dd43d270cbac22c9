package formats

import (
	"time"

	"locktop/keyspace"
)

// redlockPy is the format of Python's redlock-py: 22 random letters and digits. The
// tokens of bsm/redislock have the same length; that format comes first.
func redlockPy() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return len(v) == 22 && only(v, "") && mixed(v) }), sure: anyKey(keyspace.Possible)}
	return r.format(keyspace.Format{
		Name:      "redlock-py",
		Library:   "redlock-py",
		Source:    "github.com/SPSCommerce/redlock-py: redlock/__init__.py",
		Signature: "the value is 22 letters and digits, as redlock-py writes them",
		Samples:   []keyspace.Sample{opaqueSample("held", "lock:pallet:77", "aB3dE6gH9jK2mN5pQ8sTuV", keyspace.Likely, 10*time.Second)},
	})
}
