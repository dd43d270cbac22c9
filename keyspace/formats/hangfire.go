package formats

import (
	"time"

	"locktop/keyspace"
)

// hangfire is the format of Hangfire.Redis.StackExchange: a UUID that is the same in
// all locks of a process.
func hangfire() keyspace.Format {
	r := stringLock{token: opaqueToken(isUUID), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "hangfire",
		Library:   "Hangfire.Redis.StackExchange",
		Source:    "github.com/marcoCasamento/Hangfire.Redis.StackExchange: RedisLock.cs",
		Signature: "the name begins with {hangfire}:, and the value is a UUID",
		Prefixes:  []string{"{hangfire}:", "hangfire:"},
		Samples:   []keyspace.Sample{opaqueSample("a queue being read", "{hangfire}:queue:default:dequeued:lock", sampleUUID1, keyspace.Certain, 30*time.Second)},
	})
}
