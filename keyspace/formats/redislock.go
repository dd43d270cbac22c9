package formats

import (
	"slices"
	"strconv"
	"time"

	"locktop/keyspace"
)

// redislock is the format of several libraries that store 22 random characters: Go's bsm/redislock, base64url
// of 16 bytes, followed by the caller's metadata; Python's redlock-py, letters and digits; node's
// @redis-kit/lock, base64. Always with a TTL.
func redislock() keyspace.Format {
	return keyspace.Format{
		About: about("redislock", "bsm/redislock, redlock-py, @redis-kit/lock",
			"github.com/bsm/redislock@v0.10.0: redislock.go; github.com/SPSCommerce/redlock-py@42ef491061: redlock/__init__.py",
			"the value is 22 random characters, as several libraries write them, or begins with 22 that are base64 of 16 bytes"),
		Type:     "string",
		Attempts: append(stringAttempts(), byScript(0, 1, 2)), // bsm sends the length of the metadata, too
		Probe:    redislockToken,
		Related:  beside("string", redislockFence),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			sure := redislockToken(e.Key, e.Value)
			if sure == keyspace.No || e.Truncated() {
				return keyspace.Lock{}, keyspace.No
			}
			if e.Expires.IsZero() {
				sure = oneLess(sure)
			}
			fence, _ := strconv.ParseInt(e.Related[redislockFence(e.Key)].Value, 10, 64)
			return keyspace.Lock{
				Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Value, Label: e.Value[22:], Depth: 1}}, Fence: fence,
			}, sure
		},
		Actions: tokenActions(),
		Samples: []keyspace.Sample{
			held("held", "import:customers", "Zk3_vN0b2Qf8dYw5tKcV-A", "", 20*time.Second),
			held("held, with metadata", "lock:mail:digest", "h7Rt_w2Lx0pQv9sUe4Ym1gworker-3", "worker-3", 15*time.Second),
			held("of redlock-py", "pallet:77", "aB3dE6gH9jK2mN5pQ8sTuV", "", 10*time.Second),
		},
	}
}

// redislockFence returns the counter of the fencing tokens, as the library's documentation names it.
func redislockFence(key string) string { return key + ":fence" }

// redislockToken returns the confidence for a value. Metadata can be any text, so with
// metadata the name must suggest a lock, too.
func redislockToken(key, value string) keyspace.Confidence {
	switch {
	case len(value) == 22 && isRandom(value):
		return randomToken(key)
	case len(value) <= 22 || !sixteenBytes(value[:22], "-_") || !mixed(value[:22]):
		return keyspace.No
	case isRandom(value) && (mixed(value[22:]) || slices.Contains([]int{24, 32, 43, 44, 64, 86, 88}, len(value))): // a longer token
		return keyspace.No
	case !looksLikeLock(key):
		return keyspace.Possible
	}
	return randomToken(key)
}
