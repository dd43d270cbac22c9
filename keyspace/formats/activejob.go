package formats

import (
	"time"

	"locktop/keyspace"
)

// activejob is the format of ActiveJob::Uniqueness, which uses redlock-rb.
func activejob() keyspace.Format {
	r := stringLock{token: opaqueToken(isUUID), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "activejob-uniqueness",
		Library:   "activejob-uniqueness",
		Source:    "github.com/veeqo/activejob-uniqueness: lib/active_job/uniqueness",
		Signature: "the name begins with activejob_uniqueness:, and the value is a UUID",
		Prefixes:  []string{"activejob_uniqueness:"},
		Samples:   []keyspace.Sample{opaqueSample("a job in the queue", "activejob_uniqueness:sync_job:no_arguments", sampleUUID1, keyspace.Certain, 24*time.Hour)},
	})
}
