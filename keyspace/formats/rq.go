package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// rqScheduler is the format of the lock that elects the worker which schedules a queue
// of Python's rq.
func rqScheduler() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return v != "" && len(v) < probeBytes }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "rq-scheduler",
		Library:   "rq",
		Source:    "github.com/rq/rq: rq/scheduler.py",
		Signature: "the name begins with rq:scheduler-lock:",
		Prefixes:  []string{"rq:scheduler-lock:"},
		// The flag for cleaned registries looks like a lock.
		Companion: func(key string) bool { return strings.HasPrefix(key, "rq:clean_registries:") },
		Samples:   []keyspace.Sample{opaqueSample("a worker schedules", "rq:scheduler-lock:default", "1", keyspace.Certain, 61*time.Second)},
	})
}
