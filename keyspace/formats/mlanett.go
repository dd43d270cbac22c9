package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// mlanett is the format of Ruby's redis-lock: the owner, host and process, in one key
// and the deadline in another.
func mlanett() keyspace.Format {
	r := stringLock{token: hostAndProcess(":"), sure: fixed(keyspace.Certain)}
	s := endsItself("held", mlanettOwner+"report", "web-01:4242", 9*time.Second, "it has no TTL: a second key has its deadline")
	s.Commands = append(s.Commands, []string{"SET", mlanettExpire + "report", "{s+9000}"})
	s.Want.Confidence = keyspace.Certain
	return r.format(keyspace.Format{
		Name:      "mlanett",
		Library:   "redis-lock (Ruby)",
		Source:    "github.com/mlanett/redis-lock: lib/redis-lock.rb",
		Signature: "the name begins with lock:owner:, and the value is host:process",
		Prefixes:  []string{mlanettOwner},
		Companion: begins(mlanettExpire),
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{{Key: mlanettExpiry(e.Key), Type: "string"}}
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if until, ok := atSeconds(e.Related[mlanettExpiry(e.Key)].Value); ok && sure > keyspace.No && e.Expires.IsZero() {
				l.Expires = until
				l.Evidence = []string{"it has no TTL: a second key has its deadline"}
			}
			return l, sure
		},
		Actions: mlanettActions(),
		Samples: []keyspace.Sample{s},
	})
}

const (
	mlanettOwner  = "lock:owner:"
	mlanettExpire = "lock:expire:"
)

// mlanettExpiry returns the key of a lock's deadline.
func mlanettExpiry(key string) string { return mlanettExpire + strings.TrimPrefix(key, mlanettOwner) }

func mlanettActions() *keyspace.Actions {
	a := valueActions()
	a.Keys = func(l keyspace.Lock) []string { return []string{l.Key, mlanettExpiry(l.Key)} }
	return a
}
