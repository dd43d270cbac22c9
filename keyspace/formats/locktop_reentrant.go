package formats

import (
	"time"

	"locktop/keyspace"
)

// locktopReentrant is the format of the reentrant lock in package lock: the hash of
// hashReentrant with a token of package lock as its holder.
func locktopReentrant() keyspace.Format {
	const token = "pay-7:52~{v7-4000/4d}"
	return keyspace.Format{
		Name:      "locktop-reentrant",
		Library:   "locktop",
		Source:    "package locktop/lock: Reentrant",
		Signature: "the hash has one field, a label, a tilde, and a UUID that contains the time",
		Type:      "hash",
		Probe:     probeLocktop,
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{{Key: locktopName(e.Key, "fence"), Type: "string"}}
		},
		Decode: decodeLocktopReentrant,
		Actions: countActions(func(key string) (string, string) { return locktopName(key, "free"), key },
			"receive the key on {key}:free"),
		Samples: []keyspace.Sample{{
			Name: "entered twice",
			Commands: [][]string{
				{"DEL", "ledger:2026"},
				{"HSET", "ledger:2026", token, "2"},
				{"PEXPIRE", "ledger:2026", "30000"},
			},
			Want: keyspace.Lock{
				Key: "ledger:2026", Kind: keyspace.Reentrant, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: token, Label: "pay-7:52", Count: 2}},
			},
			TTL: 30 * time.Second,
		}},
	}
}

func decodeLocktopReentrant(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if len(e.Members) != 1 || e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	h, ok := locktopHolder(e.Members[0].Name, e.Now)
	if !ok {
		return keyspace.Lock{}, keyspace.No
	}
	if h.Count, ok = count(e.Members[0].Value); !ok {
		return keyspace.Lock{}, keyspace.No
	}
	return keyspace.Lock{
		Kind:    keyspace.Reentrant,
		Holders: []keyspace.Holder{h},
		Fence:   locktopFence(e),
	}, keyspace.Certain
}
