package formats

import (
	"encoding/binary"
	"math"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// suo is the format of Ruby's suo: a MessagePack array of holders, each the time of its
// acquire and a token. While held, the key has no TTL.
func suo() keyspace.Format {
	return keyspace.Format{
		About: about("suo", "suo", "github.com/nickelser/suo@v0.4.0: lib/suo/client/redis.rb",
			"the value is a MessagePack array of times and tokens"),
		NoTTL: true,
		Type:  "string",
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			return len(first) > 3 && first[0]&0xf0 == suoArray && first[1:3] == suoPair
		}),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Mutex}
			if e.Truncated() || len(e.Value) < 2 || e.Value[0]&0xf0 != suoArray || e.Value[0] == suoArray {
				return keyspace.Lock{}, keyspace.No
			}
			rest := e.Value[1:]
			for range e.Value[0] & 0x0f {
				h, after, ok := suoHolder(rest, e.Now)
				if !ok {
					return keyspace.Lock{}, keyspace.No
				}
				l.Holders, rest = append(l.Holders, h), after
			}
			if rest != "" {
				return keyspace.Lock{}, keyspace.No
			}
			if len(l.Holders) > 1 {
				l.Kind = keyspace.Semaphore
			}
			return l, keyspace.Certain
		},
	}
}

// First bytes in MessagePack of a short array, of a pair that begins with a float, and
// of a short string.
const (
	suoArray  = 0x90
	suoPair   = "\x92\xcb"
	suoString = 0xa0
)

// suoHolder parses a pair of a time and a token, and returns the rest.
func suoHolder(s string, now time.Time) (h keyspace.Holder, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, suoPair)
	if !ok || len(s) < 9 || s[8]&0xe0 != suoString {
		return h, "", false
	}
	seconds := math.Float64frombits(binary.BigEndian.Uint64([]byte(s[:8])))
	n := int(s[8] & 0x1f)
	if !(seconds > 1e9 && seconds < 1e10) || n == 0 || len(s) < 9+n {
		return h, "", false
	}
	at := time.UnixMilli(int64(seconds * 1000))
	return keyspace.Holder{ID: s[9 : 9+n], Depth: 1, Since: plausibleStart(at, now)}, s[9+n:], true
}

// redisSemaphoreRB is the format of Ruby's redis-semaphore, which sidekiq-unique-jobs
// before 7 uses: a hash of the tokens in use, each with the time of its acquire, and a
// list of the free tokens. Waiters block on the list. The keys have no TTL.
func redisSemaphoreRB() keyspace.Format {
	taken := decodeMembers(keyspace.Semaphore, keyspace.Certain, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
		at, ok := atSeconds(m.Value)
		return keyspace.Holder{ID: m.Name, Depth: 1, Since: plausibleStart(at, now)}, ok
	})
	return keyspace.Format{
		About: about("redis-semaphore-rb", "redis-semaphore (Ruby)", "github.com/dv/redis-semaphore@v0.3.1: lib/redis/semaphore.rb",
			"the name is SEMAPHORE: or uniquejobs:, a name and :GRABBED, and the hash holds tokens and times"),
		NoTTL:        true,
		BlockingWait: true,
		Type:         "hash",
		Prefixes:     []string{rubySemaphore, uniqueJobs},
		Match:        ends(rubyGrabbed),
		Companion: func(key string) bool {
			return strings.HasPrefix(key, rubySemaphore) &&
				(strings.HasSuffix(key, rubyAvailable) || strings.HasSuffix(key, ":EXISTS") || strings.HasSuffix(key, ":VERSION"))
		},
		Related: beside("list", rubyFree),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := taken(e)
			l.Remaining = int(e.Related[rubyFree(e.Key)].Len)
			l.Limit = l.Remaining + int(e.Len)
			return l, sure
		},
		Actions: &keyspace.Actions{ // the time of the acquire distinguishes two holds of one token
			Keys: func(l keyspace.Lock) []string { return []string{l.Key, rubyFree(l.Key)} },
			Args: func(l keyspace.Lock) (seen []string) {
				for _, h := range l.Holders {
					seen = append(seen, h.ID, strconv.FormatInt(max(h.Since.UnixMilli(), 0), 10))
				}
				return seen
			},
			ForceRelease: script("ruby_semaphore_release"),
			WakeHint:     "take a token from SEMAPHORE:{name}:AVAILABLE",
		},
	}
}

