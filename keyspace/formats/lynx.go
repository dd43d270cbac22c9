package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// lynx is the format of Go's lynx-redis-lock: the owner, the count, and the last fencing token,
// which stays for a week.
func lynx() keyspace.Format {
	const prefix, token = "{lynx:lock:", "api-1-10.0.0.7-4242-3-" + sampleHex1
	return countedMutex(keyspace.Format{
		About: about("lynx", "lynx-redis-lock", "github.com/go-lynx/lynx-redis-lock@v1.6.3: scripts.go",
			"the name begins with "+prefix+" and ends in }:owner"),
		Attempts: attempts(byScript(0, 1, 2)),
		Prefixes: []string{prefix},
		Match:    ends("}:owner"),
		Samples: []keyspace.Sample{sample("the third hold, entered twice", 30*time.Second, keyspace.Lock{
			Key: prefix + "orders:42}:owner", Kind: keyspace.Reentrant, Fence: 3,
			Holders: []keyspace.Holder{{ID: token, Label: "api-1-10.0.0.7-4242", Depth: 2}},
		},
			"SET "+prefix+"orders:42}:owner "+token+" PX 30000",
			"SET "+prefix+"orders:42}:count 2 PX 30000",
			"SET "+prefix+"orders:42}:token 3 PX 604800000")},
	}, lynxOwner, func(key, _ string) []string {
		name := strings.TrimSuffix(key, "owner")
		return []string{name + "count", name + "token"}
	})
}

// lynxOwner reads the owner: host-address-process-number-random.
func lynxOwner(value string, _ time.Time) (keyspace.Holder, bool) {
	process, _, ok := cutLast(value, "-")
	process, _, _ = cutLast(process, "-")
	return keyspace.Holder{ID: value, Label: process, Depth: 1}, ok
}
