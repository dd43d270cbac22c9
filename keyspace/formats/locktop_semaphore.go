package formats

import (
	"math"
	"strings"
	"time"

	"locktop/keyspace"
)

// locktopSemaphore is the format of the semaphore in package lock: a zset of the permits
// with their deadlines, and of the limit with the score +inf. A permit ends at its
// deadline, but its element may remain.
func locktopSemaphore() keyspace.Format {
	return keyspace.Format{
		About: about("locktop-semaphore", "locktop", "package locktop/lock: Semaphore",
			"the zset has locktop-limit:<n>, and tokens with a label, a tilde, and a UUID that contains the time"),
		ShowsWaiters: true,
		Attempts:     attempts(byScript(0, 1, 2)),
		Type:         "zset",
		Match: func(key string) bool { // not the companions of a lock
			return !strings.HasSuffix(key, ":queue") && !strings.HasSuffix(key, ":alive") && !strings.HasSuffix(key, ":waiters")
		},
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			_, isToken := locktopHolder(first, time.Time{})
			_, isLimit := locktopLimit(first)
			return isToken || isLimit
		}),
		Companion: func(key string) bool { return isLocktopCompanion(key, "limit") },
		Related:   locktopBeside("limit", "waiters"),
		Decode:    decodeLocktopSemaphore,
		Actions: &keyspace.Actions{
			Keys:         lockKey,
			Args:         func(l keyspace.Lock) []string { return append([]string{locktopName(l.Key, "free")}, holderIDs(l)...) },
			ForceRelease: script("locktop_semaphore_check", "locktop_semaphore_release"),
			Extend:       script("locktop_semaphore_check", "locktop_semaphore_extend"),
			WakeHint:     "receive free or more on {key}:free:<process>, by the order of {key}:waiters, or the key on {key}:free",
		},
		Samples: locktopSemaphoreSamples(),
	}
}

// locktopLimit parses the element with the limit of a semaphore.
func locktopLimit(element string) (int, bool) {
	n, ok := strings.CutPrefix(element, "locktop-limit:")
	if !ok {
		return 0, false
	}
	return count(n)
}

func decodeLocktopSemaphore(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	l := keyspace.Lock{Kind: keyspace.Semaphore}
	limited := e.Truncated() // else the limit must be the last element
	if n, ok := count(e.Related[locktopName(e.Key, "limit")].Value); ok {
		l.Limit = n
	}
	for _, m := range e.Members {
		if n, ok := locktopLimit(m.Name); ok && math.IsInf(m.Score, 1) {
			l.Limit, limited = n, true
			continue
		}
		h, ours := locktopHolder(m.Name, e.Now)
		deadline, timed := atScore(m.Score)
		if !ours || !timed {
			return keyspace.Lock{}, keyspace.No
		}
		if h.Expires = deadline; deadline.After(e.Now) {
			l.Holders = append(l.Holders, h)
			l.Expires = deadline // they are in the order of their deadlines
		}
	}
	if !limited {
		return keyspace.Lock{}, keyspace.No
	}
	if l.Limit > 0 && !e.Truncated() {
		l.Remaining = max(l.Limit-len(l.Holders), 0)
	}
	l.Waiters = locktopProcesses(e)
	return ifHeld(l, keyspace.Certain)
}

func locktopSemaphoreSamples() []keyspace.Sample {
	const (
		a = "web-1:31~{v7-9000/55}"
		b = "web-2:12~{v7-5000/56}"
		c = "web-3:77~{v7-80000/57}"
	)
	return []keyspace.Sample{
		sample("two of three permits in use, one of a holder that died, and a process waits", 25*time.Second, keyspace.Lock{
			Key: "gpu:0", Kind: keyspace.Semaphore, Limit: 3, Remaining: 1,
			Holders: []keyspace.Holder{{ID: a, Label: "web-1:31", Depth: 1}, {ID: b, Label: "web-2:12", Depth: 1}},
			Waiters: []keyspace.Waiter{{ID: "api-3:4~6f1c2a3b4d5e"}},
		},
			"DEL gpu:0 {gpu:0}:waiters",
			"ZADD gpu:0 {ms-50000} "+c+" {ms+21000} "+a+" {ms+25000} "+b+" +inf locktop-limit:3",
			"PEXPIRE gpu:0 25000",
			"ZADD {gpu:0}:waiters {ms-3000}000 api-3:4~6f1c2a3b4d5e",
			"PEXPIRE {gpu:0}:waiters 25000"),
		sample("more permits in use than the limit, which was lowered", 25*time.Second, keyspace.Lock{
			Key: "{gpu}:1", Kind: keyspace.Semaphore, Limit: 1,
			Holders: []keyspace.Holder{{ID: a, Label: "web-1:31", Depth: 1}, {ID: b, Label: "web-2:12", Depth: 1}},
		},
			"DEL {gpu}:1",
			"ZADD {gpu}:1 {ms+21000} "+a+" {ms+25000} "+b+" +inf locktop-limit:1",
			"PEXPIRE {gpu}:1 25000",
			"SET {gpu}:1::limit 1"),
	}
}
