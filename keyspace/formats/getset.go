package formats

import (
	"time"

	"locktop/keyspace"
)

// getset is the format of the lock in Redis' documentation of SETNX. Its value is its
// deadline, and waiters test by GETSET whether the lock has ended. It has no TTL and
// no holder.
func getset() keyspace.Format {
	f := endsByValue(func(key string, expires bool) keyspace.Confidence {
		switch {
		case expires: // not this library: see setNX
			return keyspace.No
		case looksLikeLock(key):
			return keyspace.Likely
		case looksLikeOther(key):
			return keyspace.No
		default:
			return keyspace.Possible
		}
	}, func(s string) (time.Time, bool) {
		if digits(s, 10, 10) {
			return atSeconds(s)
		}
		return atMilli(s)
	})
	f.Name = "getset"
	f.Library = "custom GETSET, ServiceStack.Redis"
	f.Source = "redis.io/commands/setnx"
	f.Signature = "the value is a time, and the key has no TTL"
	f.Samples = []keyspace.Sample{endsItself("held", "lock:ledger:close", "{ms+30000}", 30*time.Second, whyByValue)}
	return f
}
