package formats

import (
	"time"

	"locktop/keyspace"
)

// sentry is the format of Sentry's locks: a random UUID without dashes.
func sentry() keyspace.Format {
	r := stringLock{sure: needsTTL(keyspace.Likely), token: opaqueToken(func(v string) bool {
		id, ok := undashed(v)
		return ok && id.Version() == 4 && isHex(v, 32)
	})}
	return r.format(keyspace.Format{
		Name:      "sentry",
		Library:   "Sentry",
		Source:    "github.com/getsentry/sentry: src/sentry/locks.py, utils/locking/backends/redis.py",
		Signature: "the name begins with l:, and the value is a UUID without dashes",
		Prefixes:  []string{"l:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "l:report:generate", sampleHex1, keyspace.Likely, 10*time.Second)},
	})
}
