package formats

import (
	"strconv"
	"strings"
	"time"

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
		Samples: redissonSamples(),
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
	}
	until := deadlines(e.Related[redissonName(redissonTimeouts, e.Key)])
	for _, m := range e.Related[redissonName(redissonQueue, e.Key)].Members {
		l.Kind = keyspace.Fair
		l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name, Expires: until[m.Name]})
	}
	if fence, err := strconv.ParseInt(e.Related[redissonName(redissonFence, e.Key)].Value, 10, 64); err == nil {
		l.Fence = fence
	}
	if l.Waiting == 0 && len(e.Related) == 0 {
		return l, keyspace.Likely // tutorials and other libraries store the same hash
	}
	return l, keyspace.Certain
}

func redissonSamples() []keyspace.Sample {
	const (
		client = "8743c9c0-0795-4907-87fd-6c719a6b4586"
		other  = "1f6bd2aa-5f0c-4c2c-9a53-3f0e6a0b7c11"
	)
	return []keyspace.Sample{
		sample("entered three times", 30*time.Second,
			keyspace.Lock{Key: "orders:4711", Kind: keyspace.Reentrant, Confidence: keyspace.Likely, Holders: []keyspace.Holder{{ID: client + ":52", Depth: 3}}},
			"HSET orders:4711 "+client+":52 3",
			"PEXPIRE orders:4711 30000"),
		sample("unlocked once just now", 30*time.Second,
			keyspace.Lock{Key: "{billing}:month-end", Kind: keyspace.Reentrant, Confidence: keyspace.Likely, Holders: []keyspace.Holder{{ID: client + ":7", Depth: 1}}},
			"HSET {billing}:month-end "+client+":7 1",
			"PEXPIRE {billing}:month-end 30000",
			"SET redisson_unlock_latch:{billing}:month-end:00112233445566778899aabbccddeeff 0 PX 5000"),
		sample("fair, with two in the queue", 30*time.Second, keyspace.Lock{
			Key: "printer:ground-floor", Kind: keyspace.Fair,
			Holders: []keyspace.Holder{{ID: client + ":1", Depth: 1}},
			Waiters: []keyspace.Waiter{{ID: other + ":51"}, {ID: client + ":9"}},
		},
			"HSET printer:ground-floor "+client+":1 1",
			"PEXPIRE printer:ground-floor 30000",
			"DEL redisson_lock_queue:{printer:ground-floor}",
			"RPUSH redisson_lock_queue:{printer:ground-floor} "+other+":51 "+client+":9",
			"ZADD redisson_lock_timeout:{printer:ground-floor} {ms+330000} "+other+":51 {ms+630000} "+client+":9"),
		sample("fenced, and entered twice", 30*time.Second,
			keyspace.Lock{Key: "vault:rotation", Kind: keyspace.Reentrant, Fence: 41, Holders: []keyspace.Holder{{ID: other + ":3", Depth: 2}}},
			"HSET vault:rotation "+other+":3 2",
			"PEXPIRE vault:rotation 30000",
			"SET redisson_lock_token:{vault:rotation} 41"),
		sample("of node-redisson", 12*time.Second,
			keyspace.Lock{Key: "thumbnails:88", Kind: keyspace.Reentrant, Confidence: keyspace.Likely, Holders: []keyspace.Holder{{ID: client + ":" + other, Depth: 1}}},
			"HSET thumbnails:88 "+client+":"+other+" 1",
			"PEXPIRE thumbnails:88 12000"),
	}
}
