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
			return []keyspace.Companion{
				{Key: locktopName(e.Key, "fence"), Type: "string"},
				{Key: locktopName(e.Key, "waiters"), Type: "zset"},
			}
		},
		ShowsWaiters: true,
		Decode:       decodeLocktopReentrant,
		Actions: countActions(func(key string) (string, string) { return locktopName(key, "free"), key },
			"receive the key on {key}:free"),
		Samples: []keyspace.Sample{{
			Name: "entered twice, and a process waits",
			Commands: [][]string{
				{"DEL", "ledger:2026", "{ledger:2026}:waiters"},
				{"ZADD", "{ledger:2026}:waiters", "{ms-3000}000", "api-3:4~6f1c2a3b4d5e"},
				{"HSET", "ledger:2026", token, "2"},
				{"PEXPIRE", "ledger:2026", "30000"},
			},
			Want: keyspace.Lock{
				Key: "ledger:2026", Kind: keyspace.Reentrant, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: token, Label: "pay-7:52", Count: 2}},
				Waiters: []keyspace.Waiter{{ID: "api-3:4~6f1c2a3b4d5e"}},
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
		Waiters: locktopProcesses(e),
		Fence:   locktopFence(e),
	}, keyspace.Certain
}
