package formats

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// getset is the format of the lock in Redis' documentation of SETNX. Its value is its
// deadline, and waiters test by GETSET whether the lock has ended. It has no TTL and
// no holder.
func getset() keyspace.Format {
	f := endsByValue(func(key string, expires bool) keyspace.Confidence {
		if expires { // not this library: see setNX
			return keyspace.No
		}
		return byNameAlone(key)
	}, func(s string) (time.Time, bool) {
		if digits(s, 10, 10) {
			return atSeconds(s)
		}
		return atMilli(s)
	})
	f.About = about("getset", "custom GETSET, ServiceStack.Redis", "redis.io/commands/setnx; common practice",
		"the value is a time, at most a year ahead, or a week if it is in seconds and no word in the name suggests a lock; no TTL")
	decode := f.Decode
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l, sure := decode(e)
		ahead := l.Expires.Sub(e.Now) // a time in s is any time: ServiceStack.Redis, which holds for a year, stores ms
		anyTime := ahead <= 0 || ahead > 7*24*time.Hour && digits(e.Value, 10, 10)
		if anyTime && (!looksLikeLock(e.Key) || hasWord(e.Key, past)) || countsHolds(e.Key, e.Value) {
			return keyspace.Lock{}, keyspace.No
		}
		return l, sure
	}
	return f
}

// hashReentrant is the format of reentrant locks in custom Lua scripts: a hash with the
// holder as its only field and the count as its value. Any hash with one number looks
// the same, so the name of the key must suggest a lock.
func hashReentrant() keyspace.Format {
	return keyspace.Format{
		About: about("hash-reentrant", "HINCRBY in Lua", "common practice",
			"the name contains a word for locks, and the hash has one field that holds a count"),
		Type:    "hash",
		Match:   looksLikeLock,
		Decode:  decodeHashReentrant,
		Actions: countActions(nil, ""),
	}
}

func decodeHashReentrant(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if len(e.Members) != 1 || e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	field := e.Members[0].Name
	property := nameWords[lastWord(field)]&(counted|countedLast|fencing) != 0 || numberOfLock.MatchString(field) ||
		fieldUses[plainField(field)]&(timeField|countField) != 0 // index, lock_version, ttl
	depth, ok := count(e.Members[0].Value)
	name := nameWords[lastWord(e.Key)] & (counted | countedLast | fencing) // lock:failures
	if property || name != 0 || featureField.MatchString(field) || !ok || depth > 1000 {
		return keyspace.Lock{}, keyspace.No
	}
	return keyspace.Lock{Kind: keyspace.Reentrant, Holders: []keyspace.Holder{{ID: e.Members[0].Name, Depth: depth}}}, keyspace.Likely
}

// featureField matches the fields of a feature of Flipper, which is a hash with its name.
var featureField = regexp.MustCompile(`^(actors|groups)/|^percentage_of_|^(boolean|expression)$`)

// stampRW is the format of a read/write lock in a hash with two times: the last acquire
// for reading and the last one for writing. Their validity is not known, so the later
// one is the holder.
func stampRW() keyspace.Format {
	sure := func(key string) keyspace.Confidence {
		if looksLikeLock(key) {
			return keyspace.Likely
		}
		return keyspace.Possible
	}
	return keyspace.Format{
		About: about("stamp-rw", "custom: a hash of two times", "common practice",
			"the hash has a time in ms for read or write, and nothing else"),
		Type: "hash",
		Probe: func(key, first string) keyspace.Confidence {
			if modeOf(first) == "" {
				return keyspace.No
			}
			return sure(key)
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			var last keyspace.Holder
			for _, m := range e.Members {
				at, ok := atMilli(m.Value)
				if !ok || modeOf(m.Name) == "" {
					return keyspace.Lock{}, keyspace.No
				}
				if since := plausibleStart(at, e.Now); last.ID == "" || since.After(last.Since) {
					last = keyspace.Holder{ID: m.Value, Depth: 1, Mode: modeOf(m.Name), Since: since}
				}
			}
			if last.ID == "" {
				return keyspace.Lock{}, keyspace.No
			}
			return keyspace.Lock{Kind: keyspace.RW, Holders: []keyspace.Holder{last}}, sure(e.Key)
		},
		Actions: hashRWActions(""),
	}
}

// modeOf returns the mode of a field; "" if the field has none.
func modeOf(field string) keyspace.Mode {
	switch field {
	case "read", "r":
		return keyspace.Read
	case "write", "w":
		return keyspace.Write
	default:
		return ""
	}
}

