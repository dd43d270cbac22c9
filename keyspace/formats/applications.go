package formats

import (
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// applications lists the formats of applications and of job runners, of one string each.
func applications() []keyspace.Format {
	flag := func(v string) stringLock {
		return opaque(func(value string) bool { return value == v }, fixed(keyspace.Certain))
	}
	loner := unchecked(flag("1").under("loners:queue: solo:queue:", about("resque-loner", "resque-loner, resque_solo",
		"github.com/resque/resque-loner@06c125b4fa: lib/resque-loner/helpers.rb; github.com/neighborland/resque_solo@v0.5.0: lib/resque_solo/queue.rb",
		"the name is loners:queue: or solo:queue:, a queue, :job: and a digest, and the value is 1")))
	loner.NoTTL = true
	return []keyspace.Format{
		loner,
		unchecked(flag("b:1;").under("framework/schedule- framework/command-", about("laravel-schedule", "Laravel's scheduler",
			"github.com/laravel/framework@4b65349007: src/Illuminate/Console/Scheduling/CacheEventMutex.php, src/Illuminate/Console/Scheduling/CacheSchedulingMutex.php",
			"the name has framework/schedule- or framework/command-, and the value is true as PHP writes it"))),
		unchecked(flag("1").where(ends("horizon:metrics:snapshot"), about("horizon", "Laravel Horizon", "github.com/laravel/horizon@v5.29.1: src/Lock.php, src/Console/SnapshotCommand.php",
			"the name ends in horizon:metrics:snapshot, and the value is 1"))),
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).under("framework/crontab- hyperf/crontab-", about("hyperf-crontab", "Hyperf's crontab",
			"github.com/hyperf/hyperf@0978f52f50: src/crontab/src/Mutex/RedisTaskMutex.php, src/crontab/src/Mutex/RedisServerMutex.php",
			"the name has framework/crontab- or hyperf/crontab-"))),
		unchecked(flag("1").where(func(key string) bool { return strings.HasSuffix(key, "}\n") && strings.Contains(key, "unique:") },
			about("gocraft-work", "gocraft/work", "github.com/gocraft/work@0861e4f8b5: redis.go", "the name has unique:, a job and its arguments, and the value is 1"))),
		unchecked(flag("1").where(func(key string) bool {
			return strings.Contains(key, "saq:") && (strings.HasSuffix(key, ":sweep") || strings.HasSuffix(key, ":schedule"))
		}, about("saq", "saq", "github.com/tobymao/saq@v0.26.3: saq/queue/redis.py", "the name is saq:, a queue and :sweep or :schedule, and the value is 1"))),
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).where(ends("_#RL#"), about("jetcache", "JetCache",
			"github.com/alibaba/jetcache@v2.7.8: jetcache-core/src/main/java/com/alicp/jetcache/RefreshCache.java, jetcache-core/src/main/java/com/alicp/jetcache/Cache.java",
			"the name is a cached value and _#RL#"))),
		opaque(func(v string) bool { return isHex(v, 12) }, needsTTL(keyspace.Certain)).under("QueuedTrackingLock", about("matomo", "Matomo's QueuedTracking",
			"github.com/matomo-org/plugin-QueuedTracking@0a2c29f04f: Queue/Lock.php", "the name begins with QueuedTrackingLock, and the value is 12 hexadecimal digits")),
		stringLock{token: hostAndProcess(":"), sure: needsTTL(keyspace.Certain)}.under("SINGLE_BEAT_", about("single-beat", "single-beat",
			"github.com/ybrs/single-beat@02bca99b0b: singlebeat/beat.py", "the name begins with SINGLE_BEAT_, and the value is host:process")),
		opaque(func(v string) bool { return !timeIn(v).IsZero() }, needsTTL(keyspace.Certain)).under("tw:scheduler:", about("sentry-scheduler", "Sentry's scheduler of tasks",
			"github.com/getsentry/sentry@2f92e55edd: src/sentry/taskworker/scheduler/runner.py", "the name begins with tw:scheduler:, and the value is a time")),
		unchecked(opaque(func(v string) bool { return strings.HasPrefix(v, `{"status":"IN_PROGRESS"`) }, needsTTL(keyspace.Certain)).under("node-idempotency:",
			about("node-idempotency", "node-idempotency", "github.com/mahendraHegde/node-idempotency@148eb76b9d: packages/core/src/idempotency.ts",
				"the name begins with node-idempotency:, and the value has the status IN_PROGRESS"))),
		opaque(func(v string) bool { return isHex(v, 24) }, needsTTL(keyspace.Likely)).where(hasDigest("unique:", 40),
			about("sidekiq-enterprise", "Sidekiq Enterprise, as its users see it (sidekiq#5002)", "source not public",
				"the name is unique: and a digest, and the value is the ID of a job")),
		unchecked(flag("").where(ends("~lock"), about("spring-cache", "Spring's cache", "github.com/spring-projects/spring-data-redis@15f65f6997: src/main/java/org/springframework/data/redis/cache/DefaultRedisCacheWriter.java",
			"the name is a cache and ~lock, and the value is empty"))),
		unchecked(stringLock{token: written("", `^(?s:(?:\[pid )?(\d{1,10})\] (.*?):.*)$`, "$2:$1"), sure: needsTTL(keyspace.Certain)}.where(ends(".lock"), about("moodle", "Moodle",
			"github.com/moodle/moodle@01309248d8: lib/classes/session/redis.php", "the name ends in .lock, and the value is [pid, a process,] a host and a request"))),
		opaque(isUUID, needsTTL(keyspace.Certain)).under("exq:unique:", about("exq", "Exq", "github.com/akira/exq@v0.23.0: lib/exq/redis/script.ex, lib/exq/redis/job_queue.ex",
			"the name begins with exq:unique:, and the value is the UUID of a job")),
		unchecked(opaque(isUUID, needsTTL(keyspace.Certain)).under("query_hash_job:", about("redash", "Redash", "github.com/getredash/redash@ca79fe988d: redash/tasks/queries/execution.py",
			"the name is query_hash_job:, a data source and a digest, and the value is the UUID of a job"))),
		unchecked(stringLock{sure: fixed(keyspace.Likely), token: written(`a:2:{i:0;i:`, `^a:2:\{i:0;i:(\d+);i:1;s:\d+:"([^"]+)";\}$`, "$2:$1")}.anywhere(about("ninja-mutex", "ninja-mutex",
			"github.com/arvenil/ninja-mutex@0.6.0: src/Lock/PredisRedisLock.php", "the value is a process and a host as PHP writes them"))),
		stringLock{sure: fixed(keyspace.Likely), token: written("hostname=", `^hostname=([^&]+)&processid=(\d+)$`, "$1:$2")}.anywhere(about("moodle-redislock", "moodle-local_redislock",
			"github.com/open-lms-open-source/moodle-local_redislock@b81c59b224: classes/lock/redis_lock_factory.php", "the value is hostname= and processid=")),
		stringLock{sure: needsTTL(keyspace.Certain), token: written("", `^(\d+):0\.\d{8} \d{10}:\d{1,4}$`, "process $1")}.anywhere(about("php-redis-lock", "cheprasov/php-redis-lock",
			"github.com/cheprasov/php-redis-lock@v1.0.3: src/RedisLock/RedisLock.php", "the value is a process, the time as microtime() writes it, and a number")),
		stringLock{sure: anyKey(keyspace.Likely), token: func(value string, now time.Time) (keyspace.Holder, bool) {
			at := max(strings.LastIndexByte(value, '-'), 0)
			h, timed := rubyTime(value[:at], now)
			h.ID = value
			return h, timed && digits(value[at+1:], 1, 6)
		}}.anywhere(about("mario-redis-lock", "mario-redis-lock", "github.com/marioizquierdo/mario-redis-lock@0445f58e0b: lib/redis_lock.rb",
			"the value is a time as Ruby writes it, and a number")),
		unchecked(stringLock{sure: anyKey(keyspace.Possible), token: rubyTime}.anywhere(about("simple-redis-lock", "simple_redis_lock",
			"github.com/nitzanav/simple_redis_lock@6f3e5a4151: lib/simple_redis_lock.rb", "the value is a time as Ruby writes it"))),
	}
}

