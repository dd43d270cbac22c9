package formats

import (
	"time"

	"locktop/keyspace"
)

// redisMutex is the format of Ruby's redis-mutex: the deadline in seconds, without a
// TTL.
func redisMutex() keyspace.Format {
	const prefix = "RedisMutex:"
	f := endsByValue(fixed(keyspace.Certain), atSeconds)
	f.Name = "redis-mutex"
	f.Library = "redis-mutex"
	f.Source = "github.com/kenn/redis-mutex: lib/redis_mutex.rb"
	f.Signature = "the name begins with RedisMutex:, and the value is a time in seconds"
	f.Prefixes = []string{prefix}
	s := endsItself("held", prefix+"Order:4711", "{f+8000}", 8*time.Second, whyByValue)
	s.Want.Confidence = keyspace.Certain
	f.Samples = []keyspace.Sample{s}
	return f
}

// whyByValue is the evidence of a lock whose value is its deadline.
const whyByValue = "it has no TTL: its value is its deadline"

// endsByValue returns the format of a lock whose value is its deadline. The value
// counts only if the key has no TTL.
func endsByValue(sure func(string, bool) keyspace.Confidence, read func(string) (time.Time, bool)) keyspace.Format {
	r := stringLock{sure: sure, token: opaqueToken(func(v string) bool { _, ok := read(v); return ok })}
	return r.format(keyspace.Format{
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if sure > keyspace.No && e.Expires.IsZero() {
				l.Expires, _ = read(e.Value)
				l.Evidence = []string{whyByValue}
			}
			return l, sure
		},
		Actions: valueActions(),
	})
}
