package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// redissonPermits is the format of Redisson's RPermitExpirableSemaphore: a zset of the
// permits in use with their deadlines, and the number of free permits in a second key.
func redissonPermits() keyspace.Format {
	left := func(key string) string {
		lock := strings.TrimSuffix(key, ":timeout")
		if strings.IndexByte(lock, '}') == len(lock)-1 {
			return strings.Trim(lock, "{}")
		}
		return lock
	}
	const a, b = "\x00\x9dperm1\xfe\x01\x02\x03\x04\x05\x06\x07\x08", "\x00\x9dperm2\xfe\x01\x02\x03\x04\x05\x06\x07\x08"
	return keyspace.Format{
		Name:         "redisson-permits",
		ShowsWaiters: true,
		Library:      "Redisson",
		Source:       "github.com/redisson/redisson: RedissonPermitExpirableSemaphore",
		Signature:    "the name is {semaphore}:timeout, and the zset holds ids of 16 raw bytes",
		Type:         "zset",
		Match: func(key string) bool {
			return strings.HasSuffix(key, ":timeout") && strings.Contains(key, "{") && strings.Contains(key, "}")
		},
		Probe: probeIf(keyspace.Certain, func(first string) bool { return isRaw(first, 16) }),
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{{Key: left(e.Key), Type: "string"}}
		},
		Channels: func(e keyspace.Entry) []string { return []string{redissonName(redissonSemaphore, left(e.Key))} },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Semaphore, Waiting: subscribers(e)}
			for _, m := range e.Members {
				if !isRaw(m.Name, 16) {
					return keyspace.Lock{}, keyspace.No
				}
				until, timed := atScore(m.Score)
				if timed && !until.After(e.Now) {
					continue // expired, but still in the zset
				}
				l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Count: 1, Expires: until})
				if timed && until.After(l.Expires) {
					l.Expires = until
				}
			}
			for _, h := range l.Holders {
				if h.Expires.IsZero() {
					l.Expires = time.Time{} // one permit never expires
				}
			}
			if n, ok := count(e.Related[left(e.Key)].Value); ok {
				l.Remaining = n
			}
			l.Limit = l.Remaining + len(l.Holders)
			return ifHeld(l, keyspace.Certain)
		},
		Actions: redissonPermitsActions(left),
		Samples: []keyspace.Sample{{
			Name: "two of three permits taken",
			Commands: [][]string{
				{"SET", "gpu", "1"},
				{"DEL", "{gpu}:timeout"},
				{"ZADD", "{gpu}:timeout", "{ms+60000}", a, "{ms+20000}", b},
			},
			Want: keyspace.Lock{
				Key: "{gpu}:timeout", Kind: keyspace.Semaphore, Confidence: keyspace.Certain, Remaining: 1, Limit: 3,
				Holders: []keyspace.Holder{{ID: b, Count: 1}, {ID: a, Count: 1}},
			},
			TTL: 60 * time.Second,
		}},
	}
}

// redissonPermitsActions return permits to the free ones.
func redissonPermitsActions(left func(key string) string) *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string { return []string{l.Key, left(l.Key)} },
		Args: func(l keyspace.Lock) []string {
			return append(seenHolders(inZset, l), redissonName(redissonSemaphore, left(l.Key)))
		},
		ForceRelease: script("members_check", "redisson_permits_release"),
		Extend:       script("members_check", "scores_extend"),
		WakeHint:     "receive the number of permits on redisson_sc:{name}",
	}
}