const rubyLayout = "2006-01-02 15:04:05 -0700"

// rubyTime parses a time as Ruby writes it, with or without a fraction.
func rubyTime(value string, now time.Time) (keyspace.Holder, bool) {
	if len(value) < len(rubyLayout) || value[10] != ' ' { // most values
		return keyspace.Holder{}, false
	}
	at, err := time.Parse(rubyLayout, value)
	return keyspace.Holder{ID: value, Depth: 1, Since: plausibleStart(at, now)}, err == nil
}

// collections lists the formats of applications that store a lock in a hash or in a zset.
func collections() []keyspace.Format {
	magento := fieldsUnder("LOCKED_RECORD_INFO_", about("magento-cache", "Magento's cache", "github.com/magento/magento2@565f63ee54: lib/internal/Magento/Framework/Lock/Backend/Cache.php",
		"the name has LOCKED_RECORD_INFO_, and the data of the record begins with a process"), func(f map[string]string) (h keyspace.Holder) {
		pid, _, ok := strings.Cut(f["d"], "-")
		if at, timed := atSeconds(f["m"]); ok && timed && digits(pid, 1, 10) {
			h = keyspace.Holder{ID: "d=" + f["d"], Label: "process " + pid, Since: at}
		}
		return h
	})
	magento.Actions = fieldActions()
	bottleneck := elementsUnder("b_", "hash", keyspace.Semaphore, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
		return keyspace.Holder{ID: m.Name, Label: m.Value, Depth: 1}, only(m.Name+m.Value, "")
	}, about("bottleneck", "Bottleneck", "github.com/SGrondin/bottleneck@v2.19.5: src/Scripts.coffee, src/redis/register.lua",
		"the name is b_, a limiter and _job_clients, and the hash has a client for each job"))
	bottleneck.Match, bottleneck.Actions = ends("_job_clients"), nil
	mediawiki := elementsUnder("", "hash", keyspace.RW, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
		kind, session, _ := strings.Cut(m.Name, ":")
		until, timed := atSeconds(m.Value)
		mode := map[string]keyspace.Mode{"SH": keyspace.Read, "EX": keyspace.Write}[kind]
		return keyspace.Holder{ID: m.Name, Label: "session " + session, Depth: 1, Mode: mode, Expires: until}, timed && mode != "" && session != ""
	}, about("mediawiki", "MediaWiki's RedisLockManager", "github.com/wikimedia/mediawiki@01eb64d0da: includes/libs/lockmanager/RedisLockManager.php",
		"the name is 31 letters and digits, and each field SH or EX and a session, with a time in seconds"))
	mediawiki.Prefixes, mediawiki.Match, mediawiki.NoTTL = nil, func(key string) bool { return len(key) == 31 && only(key, "") }, false
	throttled := elementsUnder("throttled:", "zset", keyspace.Semaphore, deadlineScore, about("sidekiq-throttled", "sidekiq-throttled",
		"github.com/ixti/sidekiq-throttled@v2.1.0: lib/sidekiq/throttled/strategy/concurrency.rb, lib/sidekiq/throttled/strategy/concurrency.lua",
		"the name is throttled:, a class of jobs and :concurrency.v2"))
	throttled.Match = func(key string) bool { return strings.Contains(key, ":concurrency.v2") }
	gocraft := elementsUnder("jobs:", "hash", keyspace.Semaphore, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
		h := keyspace.Holder{ID: m.Name}
		n, running := count(m.Value)
		if h.Depth = n; !running {
			h.Expires = now // the field of a pool without jobs remains
		}
		return h, isHex(m.Name, 24)
	}, about("gocraft-work-jobs", "gocraft/work", "github.com/gocraft/work@v0.5.1: redis.go",
		"the name is jobs:, a job and :lock_info, and the hash has the number of jobs of each pool of workers"))
	limitOf := func(key string) string { return strings.TrimSuffix(key, "lock_info") + "max_concurrency" }
	gocraft.Match, gocraft.Actions = ends(":lock_info"), nil // a worker counts down when its job ends, whatever happened before
	gocraft.Related = besideAll("string", func(key string) []string { return []string{strings.TrimSuffix(key, "_info"), limitOf(key)} })
	holders := gocraft.Decode
	gocraft.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l, sure := holders(e)
		l.Limit, _ = count(e.Related[limitOf(e.Key)].Value)
		return l, sure
	}
	return []keyspace.Format{
		magento,
		// Without actions: the transaction would end the lock of another one that has the row since.
		unchecked(fieldsUnder("SEATA_ROW_LOCK_", about("seata", "Seata", "github.com/apache/incubator-seata@4ce9afb8d4: server/src/main/java/org/apache/seata/server/storage/redis/lock/RedisLocker.java",
			"the name begins with SEATA_ROW_LOCK_, and the hash has a transaction and a branch"), func(f map[string]string) (h keyspace.Holder) {
			if f["branchId"] != "" {
				h.ID = f["xid"]
			}
			return h
		})),
		elementsUnder("lockf lockp", "hash", keyspace.RW, juicefsHolder, about("juicefs", "JuiceFS", "github.com/juicedata/juicefs@04fd74290f: pkg/meta/redis_lock.go",
			"the name is lockf or lockp and an inode, and each field a session and an owner")),
		elementsUnder("semaphore_main:", "zset", keyspace.Semaphore, deadlineScore, about("advanced-semaphores", "asyncio-advanced-semaphores", "github.com/fabien-marty/asyncio-advanced-semaphores@d623811653: asyncio_advanced_semaphores/redis/key.py, asyncio_advanced_semaphores/redis/lua/release.lua",
			"the name has semaphore_main:, and the zset a time for each permit")),
		throttled,
		elementsUnder("set:", "zset", keyspace.Semaphore, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
			at, ok := atScore(1000 * m.Score)
			id, thread := strings.CutPrefix(m.Name, "thread:")
			return keyspace.Holder{ID: m.Name, Depth: 1, Since: plausibleStart(at, now)}, ok && thread && isUUID(id)
		}, about("marqo", "Marqo", "github.com/marqo-ai/marqo@58efc2430e: src/marqo/tensor_search/throttling/redis_throttle.py, src/marqo/tensor_search/throttling/check_and_increment.lua",
			"the name is set: and a kind of request, and each element thread: and a UUID")),
		gocraft,
		elementsUnder("qslock:", "zset", keyspace.Semaphore, deadlineScore, about("tasktiger", "TaskTiger", "github.com/closeio/tasktiger@v0.25.0: tasktiger/redis_semaphore.py, tasktiger/worker.py",
			"the name is qslock: and a queue, and the zset has a time for each worker")),
		bottleneck, mediawiki,
	}
}

