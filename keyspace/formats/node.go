package formats

import (
	"fmt"
	"strings"
	"time"

	"locktop/keyspace"
)

// bullmq is the format of the job locks of BullMQ and Bull: the worker's UUID, in BullMQ with the number of the
// current job. Other locks of a part of an object look the same: the hash of the job or of its queue is the proof.
func bullmq() keyspace.Format {
	r := opaque(func(v string) bool {
		t := uuidToken(v, time.Time{})
		return t.known && len(v) >= 36 && t.label == "" && !t.distinctive
	}, needsTTL(keyspace.Certain))
	return r.format(keyspace.Format{
		About: about("bullmq", "BullMQ, Bull", "github.com/taskforcesh/bullmq@v6.2.0: src/commands/includes/prepareJobForProcessing.lua; github.com/OptimalBits/bull@v4.15.0: lib/commands/takeLock-1.lua",
			"the name is prefix:queue:job:lock, the value is a worker's UUID, and the hash of the job or of its queue exists"),
		Match:     func(key string) bool { return strings.HasSuffix(key, ":lock") && strings.Count(key, ":") >= 3 },
		Companion: ends(":stalled-check"), // a timer of the queue that looks like a lock
		Related: besideAll("hash", func(key string) []string {
			job := strings.TrimSuffix(key, ":lock")
			return []string{job, job[:strings.LastIndexByte(job, ':')] + ":meta"}
		}),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			proof := 0
			for _, beside := range e.Related {
				for _, m := range beside.Members {
					proof += map[string]int{"data": 1, "opts": 1, "timestamp": 1, "opts.maxLenEvents": 3}[m.Name]
				}
			}
			switch {
			case proof >= 3:
				return l, sure
			case strings.HasPrefix(e.Key, "bull:"):
				return l, oneLess(sure)
			}
			return keyspace.Lock{}, keyspace.No
		},
	})
}

// Key prefixes of simple-redis-mutex, and its channel for releases.
const (
	simpleMutexPrefix  = "@simple-redis-mutex:lock-"
	simpleMutexFences  = "@simple-redis-mutex:fencing-tokens"
	simpleMutexChannel = "@simple-redis-mutex:locks-releases"
)

// simpleRedisMutex is the format of npm's simple-redis-mutex: a random number in
// JavaScript's notation or, in old versions, 100 hexadecimal digits. One fence counter
// serves all locks. The counter and the tickets of old versions remain when no lock is
// held.
func simpleRedisMutex() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return strings.HasPrefix(v, "0.") && only(v[2:], "-") || isHex(v, 100) }), sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		About: about("simple-redis-mutex", "simple-redis-mutex", "github.com/AmrSaber/simple-redis-mutex@v3.0.0: src/index.ts",
			"the name begins with "+simpleMutexPrefix+", and the value is a random number"),
		Prefixes: []string{simpleMutexPrefix},
		Companion: func(key string) bool {
			ticket := strings.HasSuffix(key, ":next-id") || strings.HasSuffix(key, ":last-out-id")
			return key == simpleMutexFences || ticket && strings.HasPrefix(key, simpleMutexPrefix)
		},
		Actions: announcing(tokenActions(), "receive a message on "+simpleMutexChannel, func(l keyspace.Lock) []string {
			return []string{simpleMutexChannel, fmt.Sprintf(`{ "key": "%s", "value": "%s" }`, l.Key, l.Holders[0].ID)}
		}),
	})
}

// redisSemaphore is the format of Semaphore in node's redis-semaphore: a zset of UUIDs with
// the time of their last refresh. A permit ends when the timeout has passed without a
// refresh. Each refresh sets the timeout as the TTL of the key.
func redisSemaphore() keyspace.Format {
	return keyspace.Format{
		About: about("redis-semaphore", "redis-semaphore, effect-distributed-lock", "github.com/swarthy/redis-semaphore@v5.7.0: src/RedisSemaphore.ts; github.com/ethanniser/effect-distributed-lock@5b7054ffef: src/RedisBacking.ts",
			"the zset holds UUIDs, each with the time of its last refresh"),
		Attempts: attempts(byScript(1, 0, 2, 3)),
		Type:     "zset",
		Probe: func(key, first string) keyspace.Confidence {
			if !semaphoreMember(first) {
				return keyspace.No
			}
			return byNameAlone(key)
		},
		Decode: decodeRedisSemaphore,
		// The permits of effect-distributed-lock look the same; for others, its channel has no subscribers.
		Actions: announcing(memberActions(inZset, ""), "poll; those of effect-distributed-lock receive a message on {key}:released",
			func(l keyspace.Lock) []string { return []string{l.Key + ":released"} }),
	}
}

// byNameAlone returns the confidence for a key of a structure that other things have, too, such
// as queues and limiters.
func byNameAlone(key string) keyspace.Confidence {
	switch {
	case looksLikeLock(key):
		return keyspace.Likely
	case looksLikeOther(key):
		return keyspace.No
	default:
		return keyspace.Possible
	}
}

// semaphoreMember reports whether s is a UUID, or a UUID with the number of a permit.
func semaphoreMember(s string) bool {
	id, number, several := strings.Cut(s, "_")
	return isUUID(id) && (!several || digits(number, 1, 6))
}

func decodeRedisSemaphore(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if e.Expires.IsZero() {
		return keyspace.Lock{}, keyspace.No
	}
	var last time.Time
	for _, m := range e.Members {
		at, ok := atScore(m.Score)
		if !ok || !semaphoreMember(m.Name) || at.After(e.Now.Add(time.Minute)) {
			return keyspace.Lock{}, keyspace.No
		}
		last = keyspace.Later(last, at)
	}
	l := keyspace.Lock{Kind: keyspace.Semaphore}
	timeout := e.Expires.Sub(last)
	for _, m := range e.Members {
		at, _ := atScore(m.Score)
		if until := at.Add(timeout); until.After(e.Now) {
			l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Depth: 1, Expires: until})
		}
	}
	return ifHeld(l, byNameAlone(e.Key))
}
