package formats

import (
	"strings"
	"time"

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
		Signature:    "the name of its queue begins with redisson_lock_queue:, and the lock has no holder",
		Type:         "list",
		Prefixes:     []string{redissonQueue + ":"},
		Probe:        probeIf(keyspace.Certain, redissonOwner),
		LockKey:      redissonQueued,
		StandIn: func(lock string) keyspace.Companion {
			return keyspace.Companion{Key: redissonName(redissonQueue, lock), Type: "list"}
		},
		Wake: redissonWake,
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
			until := deadlines(e.Related[redissonName(redissonTimeouts, redissonQueued(e.Key))])
			for _, m := range e.Members {
				if !redissonOwner(m.Name) {
					return keyspace.Lock{}, keyspace.No
				}
				l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name, Expires: until[m.Name]})
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
				Key: "printer:attic", Kind: keyspace.Fair, Confidence: keyspace.Certain,
				Waiters: []keyspace.Waiter{{ID: head}},
			},
		}},
	}
}

// redissonWake wakes the first waiter that is not dead. When it asks for the lock, it
// removes the dead ones before it.
func redissonWake(l keyspace.Lock, now time.Time) []string {
	for _, w := range l.Waiters {
		if w.DeadFor(now) == 0 {
			return []string{"PUBLISH", redissonName(redissonChannel, l.Key) + ":" + w.ID, "0"}
		}
	}
	return nil
}

// redissonQueued returns the lock of a queue.
func redissonQueued(queue string) string {
	lock := strings.TrimPrefix(queue, redissonQueue+":")
	if strings.HasPrefix(lock, "{") && strings.IndexByte(lock, '}') == len(lock)-1 {
		return lock[1 : len(lock)-1]
	}
	return lock
}