// fieldsUnder returns the format of a hash with the fields of one hold.
func fieldsUnder(prefix string, about keyspace.About, holder func(fields map[string]string) keyspace.Holder) keyspace.Format {
	decode := func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		fields := make(map[string]string, len(e.Members))
		for _, m := range e.Members {
			fields[m.Name] = m.Value
		}
		h := holder(fields)
		if h.Depth, h.Since = 1, plausibleStart(h.Since, e.Now); h.ID == "" {
			return keyspace.Lock{}, keyspace.No
		}
		return keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{h}}, keyspace.Certain
	}
	return keyspace.Format{About: about, Type: "hash", Prefixes: []string{prefix}, Decode: decode}
}

// elementsUnder returns the format of a collection of holders without a TTL.
func elementsUnder(prefixes, typ string, kind keyspace.Kind, holder func(keyspace.Member, time.Time) (keyspace.Holder, bool), about keyspace.About) keyspace.Format {
	return keyspace.Format{
		About: about, Type: typ, NoTTL: true, Prefixes: strings.Fields(prefixes), Decode: decodeMembers(kind, keyspace.Certain, holder),
		Actions: memberActions(map[string]string{"hash": inHash, "zset": inZset}[typ], ""),
	}
}

// deadlineScore reads a holder and the end of its permit in seconds.
func deadlineScore(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
	until, ok := atScore(1000 * m.Score)
	return keyspace.Holder{ID: m.Name, Depth: 1, Expires: until}, ok
}

