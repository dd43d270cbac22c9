package formats

import (
	"time"

	"locktop/keyspace"
)

// hashReentrant is the format of reentrant locks in custom Lua scripts: a hash with the
// holder as its only field and the count as its value. Any hash with one number looks
// the same, so the name of the key must suggest a lock.
func hashReentrant() keyspace.Format {
	return keyspace.Format{
		Name:      "hash-reentrant",
		Library:   "HINCRBY in Lua",
		Source:    "common practice; locktop's own Reentrant has the same layout",
		Signature: "the name contains a word for locks, and the hash has one field that holds a count",
		Type:      "hash",
		Match:     looksLikeLock,
		Decode:    decodeHashReentrant,
		Actions:   countActions(nil, ""),
		Samples: []keyspace.Sample{{
			Name: "entered twice",
			Commands: [][]string{
				{"HSET", "lock:invoice:2026-118", "billing-3:main", "2"},
				{"PEXPIRE", "lock:invoice:2026-118", "45000"},
			},
			Want: keyspace.Lock{
				Key: "lock:invoice:2026-118", Kind: keyspace.Reentrant, Confidence: keyspace.Likely,
				Holders: []keyspace.Holder{{ID: "billing-3:main", Count: 2}},
			},
			TTL: 45 * time.Second,
		}},
	}
}

func decodeHashReentrant(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.Reentrant}
	for _, m := range e.Members {
		depth, ok := count(m.Value)
		if !ok || depth > 999_999 {
			return keyspace.Lock{}, keyspace.No
		}
		l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Count: depth})
	}
	switch {
	case len(l.Holders) == 0 || e.Truncated():
		return keyspace.Lock{}, keyspace.No
	case len(l.Holders) > 1:
		return l, keyspace.Possible // a reentrant lock has one holder: probably counters
	default:
		return l, keyspace.Likely
	}
}
