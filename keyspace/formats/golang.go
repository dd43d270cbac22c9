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
			l.Fence = fenceIn(e, keys[1])
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
				return eachHolder(l, func(h keyspace.Holder) []string { return []string{string(h.Mode), h.ID, strconv.Itoa(h.Depth)} })
			},
			ForceRelease: script("go_redislock_rw_check", "go_redislock_rw_release"),
			Extend:       script("go_redislock_rw_check", "hold_extend"),
		},
	}
}

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

// rueidis returns the common format: the same 24 raw bytes in several keys on one server
// or cluster. The holder has the majority of the keys. The first existing key represents
// the lock.
func rueidis(prefix majorityPrefix, name, library, source string) keyspace.Format {
	return keyspace.Format{
		About: about(name, library, source,
			"the name begins with "+string(prefix)+" and a number, and the value is 24 raw bytes"),
		Attempts: stringAttempts(),
		Type:     "string",
		Prefixes: []string{string(prefix)},
		Match: func(key string) bool {
			_, _, ok := prefix.name(key)
			return ok
		},
		Probe:   probeIf(keyspace.Certain, func(first string) bool { return isRaw(first, 24) }),
		Related: besideAll("string", prefix.others),
		Decode:  prefix.decode,
		Actions: prefix.actions(),
	}
}

const rueidisKeys = 5 // for a majority of up to three; the default is two of three

// majorityPrefix is the prefix of all keys of these locks.
type majorityPrefix string

func (p majorityPrefix) key(i int, name string) string {
	return string(p) + strconv.Itoa(i) + ":" + name
}

// name returns the number in a key and the name of the lock.
func (p majorityPrefix) name(key string) (i int, name string, ok bool) {
	rest, ours := strings.CutPrefix(key, string(p))
	number, name, named := strings.Cut(rest, ":")
	if !ours || !named || name == "" || !digits(number, 1, 1) {
		return 0, "", false
	}
	return int(number[0] - '0'), name, true
}

// others returns the other keys of the lock of a key.
func (p majorityPrefix) others(key string) (keys []string) {
	own, name, _ := p.name(key)
	for i := range rueidisKeys {
		if i != own {
			keys = append(keys, p.key(i, name))
		}
	}
	return keys
}

func (p majorityPrefix) decode(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	own, name, ok := p.name(e.Key)
	if !ok || !isRaw(e.Value, 24) {
		return keyspace.Lock{}, keyspace.No
	}
	votes := map[string]int{e.Value: 1}
	holder, keys := e.Value, 1
	for i := range rueidisKeys {
		other, there := e.Related[p.key(i, name)]
		switch {
		case !there || i == own:
			continue
		case i < own:
			return keyspace.Lock{}, keyspace.No // the other key represents the lock
		}
		keys++
		votes[other.Value]++
		if votes[other.Value] > votes[holder] {
			holder = other.Value
		}
	}
	l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: holder, Depth: 1}}}
	if keys > 1 {
		l.Evidence = []string{strconv.Itoa(votes[holder]) + " of its " + strconv.Itoa(keys) + " keys have the same value"}
	}
	return l, keyspace.Certain
}

func (p majorityPrefix) actions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return append([]string{l.Key}, p.others(l.Key)...)
		},
		Args:         func(l keyspace.Lock) []string { return []string{l.Holders[0].ID} },
		ForceRelease: script("rueidislock_release"),
		Extend:       script("rueidislock_extend"),
		WakeHint:     "are notified by client tracking, like the holder",
	}
}

// lynx is the format of Go's lynx-redis-lock: the owner, the count, and the last fencing token,
// which stays for a week.
func lynx() keyspace.Format {
	const prefix = "{lynx:lock:"
	return countedMutex(keyspace.Format{
		About: about("lynx", "lynx-redis-lock", "github.com/go-lynx/lynx-redis-lock@v1.6.3: scripts.go",
			"the name begins with "+prefix+" and ends in }:owner"),
		Attempts: attempts(byScript(0, 1, 2)),
		Prefixes: []string{prefix},
		Match:    ends("}:owner"),
	}, lynxOwner, func(key, _ string) []string {
		name := strings.TrimSuffix(key, "owner")
		return []string{name + "count", name + "token"}
	})
}

// lynxOwner reads the owner: host-address-process-number-random.
func lynxOwner(value string, _ time.Time) (keyspace.Holder, bool) {
	process, _, ok := cutLast(value, "-")
	process, _, _ = cutLast(process, "-")
	return keyspace.Holder{ID: value, Label: process, Depth: 1}, ok
}
