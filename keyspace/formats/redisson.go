package formats

import (
	"slices"
	"strconv"
	"strings"

	"locktop/keyspace"
)

// redisson is the format of Redisson's RLock, of its spin, fenced and fair locks, and of
// node-redisson. The hash has one field, <client's UUID>:<thread ID>, with the reentrant
// count. A fair lock has a queue while clients wait; a fenced lock has a counter.
func redisson() keyspace.Format {
	return keyspace.Format{
		About: about("redisson", "Redisson, and code that stores the same hash", "github.com/redisson/redisson@redisson-4.7.0: RedissonLock.java, RedissonFairLock.java, RedissonFencedLock.java",
			"the hash has one field, a client's UUID and a thread, that holds a count"),
		ShowsWaiters: true,
		Attempts:     attempts(byScript(1, 0)),
		Type:         "hash",
		Probe:        probeIf(keyspace.Certain, redissonOwner),
		Companion: func(key string) bool {
			return strings.HasPrefix(key, redissonTimeouts+":") || strings.HasPrefix(key, redissonFence+":") ||
				strings.HasPrefix(key, "redisson_unlock_latch:")
		},
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{
				{Key: redissonName(redissonQueue, e.Key), Type: "list"},
				{Key: redissonName(redissonTimeouts, e.Key), Type: "zset"},
				{Key: redissonName(redissonFence, e.Key), Type: "string"},
			}
		},
		Channels: func(e keyspace.Entry) []string { return []string{redissonName(redissonChannel, e.Key)} },
		Decode:   decodeRedisson,
		Actions:  redissonActions(),
		ReleaseChannel: &keyspace.ReleaseChannel{
			Pattern: redissonChannel + ":*",
			Key:     redissonReleased,
			ToWaiter: func(channel string) bool {
				_, owner := redissonWaiter(channel)
				return owner
			},
		},
	}
}

// Prefixes of Redisson's second keys of a lock.
const (
	redissonQueue    = "redisson_lock_queue"
	redissonTimeouts = "redisson_lock_timeout"
	redissonFence    = "redisson_lock_token"
)

// redissonChannel is the prefix of the channel for a lock's releases.
const redissonChannel = "redisson_lock__channel"

// redissonActions end a hold like RLock.forceUnlock. The count must not have changed: it
// distinguishes two holds of one thread.
func redissonActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return []string{l.Key, redissonName(redissonQueue, l.Key), redissonName(redissonTimeouts, l.Key)}
		},
		Args: func(l keyspace.Lock) []string {
			return append([]string{redissonName(redissonChannel, l.Key), "0"}, fieldsAndCounts(l)...)
		},
		ForceRelease: script("redisson_release"),
		Extend:       script("count_extend"),
		WakeHint:     "receive 0 on redisson_lock__channel:{key}; the first waiter of a fair lock on a channel of its own",
	}
}

// redissonReleased returns the key of a lock from the channel of its releases. A waiter
// of a fair lock has its own channel, which ends with the owner.
func redissonReleased(channel, payload string) (string, bool) {
	name, ok := strings.CutPrefix(channel, redissonChannel+":")
	if !ok || payload != "0" {
		return "", false
	}
	name, _ = redissonWaiter(name)
	return unbraced(name), true
}

// redissonWaiter removes the owner from the channel of a fair lock's waiter; it returns
// false if the channel does not end with an owner.
func redissonWaiter(channel string) (string, bool) {
	if i := strings.LastIndexByte(channel, ':'); i > 37 && channel[i-37] == ':' && redissonOwner(channel[i-36:]) {
		return channel[:i-37], true
	}
	return channel, false
}

// unbraced removes the braces around a name.
func unbraced(name string) string {
	bare, opened := strings.CutPrefix(name, "{")
	bare, closed := strings.CutSuffix(bare, "}")
	if !opened || !closed || strings.Contains(bare, "{") {
		return name
	}
	return bare
}

// redissonName returns the name of a second key of a lock, in the same cluster slot. A
// key with braces gets no further braces.
func redissonName(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// redissonOwner reports whether s is an owner of Redisson (uuid:number) or
// node-redisson (uuid:uuid).
func redissonOwner(s string) bool {
	if len(s) < 38 || s[36] != ':' {
		return false
	}
	if _, ok := dashed(s[:36]); !ok {
		return false
	}
	if digits(s[37:], 1, 19) {
		return true
	}
	_, ok := dashed(s[37:])
	return ok
}

// count parses a reentrant count, which is at least 1.
func count(s string) (int, bool) {
	n, err := strconv.ParseInt(s, 10, 32)
	return int(n), err == nil && n > 0
}

func decodeRedisson(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if len(e.Members) != 1 || e.Truncated() || !redissonOwner(e.Members[0].Name) {
		return keyspace.Lock{}, keyspace.No
	}
	depth, ok := count(e.Members[0].Value)
	if !ok {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{
		Kind:    keyspace.Reentrant,
		Holders: []keyspace.Holder{{ID: e.Members[0].Name, Depth: depth}},
		Waiting: subscribers(e),
		Fence:   fenceIn(e, redissonName(redissonFence, e.Key)),
	}
	until := deadlines(e.Related[redissonName(redissonTimeouts, e.Key)])
	for _, m := range e.Related[redissonName(redissonQueue, e.Key)].Members {
		l.Kind = keyspace.Fair
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name, Expires: until[m.Name]})
	}
	if l.Waiting == 0 && len(e.Related) == 0 {
		return l, keyspace.Likely // tutorials and other libraries store the same hash
	}
	return l, keyspace.Certain
}

