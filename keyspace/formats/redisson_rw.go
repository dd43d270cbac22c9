package formats

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

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
		Samples:  redissonRWSamples(),
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
			seen := append([]string{strconv.Itoa(len(l.Holders))}, fieldsAndCounts(l)...)
			return append(seen, redissonName(redissonRWUnlock, l.Key))
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

func redissonRWSamples() []keyspace.Sample {
	const (
		a = "3ac1b6a2-93a5-4f0f-8f2e-0d6a4f1c2b33:1"
		b = "8743c9c0-0795-4907-87fd-6c719a6b4586:51"
		c = "c0f5d9e7-2b1a-4d7e-b7c8-5a9d1e3f4a77:7"
	)
	return []keyspace.Sample{
		sample("three readers, one of them twice", 30*time.Second, keyspace.Lock{
			Key: "rw:catalog", Kind: keyspace.RW,
			Holders: []keyspace.Holder{{ID: a, Depth: 1, Mode: keyspace.Read}, {ID: b, Depth: 1, Mode: keyspace.Read}, {ID: c, Depth: 2, Mode: keyspace.Read}},
		},
			"HSET rw:catalog mode read "+a+" 1 "+b+" 1 "+c+" 2",
			"PEXPIRE rw:catalog 30000",
			"SET {rw:catalog}:"+a+":rwlock_timeout:1 1 PX 11000",
			"SET {rw:catalog}:"+b+":rwlock_timeout:1 1 PX 21000",
			"SET {rw:catalog}:"+c+":rwlock_timeout:1 1 PX 25000",
			"SET {rw:catalog}:"+c+":rwlock_timeout:2 1 PX 30000"),
		sample("a writer that has entered twice and reads, too", 60*time.Second, keyspace.Lock{
			Key: "rw:prices", Kind: keyspace.RW,
			Holders: []keyspace.Holder{{ID: b + ":write", Depth: 2, Mode: keyspace.Write}, {ID: b, Depth: 1, Mode: keyspace.Read}},
		},
			"HSET rw:prices mode write "+b+":write 2 "+b+" 1",
			"PEXPIRE rw:prices 60000",
			"SET {rw:prices}:"+b+":rwlock_timeout:1 1 PX 30000"),
	}
}
