package formats

import (
	"strings"

	"locktop/keyspace"
)

// sidekiqUniqueJobs is the format of Ruby's sidekiq-unique-jobs from 7 on: a hash of the
// jobs that hold the lock, each with the time of its acquire, and lists of the waiting
// jobs. The key expires only if the job asks for it.
func sidekiqUniqueJobs() keyspace.Format {
	return keyspace.Format{
		Name:         "sidekiq-unique-jobs",
		ShowsWaiters: true,
		Library:      "sidekiq-unique-jobs",
		Source:       "github.com/mhenrixon/sidekiq-unique-jobs: lib/sidekiq_unique_jobs/lua/lock.lua",
		Signature:    "the name is uniquejobs:, a digest and :LOCKED",
		Type:         "hash",
		Prefixes:     []string{uniqueJobs},
		Match:        ends(uniqueLocked),
		Companion: func(key string) bool {
			return strings.HasPrefix(key, uniqueJobs) && !strings.HasSuffix(key, uniqueLocked) && !strings.HasSuffix(key, rubyGrabbed)
		},
		Related: func(e keyspace.Entry) []keyspace.Companion {
			return []keyspace.Companion{{Key: uniqueQueue(e.Key), Type: "list"}}
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Mutex}
			for _, m := range e.Members {
				at, ok := atSeconds(m.Value)
				if !ok && !strings.HasPrefix(m.Value, "{") { // version 9 stores an object
					return keyspace.Lock{}, keyspace.No
				}
				h := keyspace.Holder{ID: m.Name, Count: 1}
				if ok {
					h.Since = plausibleStart(at, e.Now)
				}
				l.Holders = append(l.Holders, h)
			}
			if len(l.Holders) > 1 {
				l.Kind = keyspace.Semaphore
			}
			for _, m := range e.Related[uniqueQueue(e.Key)].Members {
				if len(m.Name) > 1 { // "1" is a signal
					l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name})
				}
			}
			return ifHeld(l, keyspace.Certain)
		},
		Actions: sidekiqActions(),
		Samples: []keyspace.Sample{{
			Name: "a job that runs, and one that waits",
			Commands: [][]string{
				{"SET", uniqueJobs + sampleHex1, "4f2b8c6a1d4e9a7b9c5d8e0f"},
				{"HSET", uniqueJobs + sampleHex1 + uniqueLocked, "4f2b8c6a1d4e9a7b9c5d8e0f", "{f-12000}4567"},
				{"DEL", uniqueJobs + sampleHex1 + ":QUEUED"},
				{"RPUSH", uniqueJobs + sampleHex1 + ":QUEUED", "9c5d8e0f4f2b8c6a1d4e9a7b"},
				{"ZADD", uniqueJobs + "digests", "1763651000.5", uniqueJobs + sampleHex1},
			},
			Want: keyspace.Lock{
				Key: uniqueJobs + sampleHex1 + uniqueLocked, Kind: keyspace.Mutex, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: "4f2b8c6a1d4e9a7b9c5d8e0f", Count: 1}},
				Waiters: []keyspace.Waiter{{ID: "9c5d8e0f4f2b8c6a1d4e9a7b"}},
			},
		}},
	}
}

const (
	uniqueJobs   = "uniquejobs:"
	uniqueLocked = ":LOCKED"
)

func uniqueQueue(key string) string { return strings.TrimSuffix(key, uniqueLocked) + ":QUEUED" }

// sidekiqActions end holds of jobs. The end of the last hold deletes all keys of the
// digest.
func sidekiqActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			digest := strings.TrimSuffix(l.Key, uniqueLocked)
			return []string{l.Key, uniqueQueue(l.Key), digest, digest + ":PRIMED", digest + ":INFO", uniqueJobs + "digests"}
		},
		Args:         holderIDs,
		ForceRelease: script("sidekiq_release"),
		WakeHint:     "take an element from uniquejobs:{digest}:QUEUED",
	}
}