// juicefsHolder reads a session and an owner, and R, W or the ranges of a file: 24 bytes each, the fourth is 1 for W.
func juicefsHolder(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
	session, owner, _ := strings.Cut(m.Name, "_")
	h := keyspace.Holder{ID: m.Name, Label: "session " + session, Depth: 1, Mode: keyspace.Read}
	for i := 0; i < len(m.Value); i += 24 {
		if m.Value == "W" || len(m.Value) >= i+24 && m.Value[i+3] == 1 {
			h.Mode = keyspace.Write
		}
	}
	return h, digits(session, 1, 20) && len(owner) == 16
}

// huey is the format of lock_task in Python's huey: a flag without a holder or a TTL,
// in the hash of the task results. One hash has all locks of an application.
func huey() keyspace.Format {
	return keyspace.Format{
		About: about("huey", "huey", "github.com/coleifer/huey@3.3.0: huey/api.py, huey/storage.py",
			"the name begins with huey.results., and fields have .lock. in their name"),
		Attempts: attempts(keyspace.Attempt{Command: "hsetnx", Token: 1}),
		Type:     "hash",
		Prefixes: []string{"huey.results."},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Mutex}
			for _, m := range e.Members {
				if _, name, ok := strings.Cut(m.Name, ".lock."); ok {
					l.Holders = append(l.Holders, keyspace.Holder{ID: m.Name, Label: name, Depth: 1})
				}
			}
			if len(l.Holders) > 1 {
				l.Kind = keyspace.Unknown // several locks in one key
			}
			return ifHeld(l, keyspace.Certain)
		},
		Actions: memberActions(inHash, ""),
	}
}