const (
	rubySemaphore = "SEMAPHORE:"
	rubyGrabbed   = ":GRABBED"
	rubyAvailable = ":AVAILABLE"
)

// rubyFree returns the list of the free tokens.
func rubyFree(key string) string { return strings.TrimSuffix(key, rubyGrabbed) + rubyAvailable }

// sidekiqUniqueJobs is the format of Ruby's sidekiq-unique-jobs from 7 on: a hash of the
// jobs that hold the lock, each with the time of its acquire, and lists of the waiting
// jobs. The key expires only if the job asks for it.
func sidekiqUniqueJobs() keyspace.Format {
	running := decodeMembers(keyspace.Mutex, keyspace.Certain, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
		at, ok := atSeconds(m.Value)
		return keyspace.Holder{ID: m.Name, Depth: 1, Since: plausibleStart(at, now)}, ok || strings.HasPrefix(m.Value, "{") // version 9 stores an object
	})
	return keyspace.Format{
		About: about("sidekiq-unique-jobs", "sidekiq-unique-jobs", "github.com/mhenrixon/sidekiq-unique-jobs@v8.1.0: lib/sidekiq_unique_jobs/lua/lock.lua",
			"the name is uniquejobs:, a digest and :LOCKED"),
		ShowsWaiters: true,
		Type:         "hash",
		Prefixes:     []string{uniqueJobs},
		Match:        ends(uniqueLocked),
		Companion: func(key string) bool {
			return strings.HasPrefix(key, uniqueJobs) && !strings.HasSuffix(key, uniqueLocked) && !strings.HasSuffix(key, rubyGrabbed)
		},
		Related: beside("list", uniqueQueue),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := running(e)
			if len(l.Holders) > 1 {
				l.Kind = keyspace.Semaphore
			}
			for _, m := range e.Related[uniqueQueue(e.Key)].Members {
				if len(m.Name) > 1 { // "1" is a signal
					l.Waiters = append(l.Waiters, keyspace.Waiter{ID: m.Name})
				}
			}
			return l, sure
		},
		Actions: &keyspace.Actions{ // the end of the last hold deletes all keys of the digest
			Keys: func(l keyspace.Lock) []string {
				digest := strings.TrimSuffix(l.Key, uniqueLocked)
				return []string{l.Key, uniqueQueue(l.Key), digest, digest + ":PRIMED", digest + ":INFO", uniqueJobs + "digests"}
			},
			Args:         holderIDs,
			ForceRelease: script("sidekiq_release"),
			WakeHint:     "take an element from uniquejobs:{digest}:QUEUED",
		},
	}
}

const (
	uniqueJobs   = "uniquejobs:"
	uniqueLocked = ":LOCKED"
)

func uniqueQueue(key string) string { return strings.TrimSuffix(key, uniqueLocked) + ":QUEUED" }

// mlanett is the format of Ruby's redis-lock: the owner, host and process, in one key
// and the deadline in another.
func mlanett() keyspace.Format {
	r := stringLock{token: hostAndProcess(":"), sure: fixed(keyspace.Certain)}
	actions := valueActions()
	actions.Keys = func(l keyspace.Lock) []string { return []string{l.Key, mlanettExpiry(l.Key)} }
	return r.format(keyspace.Format{
		About: about("mlanett", "redis-lock (Ruby)", "github.com/mlanett/redis-lock@08f1bb58ee: lib/redis-lock.rb",
			"the name begins with lock:owner:, and the value is host:process"),
		Prefixes:  []string{mlanettOwner},
		Companion: begins(mlanettExpire),
		Related:   beside("string", mlanettExpiry),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if until, ok := atSeconds(e.Related[mlanettExpiry(e.Key)].Value); ok && sure > keyspace.No && e.Expires.IsZero() {
				l.Expires = until
				l.Evidence = []string{"it has no TTL: a second key has its deadline"}
				return l, sure
			}
			return l, oneLess(sure)
		},
		Actions: actions,
	})
}

