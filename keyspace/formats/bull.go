package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// bull is the format of the job locks of BullMQ and Bull: the worker's UUID, in BullMQ
// with the number of the current job.
func bull() keyspace.Format {
	r := stringLock{sure: needsTTL(keyspace.Certain), token: opaqueToken(func(v string) bool {
		if len(v) < 36 || !isUUID(v[:36]) {
			return false
		}
		number, numbered := strings.CutPrefix(v[36:], ":")
		return v[36:] == "" || numbered && digits(number, 1, 10)
	})}
	return r.format(keyspace.Format{
		Name:      "bullmq",
		Library:   "BullMQ, Bull",
		Source:    "github.com/taskforcesh/bullmq: src/commands; github.com/OptimalBits/bull: lib/commands",
		Signature: "the name is prefix:queue:job:lock, and the value is a worker's UUID",
		Match: func(key string) bool {
			return strings.HasSuffix(key, ":lock") && strings.Count(key, ":") >= 3 && !strings.HasPrefix(strings.TrimPrefix(key, "{"), "hangfire")
		},
		Companion: ends(":stalled-check"), // a timer of the queue that looks like a lock
		Samples: []keyspace.Sample{
			opaqueSample("a job of BullMQ", "bull:mail:4711:lock", sampleUUID1+":12", keyspace.Certain, 30*time.Second),
			opaqueSample("a job of Bull", "bull:video:88:lock", sampleUUID2, keyspace.Certain, 30*time.Second),
		},
	})
}
