package formats

import (
	"fmt"
	"strconv"
	"time"

	"locktop/keyspace"
)

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
		Samples: []keyspace.Sample{sample("three permits left", 0,
			keyspace.Lock{Key: "desks", Kind: keyspace.Semaphore, Confidence: keyspace.Possible, Remaining: 3},
			"SET desks 3")},
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
		Samples: []keyspace.Sample{sample("two permits are in use", dramatiqTTL, keyspace.Lock{
			Key: "pdf-workers", Kind: keyspace.Semaphore, Confidence: keyspace.Possible,
			Evidence: []string{"2 permits would be in use"},
			Holders:  []keyspace.Holder{{ID: "permits", Label: "permits", Depth: 2}},
		},
			"SET pdf-workers 2 PX 900000")},
	}
}
