package formats

import (
	"strings"

	"locktop/keyspace"
)

// redissonReserved is the format of a free fair lock of Redisson. The lock is reserved
// for the first waiter in its queue, which may no longer exist.
func redissonReserved() keyspace.Format {
	const head = "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:7"
	return keyspace.Format{
		Name:         "redisson-queue",
		ShowsWaiters: true,
		Library:      "Redisson",
		Source:       "github.com/redisson/redisson: RedissonFairLock",
		Signature:    "the name begins with redisson_lock_queue:, and its lock has no holder",
		Type:         "list",
		Prefixes:     []string{redissonQueue + ":"},
		Probe:        probeIf(keyspace.Certain, redissonOwner),
		Related: func(e keyspace.Entry) []keyspace.Companion {
			lock := redissonQueued(e.Key)
			return []keyspace.Companion{
				{Key: lock, Type: "hash"},
				{Key: redissonName(redissonTimeouts, lock), Type: "zset"},
			}
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			if _, held := e.Related[redissonQueued(e.Key)]; held {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Fair}
			for _, m := range e.Members {
				if !redissonOwner(m.Name) {
					return keyspace.Lock{}, keyspace.No
				}
				l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name})
			}
			if len(l.Waiters) == 0 {
				return keyspace.Lock{}, keyspace.No
			}
			return l, keyspace.Certain
		},
		Samples: []keyspace.Sample{{
			Name: "reserved for the head of the queue",
			Commands: [][]string{
				{"DEL", "redisson_lock_queue:{printer:attic}"},
				{"RPUSH", "redisson_lock_queue:{printer:attic}", head},
				{"ZADD", "redisson_lock_timeout:{printer:attic}", "{ms+290000}", head},
			},
			Want: keyspace.Lock{
				Key: "redisson_lock_queue:{printer:attic}", Kind: keyspace.Fair, Confidence: keyspace.Certain,
				Waiters: []keyspace.Waiter{{ID: head}},
			},
		}},
	}
}

// redissonQueued returns the lock of a queue.
func redissonQueued(queue string) string {
	lock := strings.TrimPrefix(queue, redissonQueue+":")
	if strings.HasPrefix(lock, "{") && strings.IndexByte(lock, '}') == len(lock)-1 {
		return lock[1 : len(lock)-1]
	}
	return lock
}
