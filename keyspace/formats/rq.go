package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// rqScheduler is the lock by which one of several workers of Python's rq
// schedules a queue.
func rqScheduler() keyspace.Format {
	r := reading{token: shaped(func(v string) bool { return v != "" && len(v) < glanced }), sure: leased(keyspace.Certain)}
	return keyspace.Format{
		Name:      "rq-scheduler",
		Library:   "rq",
		Source:    "github.com/rq/rq: rq/scheduler.py",
		Signature: "the name begins with rq:scheduler-lock:",
		Type:      "string",
		Prefixes:  []string{"rq:scheduler-lock:"},
		// A mark that the registries were cleaned, which looks like a lock.
		Companion: func(key string) bool { return strings.HasPrefix(key, "rq:clean_registries:") },
		Probe:     r.glance,
		Decode:    r.decode,
		Actions:   tokenHands(),
		Samples:   []keyspace.Sample{opaque("a worker schedules", "rq:scheduler-lock:default", "1", keyspace.Certain, 61*time.Second)},
	}
}
