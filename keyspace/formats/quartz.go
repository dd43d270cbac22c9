package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// quartz is the format of trigger locks in quartz-redis-jobstore: the ID of the
// scheduler.
func quartz() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return v != "" && len(v) < probeBytes }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "quartz",
		Library:   "quartz-redis-jobstore",
		Source:    "github.com/jlinn/quartz-redis-jobstore: RedisJobStoreSchema",
		Signature: "the name has trigger_lock:, a group and a name",
		Match: func(key string) bool {
			before, rest, ok := strings.Cut(key, "trigger_lock:")
			return ok && (before == "" || strings.IndexByte(":._", before[len(before)-1]) >= 0) && strings.Contains(rest, ":")
		},
		Samples: []keyspace.Sample{opaqueSample("a trigger that is fired", "quartz:trigger_lock:reports:daily", "web-011763651003123", keyspace.Certain, 10*time.Minute)},
	})
}