// hashRW is the format of a read/write lock in a hash with two owners.
func hashRW() keyspace.Format {
	return keyspace.Format{
		About: about("hash-rw", "custom: a hash of two owners", "common practice",
			"the name contains a word for locks, and the hash has an owner for r or w, and nothing else"),
		Type:  "hash",
		Match: looksLikeLock,
		Probe: probeIf(keyspace.Likely, func(first string) bool { return modeOf(first) != "" }),
		Decode: decodeMembers(keyspace.RW, keyspace.Likely, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
			mode := modeOf(m.Name)
			return keyspace.Holder{ID: m.Value, Depth: 1, Mode: mode}, mode != "" && m.Value != "" && !digits(m.Value, 1, 20)
		}),
		Actions: hashRWActions("hold_extend"),
	}
}

// hashRWActions change a hash of mode → holder or time.
func hashRWActions(extend string) *keyspace.Actions {
	return &keyspace.Actions{
		Keys: lockKey,
		Args: func(l keyspace.Lock) []string {
			return eachHolder(l, func(h keyspace.Holder) []string { return []string{string(h.Mode), h.ID} })
		},
		ForceRelease: script("hash_rw_check", "hash_rw_release"),
		Extend:       script("hash_rw_check", extend),
	}
}

// readWriteKeys is the format of a read/write lock in two strings: one key for all
// readers and one for the writer, with names that say so. If both exist, exclusion is
// violated, and the writer's key represents the lock.
func readWriteKeys() keyspace.Format {
	return keyspace.Format{
		About: about("read-write-keys", "custom: two keys", "common practice",
			"the name ends in readLock or writeLock, and the value is a number"),
		Type: "string",
		Match: func(key string) bool {
			_, _, ok := sides(key)
			return ok
		},
		Probe: probeIf(keyspace.Likely, func(first string) bool { return digits(first, 1, 6) }),
		Related: func(e keyspace.Entry) []keyspace.Companion {
			_, other, _ := sides(e.Key)
			return []keyspace.Companion{{Key: other, Type: "string"}}
		},
		Decode: decodeReadWriteKeys,
		Actions: &keyspace.Actions{
			Keys: func(l keyspace.Lock) []string {
				own, other, _ := sides(l.Key)
				var keys []string
				for _, h := range l.Holders {
					if h.Mode == own {
						keys = append(keys, l.Key)
					} else {
						keys = append(keys, other)
					}
				}
				return keys
			},
			Args:         holderIDs,
			ForceRelease: script("keys_check", "keys_release"),
			Extend:       script("keys_check", "keys_extend"),
		},
	}
}

// sides returns the mode of a key and the key of the other mode.
func sides(key string) (mode keyspace.Mode, other string, ok bool) {
	if n := len(key); n < len("readlock") || key[n-1]|0x20 != 'k' { // fast path for most keys
		return "", "", false
	}
	for _, lock := range [...]string{"Lock", "lock", "LOCK"} {
		for _, sep := range [...]string{"", "_", "-", ":"} {
			for _, pair := range [...][2]string{{"read", "write"}, {"Read", "Write"}, {"READ", "WRITE"}} {
				if stem, is := strings.CutSuffix(key, pair[0]+sep+lock); is {
					return keyspace.Read, stem + pair[1] + sep + lock, true
				}
				if stem, is := strings.CutSuffix(key, pair[1]+sep+lock); is {
					return keyspace.Write, stem + pair[0] + sep + lock, true
				}
			}
		}
	}
	return "", "", false
}

func decodeReadWriteKeys(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	mode, beside, ok := sides(e.Key)
	if !ok || !digits(e.Value, 1, 6) {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{Kind: keyspace.RW, Holders: []keyspace.Holder{{ID: e.Value, Depth: 1, Mode: mode}}}
	other, both := e.Related[beside]
	switch {
	case both && mode == keyspace.Read: // the writer's key represents the lock
		return keyspace.Lock{}, keyspace.No
	case both:
		l.Holders = append(l.Holders, keyspace.Holder{ID: other.Value, Depth: 1, Mode: keyspace.Read, Expires: other.Expires})
		l.Evidence = []string{"both keys exist: it is held for reading and for writing at the same time"}
	}
	return l, keyspace.Likely
}

// oversized is the format of values that are too big for a lock although their name
// suggests one: a table of locks, a queue, or a mistake. It has no holders.
func oversized() keyspace.Format {
	return keyspace.Format{
		About: about("oversized", "custom", "common practice",
			"the name contains a word for locks"),
		Type:          keyspace.AnyType,
		Match:         func(key string) bool { return hintOf(key) == strongHint },
		MaxConfidence: keyspace.Possible,
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			if !e.Truncated() {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Unknown, Evidence: []string{sizeOf(e) + " is too big for a lock"}}
			return l, keyspace.Possible
		},
	}
}

