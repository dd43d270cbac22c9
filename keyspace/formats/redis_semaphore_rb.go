package formats

import (
	"strconv"
	"strings"

	"locktop/keyspace"
)

// redisSemaphoreRB is the format of Ruby's redis-semaphore, which sidekiq-unique-jobs
// before 7 uses: a hash of the tokens in use, each with the time of its acquire, and a
// list of the free tokens. Waiters block on the list. The keys have no TTL.
func redisSemaphoreRB() keyspace.Format {
	return keyspace.Format{
		Name:         "redis-semaphore-rb",
		NoTTL:        true,
		BlockingWait: true,
		Library:      "redis-semaphore (Ruby)",
		Source:       "github.com/dv/redis-semaphore: lib/redis/semaphore.rb",
		Signature:    "the name is SEMAPHORE:, a name and :GRABBED, and the hash holds tokens and times",
		Type:         "hash",
		Prefixes:     []string{rubySemaphore, uniqueJobs},
		Match:        ends(rubyGrabbed),
		Companion: func(key string) bool {
			if !strings.HasPrefix(key, rubySemaphore) {
				return false
			}
			for _, part := range [...]string{rubyAvailable, ":EXISTS", ":VERSION"} {
				if strings.HasSuffix(key, part) {
					return true
				}
			}
			return false
		},
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{{Key: strings.TrimSuffix(e.Key, rubyGrabbed) + rubyAvailable, Type: "list"}}
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Semaphore, Remaining: int(e.Related[strings.TrimSuffix(e.Key, rubyGrabbed)+rubyAvailable].Len)}
			for _, m := range e.Members {
				at, ok := atSeconds(m.Value)
				if !ok {
					return keyspace.Lock{}, keyspace.No
				}
				l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Count: 1, Since: plausibleStart(at, e.Now)})
			}
			l.Limit = l.Remaining + int(e.Len)
			return ifHeld(l, keyspace.Certain)
		},
		Actions: rubySemaphoreActions(),
		Samples: []keyspace.Sample{{
			Name: "one of three permits taken",
			Commands: [][]string{
				{"HSET", "SEMAPHORE:encoder:GRABBED", "1", "{f-7000}"},
				{"DEL", "SEMAPHORE:encoder:AVAILABLE"},
				{"RPUSH", "SEMAPHORE:encoder:AVAILABLE", "0", "2"},
				{"SET", "SEMAPHORE:encoder:EXISTS", "3"},
				{"SET", "SEMAPHORE:encoder:VERSION", "1"},
			},
			Want: keyspace.Lock{
				Key: "SEMAPHORE:encoder:GRABBED", Kind: keyspace.Semaphore, Confidence: keyspace.Certain, Remaining: 2, Limit: 3,
				Holders: []keyspace.Holder{{ID: "1", Count: 1}},
			},
		}},
	}
}

const (
	rubySemaphore = "SEMAPHORE:"
	rubyGrabbed   = ":GRABBED"
	rubyAvailable = ":AVAILABLE"
)

// rubySemaphoreActions put tokens back on the list. The time of the acquire
// distinguishes two holds of one token.
func rubySemaphoreActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			return []string{l.Key, strings.TrimSuffix(l.Key, rubyGrabbed) + rubyAvailable}
		},
		Args: func(l keyspace.Lock) []string {
			var seen []string
			for _, h := range l.Holders {
				since := "0"
				if !h.Since.IsZero() {
					since = strconv.FormatInt(h.Since.UnixMilli(), 10)
				}
				seen = append(seen, h.ID, since)
			}
			return seen
		},
		ForceRelease: script("ruby_semaphore_release"),
		WakeHint:     "take a token from SEMAPHORE:{name}:AVAILABLE",
	}
}
