package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// nodeResque is the format of node-resque's plugins JobLock and QueueLock: the deadline
// in seconds, under a name that ends with the arguments of the job.
func nodeResque() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return digits(v, 10, 10) }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "node-resque",
		Library:   "node-resque",
		Source:    "github.com/actionhero/node-resque: src/plugins/JobLock.ts, QueueLock.ts",
		Signature: "the name is lock: or workerslock:, a job, its queue and its arguments, and the value a time in seconds",
		Match: func(key string) bool {
			if !strings.HasSuffix(key, "]") {
				return false
			}
			for _, mark := range [...]string{"workerslock:", "lock:"} {
				before, rest, found := strings.Cut(key, mark)
				if found && (before == "" || strings.HasSuffix(before, ":")) {
					args := strings.SplitN(rest, ":", 3)
					return len(args) == 3 && strings.HasPrefix(args[2], "[")
				}
			}
			return false
		},
		Actions: valueActions(),
		Samples: []keyspace.Sample{
			opaqueSample("a job that runs", `resque:workerslock:resize:images:["cat.png",640]`, "1795262400", keyspace.Certain, time.Hour),
		},
	})
}