// sizeOf describes the type and size of an entry: "a hash of 1000000 elements".
func sizeOf(e keyspace.Entry) string {
	switch {
	case e.Type == "string":
		return fmt.Sprintf("a string of %d bytes", e.Len)
	case e.Oversized:
		return fmt.Sprintf("a %s of megabytes, which is not read,", e.Type)
	default:
		return fmt.Sprintf("a %s of %d elements", e.Type, e.Len)
	}
}

// redissonCount is the format of Redisson's RSemaphore, the number of free permits, and
// RCountDownLatch, the remaining count. Any counter looks the same: only subscribers of
// the release channels distinguish it.
func redissonCount() keyspace.Format {
	return keyspace.Format{
		About: about("redisson-count", "Redisson", "github.com/redisson/redisson@redisson-4.7.0: RedissonSemaphore.java, RedissonCountDownLatch.java",
			"the value is a number that is not a time, and the key has no TTL"),
		ShowsWaiters: true,
		Type:         "string",
		Probe:        probeCount,
		Channels: func(e keyspace.Entry) []string {
			return []string{redissonName(redissonSemaphore, e.Key), redissonLatch + "{" + e.Key + "}"}
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			left, err := strconv.ParseInt(e.Value, 10, 32)
			if err != nil || !e.Expires.IsZero() || probeCount(e.Key, e.Value) == keyspace.No {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Semaphore, Remaining: int(left), Waiting: subscribers(e)}
			if e.Subscribers[redissonLatch+"{"+e.Key+"}"] > 0 {
				l.Kind = keyspace.Latch
			}
			if l.Waiting == 0 {
				return l, keyspace.Possible
			}
			l.Evidence = []string{"clients subscribe to the channel of a Redisson " + string(l.Kind) + " of that name"}
			return l, keyspace.Certain
		},
	}
}

// maxPermits is the number of permits of a semaphore of Redisson without a limit.
const maxPermits = "2147483647"

// permitsLeft reports whether a string can be the number of free permits of a semaphore, by its
// name or value. It is no lock of one client: without the key there are no permits, for ever.
func permitsLeft(e keyspace.Entry) bool {
	return e.Expires.IsZero() && (e.Value == maxPermits || digits(e.Value, 1, 10) && hasWord(e.Key, permits))
}

// probeCount is the Probe of a number of permits. It does not know the subscribers and the TTL.
func probeCount(key, first string) keyspace.Confidence {
	if !digits(first, 1, 10) || first != maxPermits && !timeIn(first).IsZero() || countsOtherwise(key, first) {
		return keyspace.No
	}
	return keyspace.Possible
}

// Prefixes of the channels on which Redisson's clients wait.
const (
	redissonRWUnlock  = "redisson_rwlock"
	redissonSemaphore = "redisson_sc"
	redissonLatch     = "redisson_countdownlatch__channel__"
)

// subscribers returns the number of subscribers of an entry's channels.
func subscribers(e keyspace.Entry) int {
	var n int64
	for _, listening := range e.Subscribers {
		n += listening
	}
	return int(n)
}

// countsOtherwise reports whether the name of a key suggests a number without a lock.
func countsOtherwise(key, value string) bool {
	return hasWord(key, otherThing|counted) || countsHolds(key, value)
}

// dramatiqTTL is the default of the longest hold in Python's dramatiq.
const dramatiqTTL = 15 * time.Minute

// dramatiq is the format of dramatiq's ConcurrentRateLimiter: the number of permits in
// use, under any name. The value has no holders, so one holder stands for all permits.
// Every counter with a TTL looks the same.
func dramatiq() keyspace.Format {
	return keyspace.Format{
		About: about("dramatiq", "dramatiq", "github.com/Bogdanp/dramatiq@v2.2.0: dramatiq/rate_limits/concurrent.py",
			"the value is a small number, and the key expires within a quarter of an hour"),
		Type:          "string",
		MaxConfidence: keyspace.Possible,
		Probe:         probeCount,
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			out, ok := count(e.Value)
			if !ok || !digits(e.Value, 1, 4) || countsOtherwise(e.Key, e.Value) || e.Expires.IsZero() || e.Expires.Sub(e.Now) > dramatiqTTL {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Semaphore, Evidence: []string{fmt.Sprintf("%d permits would be in use", out)}}
			l.Holders = []keyspace.Holder{{ID: "permits", Label: "permits", Depth: out}} // for all permits in use
			return l, keyspace.Possible
		},
	}
}
