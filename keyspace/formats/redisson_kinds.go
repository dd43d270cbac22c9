package formats

import (
	"slices"
	"strings"
	"time"

	"locktop/keyspace"
)

// redissonMulti is the format of Redisson's FasterMultiLock: one hash for many locks,
// each with fields for its owner, its deadline and its count.
func redissonMulti() keyspace.Format {
	return keyspace.Format{
		About: about("redisson-multi", "Redisson", "github.com/redisson/redisson@redisson-4.7.0: RedissonFasterMultiLock.java",
			"the hash has digests of names with their owners, expire_time and lock_count"),
		Type:   "hash",
		Probe:  probeIf(keyspace.Certain, multiField),
		Decode: decodeRedissonMulti,
	}
}

const (
	multiExpires = ":expire_time"
	multiCount   = ":lock_count"
)

// multiField reports whether a field is of such a hash: it begins with a digest.
func multiField(field string) bool {
	digest, rest, more := strings.Cut(field, ":")
	return len(digest) == 22 && only(digest, "+/") && (!more || strings.HasSuffix(rest, multiExpires[1:]) || strings.HasSuffix(rest, multiCount[1:]))
}

func decodeRedissonMulti(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	fields := make(map[string]string, len(e.Members))
	for _, m := range e.Members {
		if !multiField(m.Name) {
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
			l.Holders = append(l.Holders, keyspace.Holder{ID: m.Value, Label: m.Name, Depth: depth, Expires: until})
		}
	}
	return ifHeld(l, keyspace.Certain)
}

// redissonReserved is the format of a free fair lock of Redisson. The lock is reserved
// for the first waiter in its queue, which may no longer exist.
func redissonReserved() keyspace.Format {
	return keyspace.Format{
		About: about("redisson-queue", "Redisson", "github.com/redisson/redisson@redisson-4.7.0: RedissonFairLock.java",
			"the name of its queue begins with redisson_lock_queue:, and the lock has no holder"),
		ShowsWaiters: true,
		Attempts:     attempts(byScript(1, 0)),
		Type:         "list",
		Match:        begins(redissonQueue + ":"),
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
	return unbraced(strings.TrimPrefix(queue, redissonQueue+":"))
}

// redissonPermits is the format of Redisson's RPermitExpirableSemaphore: a zset of the
// permits in use with their deadlines, and the number of free permits in a second key.
func redissonPermits() keyspace.Format {
	left := func(key string) string { return unbraced(strings.TrimSuffix(key, ":timeout")) }
	taken := decodeMembers(keyspace.Semaphore, keyspace.Certain, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
		until, _ := atScore(m.Score) // zero = never
		return keyspace.Holder{ID: m.Name, Depth: 1, Expires: until}, isRaw(m.Name, 16)
	})
	return keyspace.Format{
		About: about("redisson-permits", "Redisson", "github.com/redisson/redisson@redisson-4.7.0: RedissonPermitExpirableSemaphore.java",
			"the name is {semaphore}:timeout, and the zset holds ids of 16 raw bytes"),
		ShowsWaiters: true,
		Type:         "zset",
		Match: func(key string) bool {
			return strings.HasSuffix(key, ":timeout") && strings.Contains(key, "{") && strings.Contains(key, "}")
		},
		Probe:    probeIf(keyspace.Certain, func(first string) bool { return isRaw(first, 16) }),
		Related:  beside("string", left),
		Channels: func(e keyspace.Entry) []string { return []string{redissonName(redissonSemaphore, left(e.Key))} },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := taken(e)
			for _, h := range l.Holders {
				l.Expires = keyspace.Later(l.Expires, h.Expires)
			}
			if slices.ContainsFunc(l.Holders, func(h keyspace.Holder) bool { return h.Expires.IsZero() }) {
				l.Expires = time.Time{} // one permit never expires
			}
			l.Waiting = subscribers(e)
			if n, ok := count(e.Related[left(e.Key)].Value); ok {
				l.Remaining = n
			}
			l.Limit = l.Remaining + len(l.Holders)
			return l, sure
		},
		Actions: redissonPermitsActions(left),
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