// redfour is the format of node's redfour and ioredfour: a hash with the number of the hold, from
// a counter of all locks of a namespace. The number is the token and the fence.
func redfour() keyspace.Format {
	return keyspace.Format{
		About: about("redfour", "ioredfour, redfour", "github.com/nodemailer/ioredfour@v1.4.1: lib/scripts.js; github.com/mixmaxhq/redfour@v2.2.2: src/index.js",
			"the hash has the field index and no other, and a counter of the namespace has counted as far"),
		Type:    "hash",
		Probe:   probeIf(keyspace.Certain, func(first string) bool { return first == "index" }),
		Related: besideAll("string", redfourCounters),
		Decode:  decodeRedfour,
		Actions: &keyspace.Actions{
			Keys:         func(l keyspace.Lock) []string { return append([]string{l.Key}, redfourCounters(l.Key)...) },
			Args:         func(l keyspace.Lock) []string { return []string{"", "", "index", l.Holders[0].ID} },
			ForceRelease: script("redfour_release"),
			Extend:       script("count_extend"),
			WakeHint:     "receive the key on {namespace}-release",
		},
	}
}

// redfourCounters lists the possible counters of a lock: its namespace ends at one of the first
// colons. In a cluster it ends with braces, so that the counter is in the slot of the lock.
func redfourCounters(key string) (all []string) {
	namespace, rest, cluster := strings.Cut(key, ":{ior4_")
	if digest, _, ok := strings.Cut(rest, "}"); cluster && ok {
		return []string{namespace + ":{ior4_" + digest + "}:index"}
	}
	for at := range key {
		if key[at] == ':' && len(all) < 3 {
			all = append(all, key[:at]+"index")
		}
	}
	return all
}

func decodeRedfour(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	number := func(s string) int64 { n, _ := strconv.ParseInt(s, 10, 64); return n }
	if len(e.Members) != 1 || e.Members[0].Name != "index" || e.Expires.IsZero() || number(e.Members[0].Value) <= 0 {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Members[0].Value, Depth: 1}}, Fence: number(e.Members[0].Value)}
	for _, counter := range e.Related {
		if number(counter.Value) >= l.Fence {
			return l, keyspace.Certain
		}
	}
	return l, keyspace.Possible
}
