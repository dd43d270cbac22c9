package formats

import (
	"strings"

	"locktop/keyspace"
)

// huey is the format of lock_task in Python's huey: a flag without a holder or a TTL,
// in the hash of the task results. One hash has all locks of an application.
func huey() keyspace.Format {
	return keyspace.Format{
		About: about("huey", "huey", "github.com/coleifer/huey@3.3.0: huey/api.py, huey/storage.py",
			"the name begins with huey.results., and fields have .lock. in their name"),
		Attempts: attempts(keyspace.Attempt{Command: "hsetnx", Token: 1}),
		Type:     "hash",
		Prefixes: []string{"huey.results."},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Mutex}
			for _, m := range e.Members {
				if _, name, ok := strings.Cut(m.Name, ".lock."); ok {
					l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Label: name, Depth: 1})
				}
			}
			if len(l.Holders) > 1 {
				l.Kind = keyspace.Unknown // several locks in one key
			}
			return ifHeld(l, keyspace.Certain)
		},
		Actions: memberActions(inHash, ""),
		Samples: []keyspace.Sample{sample("a task that runs", 0, keyspace.Lock{
			Key: "huey.results.shop", Kind: keyspace.Mutex,
			Holders: []keyspace.Holder{{ID: "shop.lock.reindex", Label: "reindex", Depth: 1}},
		},
			"HSET huey.results.shop shop.lock.reindex "+"\x80\x04\x8c\x011\x94.")},
	}
}
