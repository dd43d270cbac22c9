package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// redissonMulti is the format of Redisson's FasterMultiLock: one hash for many locks,
// each with fields for its owner, its deadline and its count.
func redissonMulti() keyspace.Format {
	const a, b = "q1W2e3R4t5Y6u7I8o9P0aQ", "Zx9+Yv8/Wu7Tt6Ss5Rr4QA"
	const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:52"
	return keyspace.Format{
		Name:      "redisson-multi",
		Library:   "Redisson",
		Source:    "github.com/redisson/redisson: RedissonFasterMultiLock",
		Signature: "the hash has digests of names with their owners, expire_time and lock_count",
		Type:      "hash",
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			_, ok := multiDigest(first)
			return ok
		}),
		Decode: decodeRedissonMulti,
		Samples: []keyspace.Sample{{
			Name: "two locks of one group",
			Commands: [][]string{
				{"HSET", "warehouse-group", a, owner, a + ":" + owner + multiExpires, "{ms+30000}", a + ":" + owner + multiCount, "1",
					b, owner, b + ":" + owner + multiExpires, "{ms+30000}", b + ":" + owner + multiCount, "2"},
				{"PEXPIRE", "warehouse-group", "30000"},
			},
			Want: keyspace.Lock{
				Key: "warehouse-group", Kind: keyspace.Reentrant, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: owner, Label: b, Count: 2}, {ID: owner, Label: a, Count: 1}},
			},
			TTL: 30 * time.Second,
		}},
	}
}

const (
	multiExpires = ":expire_time"
	multiCount   = ":lock_count"
)

// multiDigest returns the digest at the start of a field.
func multiDigest(field string) (string, bool) {
	digest, rest, more := strings.Cut(field, ":")
	ok := len(digest) == 22 && only(digest, "+/")
	return digest, ok && (!more || strings.HasSuffix(rest, multiExpires[1:]) || strings.HasSuffix(rest, multiCount[1:]))
}

func decodeRedissonMulti(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	fields := make(map[string]string, len(e.Members))
	for _, m := range e.Members {
		if _, ok := multiDigest(m.Name); !ok {
			return keyspace.Lock{}, keyspace.No
		}
		fields[m.Name] = m.Value
	}
	l := keyspace.Lock{Kind: keyspace.Reentrant}
	for _, m := range e.Members {
		if len(m.Name) != 22 || !redissonOwner(m.Value) {
			continue
		}
		depth, counted := count(fields[m.Name+":"+m.Value+multiCount])
		until, _ := atMilli(fields[m.Name+":"+m.Value+multiExpires])
		if counted {
			l.Holders = append(l.Holders, keyspace.Holder{ID: m.Value, Label: m.Name, Count: depth, Expires: until})
		}
	}
	return ifHeld(l, keyspace.Certain)
}
