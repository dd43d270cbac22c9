package formats

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// goRedislock is the format of the reentrant mutex of Go's jefferyjob/go-redislock: the
// token under the name in braces, and the count in a second key.
func goRedislock() keyspace.Format {
	return countedMutex(keyspace.Format{
		About: about("go-redislock", "jefferyjob/go-redislock", "github.com/jefferyjob/go-redislock@v1.6.0: lua/reentrantLock.lua",
			"the name is in braces, and the value is lock_token: and a UUID"),
		Match: inBraces,
		Companion: func(key string) bool {
			return strings.HasPrefix(key, "{") && strings.Contains(key, "}:count:"+goRedislockMark)
		},
		Samples: []keyspace.Sample{sample("entered three times", 30*time.Second, keyspace.Lock{
			Key: "{stock:7}", Kind: keyspace.Reentrant,
			Holders: []keyspace.Holder{{ID: "lock_token:2b1f0c4e-7a6d-4f2b-9c3d-5e8f1a2b3c4d", Depth: 3}},
		},
			"SET {stock:7} lock_token:2b1f0c4e-7a6d-4f2b-9c3d-5e8f1a2b3c4d PX 30000",
			"SET {stock:7}:count:lock_token:2b1f0c4e-7a6d-4f2b-9c3d-5e8f1a2b3c4d 3 PX 30000")},
	}, opaqueToken(func(s string) bool {
		id, ok := strings.CutPrefix(s, goRedislockMark)
		return ok && isUUID(id)
	}), func(key, token string) []string { return []string{key + ":count:" + token} })
}

// countedMutex completes the format of a reentrant mutex: a string with a token, and beside it the
// keys of the count and, if there is one, of the last fencing token.
func countedMutex(f keyspace.Format, token func(string, time.Time) (keyspace.Holder, bool), beside func(key, token string) []string) keyspace.Format {
	f.Type = "string"
	f.Probe = stringLock{token: token, sure: fixed(keyspace.Certain)}.probe
	f.Related = func(e keyspace.Entry) []keyspace.Companion {
		return besideAll("string", func(key string) []string { return beside(key, e.Value) })(e)
	}
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		h, ok := token(e.Value, e.Now)
		if !ok || e.Truncated() {
			return keyspace.Lock{}, keyspace.No
		}
		l, keys := keyspace.Lock{Kind: keyspace.Reentrant}, beside(e.Key, e.Value)
		if depth, ok := count(e.Related[keys[0]].Value); ok {
			h.Depth = depth
		}
		l.Holders = []keyspace.Holder{h}
		if len(keys) > 1 {
			l.Fence, _ = strconv.ParseInt(e.Related[keys[1]].Value, 10, 64)
		}
		return l, keyspace.Certain
	}
	f.Actions = &keyspace.Actions{
		Keys:         func(l keyspace.Lock) []string { return []string{l.Key, beside(l.Key, l.Holders[0].ID)[0]} },
		Args:         fieldsAndCounts,
		ForceRelease: script("counted_release"),
		Extend:       script("counted_extend"),
	}
	return f
}

const goRedislockMark = "lock_token:"

func inBraces(key string) bool {
	return len(key) > 2 && key[0] == '{' && strings.IndexByte(key, '}') == len(key)-1
}

// goRedislockFair is the format of the library's fair lock: the holder's request ID
// under the name in braces, and a zset of all request IDs, also the holder's, in the
// order of arrival. Without the zset, the value does not identify a lock.
func goRedislockFair() keyspace.Format {
	queue := func(key string) string { return key + ":queue" }
	actions := tokenActions() // they also remove the holder from the queue
	actions.Keys = func(l keyspace.Lock) []string { return []string{l.Key, queue(l.Key)} }
	actions.ForceRelease = script("go_redislock_fair_release")
	return keyspace.Format{
		About: about("go-redislock-fair", "jefferyjob/go-redislock", "github.com/jefferyjob/go-redislock@v1.6.0: lua/fairLock.lua",
			"the name is in braces, and the value is one of the zset :queue beside it"),
		ShowsWaiters: true,
		Type:         "string",
		Match:        inBraces,
		Probe:        probeIf(keyspace.Certain, func(first string) bool { return first != "" }),
		Related:      beside("zset", queue),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			if e.Value == "" || e.Truncated() || e.Expires.IsZero() {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Fair, Holders: []keyspace.Holder{{ID: e.Value, Depth: 1}}}
			sure := keyspace.Possible
			for _, m := range e.Related[queue(e.Key)].Members {
				if m.Name == e.Value {
					sure = keyspace.Certain
					continue
				}
				l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name})
			}
			if sure == keyspace.Possible {
				l.Waiters = nil
			}
			return l, sure
		},
		Actions: actions,
		Samples: []keyspace.Sample{sample("with one in the queue", 30*time.Second, keyspace.Lock{
			Key: "{print:a4}", Kind: keyspace.Fair,
			Holders: []keyspace.Holder{{ID: "req-1", Depth: 1}},
			Waiters: []keyspace.Waiter{{ID: "req-2"}},
		},
			"SET {print:a4} req-1 PX 30000",
			"ZADD {print:a4}:queue 1 req-1 2 req-2")},
	}
}

