package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// asynq is the format of unique tasks of Go's asynq: the ID of the task, under the
// name of its queue, its type and a digest of its payload. The key lasts until the
// task ends or its TTL ends.
func asynq() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return v != "" && len(v) < probeBytes }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "asynq",
		Library:   "asynq",
		Source:    "github.com/hibiken/asynq: internal/base/base.go",
		Signature: "the name is asynq:{queue}:unique:, a task's type and a digest",
		Prefixes:  []string{"asynq:{"},
		Match: func(key string) bool {
			_, rest, unique := strings.Cut(key, "}:unique:")
			_, digest, typed := cutLast(rest, ":")
			return unique && typed && (digest == "" || isHex(digest, 32))
		},
		Samples: []keyspace.Sample{
			opaqueSample("a task that may run once a day", "asynq:{mail}:unique:newsletter:send:0cc175b9c0f1b6a831c399e269772661",
				"5f1dd5a6-9a8d-4c7d-b1a0-3f7c1de0b1f4", keyspace.Certain, 24*time.Hour),
			opaqueSample("a task without a payload", "asynq:{default}:unique:db:vacuum:", "nightly-vacuum", keyspace.Certain, time.Hour),
		},
	})
}