const (
	mlanettOwner  = "lock:owner:"
	mlanettExpire = "lock:expire:"
)

// mlanettExpiry returns the key of a lock's deadline.
func mlanettExpiry(key string) string { return mlanettExpire + strings.TrimPrefix(key, mlanettOwner) }

// resqueLock is the format of Ruby's resque-lock-timeout: the deadline in seconds, or
// "true", under the class and the arguments of a job, without a TTL.
func resqueLock() keyspace.Format {
	f := endsByValue(certainWith("resque:"), func(s string) (time.Time, bool) {
		if s == "true" {
			return time.Time{}, true
		}
		return atSeconds(s)
	})
	f.About = about("resque-lock-timeout", "resque-lock-timeout", "github.com/lantins/resque-lock-timeout@207336d463: lib/resque/plugins/lock_timeout.rb",
		"the name is lock: and a job's class, and the value a time in seconds, or true")
	f.Prefixes = []string{"lock:", "resque:lock:", "loner:lock:", "resque:loner:lock:"}
	f.Match = func(key string) bool {
		_, rest, _ := strings.Cut(key, "lock:")
		class, _, _ := strings.Cut(rest, ":")
		return class != "" && 'A' <= class[0] && class[0] <= 'Z' && only(class, "_")
	}
	return f
}

// whyByValue is the evidence of a lock whose value is its deadline.
const whyByValue = "it has no TTL: its value is its deadline"

// endsUnder returns the format of such a lock under the names with a prefix.
func endsUnder(prefix string, sure keyspace.Confidence, read func(string) (time.Time, bool), about keyspace.About) keyspace.Format {
	f := endsByValue(fixed(sure), read)
	f.About, f.Prefixes = about, []string{prefix}
	return f
}

// endsByValue returns the format of a lock whose value is its deadline. The value
// counts only if the key has no TTL, or one that is too late.
func endsByValue(sure func(string, bool) keyspace.Confidence, read func(string) (time.Time, bool)) keyspace.Format {
	r := stringLock{sure: sure, token: opaqueToken(func(v string) bool { _, ok := read(v); return ok })}
	return r.format(keyspace.Format{
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if sure > keyspace.No && (e.Expires.IsZero() || e.Expires.Sub(e.Now) > 20*365*24*time.Hour) { // machinery takes a time for a TTL
				if l.Expires, _ = read(e.Value); l.Expires.Sub(e.Now) > 366*24*time.Hour { // the default of ServiceStack.Redis is a year
					return keyspace.Lock{}, keyspace.No
				}
				l.Evidence = []string{whyByValue}
			}
			return l, sure
		},
		Actions:  valueActions(),
		Attempts: attempts(keyspace.Attempt{Command: "setnx", Token: 1}, keyspace.Attempt{Command: "getset", Token: 1}, bySetNX),
	})
}

// discourse is the format of Discourse's DistributedMutex: the deadline in seconds, in
// a key that expires 1 s later.
func discourse() keyspace.Format {
	r := opaque(func(v string) bool { return digits(v, 10, 10) }, anyKey(keyspace.Possible))
	return r.format(keyspace.Format{
		About: about("discourse", "Discourse", "github.com/discourse/discourse@09a28235cd: lib/distributed_mutex.rb",
			"the value is a time in seconds, just before the key expires"),
		Attempts: attempts(bySetNX),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			at, ok := atSeconds(e.Value)
			if !ok || e.Expires.IsZero() || e.Expires.Sub(at).Abs() > 3*time.Second {
				return keyspace.Lock{}, keyspace.No
			}
			return r.decode(e)
		},
		Actions: valueActions(),
	})
}
