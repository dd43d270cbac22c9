package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// mlanett is Ruby's redis-lock: the owner in one key, host and process, and in
// another the time when it ends.
func mlanett() keyspace.Format {
	const owner, expire = "lock:owner:", "lock:expire:"
	r := reading{token: hostAndProcess(":"), sure: always(keyspace.Certain)}
	beside := func(e keyspace.Entry) string { return expire + strings.TrimPrefix(e.Key, owner) }
	s := endsItself("held", owner+"report", "web-01:4242", 9*time.Second, "it has no TTL: the key beside it says when it ends")
	s.Commands = append(s.Commands, []string{"SET", expire + "report", "{s+9000}"})
	s.Want.Confidence = keyspace.Certain
	return keyspace.Format{
		Name:      "mlanett",
		Library:   "redis-lock (Ruby)",
		Source:    "github.com/mlanett/redis-lock: lib/redis-lock.rb",
		Tells:     "the name begins with lock:owner:, and the value is host:process",
		Type:      "string",
		Match:     begins(owner),
		Companion: begins(expire),
		Glance:    r.glance,
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{{Key: beside(e), Type: "string"}}
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if until, ok := atSeconds(e.Related[beside(e)].Value); ok && sure > keyspace.No && e.Expires.IsZero() {
				l.Expires = until
				l.Why = []string{"it has no TTL: the key beside it says when it ends"}
			}
			return l, sure
		},
		Samples: []keyspace.Sample{s},
	}
}