// redissonRW is the format of Redisson's RReadWriteLock: a hash with a field "mode", and
// a field with a count for each reader and for the writer. Each acquire of a reader has
// another key, which expires without a renewal. The hash expires with the last of these
// keys.
func redissonRW() keyspace.Format {
	return keyspace.Format{
		About: about("redisson-rw", "Redisson", "github.com/redisson/redisson@redisson-4.7.0: RedissonReadLock.java, RedissonWriteLock.java",
			"the hash has a mode, and clients' UUIDs and threads that hold counts"),
		ShowsWaiters: true,
		Attempts:     attempts(byScript(1, 0)),
		Type:         "hash",
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			return first == "mode" || redissonOwner(strings.TrimSuffix(first, writerSuffix))
		}),
		Companion: func(key string) bool {
			name := strings.TrimRight(key, "0123456789")
			return name != key && len(key)-len(name) <= 10 && strings.HasSuffix(name, readerTimeout)
		},
		Related:  readerTimeouts,
		Channels: func(e keyspace.Entry) []string { return []string{redissonName(redissonRWUnlock, e.Key)} },
		Decode:   decodeRedissonRW,
		Actions:  redissonRWActions(),
	}
}

const (
	writerSuffix  = ":write"
	readerTimeout = ":rwlock_timeout:"

	timeoutsPerReader, timeoutsPerLock = 16, 256 // only so many are read
)

// redissonRWActions end holds of readers together with their timeouts. If a released
// writer is also a reader, the lock becomes a lock of readers.
func redissonRWActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			keys := []string{l.Key}
			for _, h := range l.Holders {
				for i := 1; h.Mode == keyspace.Read && i <= min(h.Depth, timeoutsPerReader); i++ {
					keys = append(keys, readerTimeoutKey(l.Key, h.ID, i))
				}
			}
			return keys
		},
		Args: func(l keyspace.Lock) []string {
			return append(holdersAndCounts(l), redissonName(redissonRWUnlock, l.Key))
		},
		ForceRelease: script("redisson_rw_check", "redisson_rw_release"),
		Extend:       script("redisson_rw_check", "redisson_rw_extend"),
		WakeHint:     "receive 1 on redisson_rwlock:{key}",
	}
}

// readerTimeouts lists the timeout keys of all readers, up to the limits.
func readerTimeouts(e keyspace.Entry) []keyspace.Companion {
	var all []keyspace.Companion
	for _, m := range e.Members {
		if !redissonOwner(m.Name) {
			continue
		}
		entered, _ := count(m.Value)
		for i := 1; i <= min(entered, timeoutsPerReader) && len(all) < timeoutsPerLock; i++ {
			all = append(all, keyspace.Companion{Key: readerTimeoutKey(e.Key, m.Name, i), Type: "string"})
		}
	}
	return all
}

// readerTimeoutKey returns the key for acquire number i of a reader.
func readerTimeoutKey(key, reader string, i int) string {
	if !strings.Contains(key, "{") {
		key = "{" + key + "}"
	}
	return key + ":" + reader + readerTimeout + strconv.Itoa(i)
}

func decodeRedissonRW(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.RW, Waiting: subscribers(e)}
	mode := ""
	for _, m := range e.Members {
		if m.Name == "mode" {
			mode = m.Value
			continue
		}
		h := keyspace.Holder{ID: m.Name, Mode: keyspace.Read}
		owner, writes := strings.CutSuffix(m.Name, writerSuffix)
		if writes {
			h.Mode = keyspace.Write
		}
		var ok bool
		if h.Depth, ok = count(m.Value); !ok || !redissonOwner(owner) {
			return keyspace.Lock{}, keyspace.No
		}
		for i := 1; !writes && i <= timeoutsPerReader; i++ { // the end of its last timeout
			h.Expires = keyspace.Later(h.Expires, e.Related[readerTimeoutKey(e.Key, m.Name, i)].Expires)
		}
		if !writes && h.Expires.IsZero() && h.Depth <= timeoutsPerReader && len(e.Related) > 0 && len(readerTimeouts(e)) < timeoutsPerLock {
			h.Expires = e.Now // its lease is over, and it blocks writers as long as others renew the hash
		}
		l.Holders = append(l.Holders, h)
	}
	if mode != "read" && mode != "write" || len(l.Holders) == 0 {
		return keyspace.Lock{}, keyspace.No
	}
	// The members are in the order of their names. Put the writer before the readers.
	slices.SortStableFunc(l.Holders, func(a, b keyspace.Holder) int {
		return strings.Compare(string(b.Mode), string(a.Mode))
	})
	return l, keyspace.Certain
}

// cutLast cuts s around the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