// goRedislockRW is the format of the library's read/write lock: a hash with a mode, and
// either the readers' counts and their sum or the writer and its count.
func goRedislockRW() keyspace.Format {
	return keyspace.Format{
		About: about("go-redislock-rw", "jefferyjob/go-redislock", "github.com/jefferyjob/go-redislock@v1.6.0: lua/readLock.lua, lua/writeLock.lua",
			"the hash has the fields mode and rcount, or mode, writer and wcount"),
		Type:     "hash",
		Attempts: attempts(byScript(0, 1)),
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			return slices.Contains([]string{"mode", "rcount", "wcount", "writer"}, first) || strings.HasPrefix(first, rwReader)
		}),
		Decode: decodeGoRedislockRW,
		Actions: &keyspace.Actions{
			Keys: lockKey,
			Args: func(l keyspace.Lock) []string {
				seen := []string{strconv.Itoa(len(l.Holders))}
				for _, h := range l.Holders {
					seen = append(seen, string(h.Mode), h.ID, strconv.Itoa(h.Depth))
				}
				return seen
			},
			ForceRelease: script("go_redislock_rw_check", "go_redislock_rw_release"),
			Extend:       script("go_redislock_rw_check", "hold_extend"),
		},
		Samples: []keyspace.Sample{
			sample("two readers, one of them twice", 30*time.Second, keyspace.Lock{
				Key: "page:home", Kind: keyspace.RW,
				Holders: []keyspace.Holder{{ID: "lock_token:" + sampleUUID1, Depth: 1, Mode: keyspace.Read}, {ID: "lock_token:" + sampleUUID2, Depth: 2, Mode: keyspace.Read}},
			},
				"HSET page:home mode read rcount 3 r:lock_token:"+sampleUUID1+" 1 r:lock_token:"+sampleUUID2+" 2",
				"PEXPIRE page:home 30000"),
			sample("a writer", 30*time.Second, keyspace.Lock{
				Key: "page:about", Kind: keyspace.RW,
				Holders: []keyspace.Holder{{ID: "lock_token:" + sampleUUID1, Depth: 2, Mode: keyspace.Write}},
			},
				"HSET page:about mode write writer lock_token:"+sampleUUID1+" wcount 2",
				"PEXPIRE page:about 30000"),
		},
	}
}

const (
	sampleUUID1 = "0f6a3d52-8b1c-4e7f-a2d9-6c5b4a392817"
	sampleUUID2 = "d94c1e2b-6f7a-4b3c-8d5e-1f0a9b8c7d6e"
)

func decodeGoRedislockRW(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.RW}
	writer := keyspace.Holder{Mode: keyspace.Write}
	mode, counted := "", false
	for _, m := range e.Members {
		n, number := count(m.Value)
		reader, reads := strings.CutPrefix(m.Name, rwReader)
		switch {
		case m.Name == "mode":
			mode = m.Value
		case m.Name == "rcount":
			counted = counted || number
		case m.Name == "wcount" && number:
			writer.Depth = n
		case m.Name == "writer":
			writer.ID = m.Value
		case reads && number:
			l.Holders = append(l.Holders, keyspace.Holder{ID: reader, Depth: n, Mode: keyspace.Read})
		default:
			return keyspace.Lock{}, keyspace.No
		}
	}
	if writer.ID != "" && writer.Depth > 0 {
		l.Holders = append([]keyspace.Holder{writer}, l.Holders...)
	}
	switch {
	case len(l.Holders) == 0, e.Truncated():
		return keyspace.Lock{}, keyspace.No
	case mode == "write" && writer.Depth > 0, mode == "read" && counted:
		return l, keyspace.Certain
	default:
		return keyspace.Lock{}, keyspace.No
	}
}
