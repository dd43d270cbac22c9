package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// phpredis is the format of locks on PHP sessions in Redis. The token has the holder's
// host and process.
func phpredis() keyspace.Format {
	const prefix, suffix = "PHPREDIS_SESSION:", "_LOCK"
	r := stringLock{token: hostAndProcess("|"), sure: fixed(keyspace.Certain)}
	s := opaqueSample("a request that runs", prefix+"k3v9q1sess"+suffix, "web-02|913", keyspace.Certain, 30*time.Second)
	return r.format(keyspace.Format{
		Name:      "phpredis",
		Library:   "phpredis",
		Source:    "github.com/phpredis/phpredis: redis_session.c",
		Signature: "the name is PHPREDIS_SESSION:, a session and _LOCK, and the value host|process",
		Prefixes:  []string{prefix},
		Match:     func(key string) bool { return len(key) > len(prefix+suffix) && strings.HasSuffix(key, suffix) },
		Samples:   []keyspace.Sample{s},
	})
}

// hostAndProcess returns a token function for a host and a process ID around sep.
func hostAndProcess(sep string) func(string, time.Time) (keyspace.Holder, bool) {
	return func(value string, _ time.Time) (keyspace.Holder, bool) {
		host, process, ok := cutLast(value, sep)
		return keyspace.Holder{ID: value, Count: 1}, ok && host != "" && digits(process, 1, 10)
	}
}
