package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// shedlock is the format of Java's ShedLock: the start of the job and its host. A key
// may outlive its job, until the minimum hold time ends.
func shedlock() keyspace.Format {
	r := stringLock{token: shedlockToken, sure: needsTTL(keyspace.Certain)}
	const value = "ADDED:{iso-540000}@batch-01:" + sampleUUID1
	s := opaqueSample("a job that runs", "job-lock:default:nightlyReport", value, keyspace.Certain, time.Hour)
	s.Want.Holders[0].Label = "batch-01"
	return r.format(keyspace.Format{
		Name:      "shedlock",
		Library:   "ShedLock",
		Source:    "github.com/lukas-krecan/ShedLock: providers/redis, InternalRedisLockProvider",
		Signature: "the value is ADDED:, a time, @ and a host",
		Samples:   []keyspace.Sample{s},
	})
}

func shedlockToken(value string, now time.Time) (keyspace.Holder, bool) {
	rest, ok := strings.CutPrefix(value, "ADDED:")
	stamp, host, found := strings.Cut(rest, "@")
	if !ok || !found || host == "" {
		return keyspace.Holder{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return keyspace.Holder{}, false
	}
	if id, cut := len(host)-37, len(host) > 37; cut && host[id] == ':' && isUUID(host[id+1:]) {
		host = host[:id]
	}
	return keyspace.Holder{ID: value, Label: host, Count: 1, Since: plausibleStart(at, now)}, true
}
