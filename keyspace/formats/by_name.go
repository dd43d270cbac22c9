package formats

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// byName lists the formats with key names that no other library uses, and checks of the
// value.
func byName() []keyspace.Format {
	return []keyspace.Format{
		rueidis("rueidislock:", "rueidislock", "rueidislock", "github.com/redis/rueidis@v1.0.76: rueidislock/lock.go"),
		rueidis("valkeylock:", "valkeylock", "valkeylock (valkey-go)", "github.com/valkey-io/valkey-go@v1.0.76: valkeylock/lock.go"), // a fork
		lynx(),
		redfour(),
		// Unique tasks of Go's asynq: the ID of the task, under the name of its queue, its type and a
		// digest of its payload. The key lasts until the task ends or its TTL ends.
		opaque(anyToken, needsTTL(keyspace.Certain)).where(func(key string) bool {
			queue, rest, unique := strings.Cut(key, "}:unique:")
			digest := strings.LastIndexByte(rest, ':') + 1
			return unique && digest > 0 && strings.Contains(queue, "asynq:{") && (digest == len(rest) || isHex(rest[digest:], 32))
		}, about("asynq", "asynq", "github.com/hibiken/asynq@785bb7208c: internal/base/base.go", "the name is asynq:{queue}:unique:, a task's type and a digest")),
		stringLock{token: written("", `^(\d{1,10})_(\d{1,19})$`, "process $1, goroutine $2"), sure: needsTTL(keyspace.Certain)}.under("REDIS_LOCK_PREFIX_",
			about("xiaoxuxiansheng", "xiaoxuxiansheng/redis_lock", "github.com/xiaoxuxiansheng/redis_lock@0a735ab2dd: lock.go",
				"the name begins with REDIS_LOCK_PREFIX_, and the value is process_goroutine")),
		// Periodic tasks in Go's machinery: the time of the next run in ns. The library never deletes the key; old versions
		// use the same number as the TTL.
		endsUnder("machinery_lock_", keyspace.Certain, func(v string) (time.Time, bool) { return timeIn(v), digits(v, 19, 19) }, about("machinery", "machinery", "github.com/RichardKnop/machinery@v2.0.16: v1/locks/redis/redis.go",
			"the name begins with machinery_lock_, and the value is a time in nanoseconds")),
		endsUnder("cronlock.", keyspace.Certain, atSeconds, about("cronlock", "cronlock", "github.com/kvz/cronlock@04f9fb3e18: cronlock",
			"the name begins with cronlock., and the value is a time in seconds")),
		endsUnder("RedisMutex:", keyspace.Certain, atSeconds, about("redis-mutex", "redis-mutex", "github.com/kenn/redis-mutex@v4.0.2: lib/redis_mutex.rb",
			"the name begins with RedisMutex:, and the value is a time in seconds")),
		// Mutex in node's redis-semaphore: a UUID, or a UUID with a suffix of the caller.
		stringLock{token: suffixedUUID, sure: needsTTL(keyspace.Likely)}.under("mutex:",
			about("redis-semaphore-mutex", "redis-semaphore", "github.com/swarthy/redis-semaphore@v5.7.0: src/RedisMutex.ts",
				"the name begins with mutex:, and the value is a UUID")),
		redisSemaphore(),
		// Hangfire.Redis.StackExchange: a UUID that is the same in all locks of a process.
		opaque(isUUID, needsTTL(keyspace.Certain)).under("{hangfire}: hangfire:",
			about("hangfire", "Hangfire.Redis.StackExchange", "github.com/marcoCasamento/Hangfire.Redis.StackExchange@da8e39a33d: RedisLock.cs",
				"the name begins with {hangfire}:, and the value is a UUID")),
		bullmq(),
		unchecked(endsUnder("lock.", keyspace.Likely, atMilli, about("redis-lock-npm", "redis-lock (npm)", "github.com/errorception/redis-lock@89b6acfc1f: index.js",
			"the name begins with lock., and the value is a time in ms"))),
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).under("redis-promise-lock:",
			about("redis-promise-lock", "redis-promise-lock", "github.com/julian91/redis-promise-lock@42f34ad506: src/lock.ts",
				"the name begins with redis-promise-lock:"))),
		simpleRedisMutex(),
		// node-resque's plugins JobLock and QueueLock: the deadline in seconds, under a name that ends
		// with the arguments of the job.
		unchecked(opaque(func(v string) bool { return digits(v, 10, 10) }, certainWith("workerslock:")).format(keyspace.Format{
			About: about("node-resque", "node-resque", "github.com/actionhero/node-resque@v9.7.0: src/plugins/JobLock.ts, src/plugins/QueueLock.ts",
				"the name is lock: or workerslock:, a job, its queue and its arguments, and the value a time in seconds"),
			Match:   func(key string) bool { return strings.HasSuffix(key, "]") && jobWithArguments.MatchString(key) },
			Actions: valueActions(),
		})),
		stringLock{token: timedHex, sure: fixed(keyspace.Certain)}.where(
			func(key string) bool {
				return strings.HasSuffix(key, "redbeat:lock") || strings.HasSuffix(key, "redbeat::lock")
			},
			about("redbeat", "celery-redbeat", "github.com/sibson/redbeat@a7fd9e9a7b: redbeat/schedulers.py",
				"the name is that of redbeat's lock, and the value a UUID that contains the time")),
		unchecked(stringLock{token: timedHex, sure: fixed(keyspace.Certain)}.under("qo_",
			about("celery-once", "celery-once", "github.com/cameronmaske/celery-once@3.0.0: celery_once/backends/redis.py",
				"the name begins with qo_, and the value is a UUID that contains the time"))),
		stringLock{token: timedHex, sure: fixed(keyspace.Likely)}.under("_lock",
			about("dogpile", "dogpile.cache", "github.com/sqlalchemy/dogpile.cache@rel_1_5_0: dogpile/cache/backends/redis.py",
				"the name begins with _lock, and the value is a UUID that contains the time")),
		// Waiters block on a list, which exists only for a moment after
		// a release, or remains. 24 hexadecimal digits are an object ID.
		blockingOn("lock-signal:", time.Second, true, opaque(func(s string) bool {
			return len(s) == 24 && only(s, "+/") && !isHex(strings.ToLower(s), 24)
		}, fixed(keyspace.Likely)).under("lock:",
			about("python-redis-lock", "python-redis-lock", "github.com/ionelmc/python-redis-lock@e448f12f49: src/redis_lock/__init__.py",
				"the name begins with lock:, and the value is base64 of 18 bytes"))),
		blockingOn("lock.event:", 0, false, opaque(func(v string) bool { return isRaw(v, 32) }, fixed(keyspace.Likely)).under("lock:",
			about("walrus", "walrus", "github.com/coleifer/walrus@0.9.7: walrus/lock.py", "the name begins with lock:, and the value is 32 raw bytes"))),
		unchecked(huey()),
		// huey's locks if results expire: a key for each lock.
		unchecked(opaque(func(v string) bool { return len(v) < probeBytes }, fixed(keyspace.Certain)).where(
			func(key string) bool { return strings.Contains(key, "huey.r.") && strings.Contains(key, ".lock.") },
			about("huey-expire", "huey", "github.com/coleifer/huey@3.3.0: huey/api.py, huey/storage.py", "the name begins with huey.r. and contains .lock."))),
		// celery-singleton, which queues a task only once: the task's ID, by default without a TTL.
		unchecked(opaque(anyToken, fixed(keyspace.Certain)).where(hasDigest("SINGLETONLOCK_", 32),
			about("celery-singleton", "celery-singleton", "github.com/steinitzu/celery-singleton@4ee161853d: celery_singleton/singleton.py",
				"the name is SINGLETONLOCK_ and a digest"))),
		// The lock that elects the worker which schedules a queue of Python's rq.
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).under("rq:scheduler-lock:",
			about("rq-scheduler", "rq", "github.com/rq/rq@aa666a8a60: rq/scheduler.py", "the name begins with rq:scheduler-lock:"))),
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).under("rq:clean_registries:",
			about("rq-maintenance", "rq", "github.com/rq/rq@aa666a8a60: rq/queue.py", "the name begins with rq:clean_registries:"))),
		// The job locks of Python's arq. A worker sets the flag.
		unchecked(opaque(func(v string) bool { return v == "1" }, needsTTL(keyspace.Certain)).under("arq:in-progress:",
			about("arq", "arq", "github.com/python-arq/arq@v0.26.1: arq/worker.py",
				"the name begins with arq:in-progress:, and the value is 1"))),
		opaque(func(v string) bool {
			id, ok := undashed(v)
			return ok && id.Version() == 4 && isHex(v, 32)
		}, needsTTL(keyspace.Likely)).where(begins("l:"), // behind a namespace, the name says nothing
			about("sentry", "Sentry", "github.com/getsentry/sentry@02026f58e8: src/sentry/utils/locking/backends/redis.py",
				"the name begins with l:, and the value is a UUID without dashes")),
		// .NET's RedLock.net and Python's pottery.
		opaque(isUUID, needsTTL(keyspace.Likely)).under("redlock:",
			about("redlock-net", "RedLock.net, pottery", "github.com/samcook/RedLock.net@release-2.3.2: RedLockNet.SERedis/RedLock.cs; github.com/brainix/pottery@e2f40424c9: pottery/redlock.py",
				"the name begins with redlock:, and the value is a UUID")),
		opaque(anyToken, needsTTL(keyspace.Likely)).where(func(key string) bool {
			before, rest, ok := strings.Cut(key, "trigger_lock:")
			return strings.HasSuffix(key, "lock") && strings.Contains(key, "quartz") || ok && (before == "" || strings.IndexByte(":._", before[len(before)-1]) >= 0) && strings.Contains(rest, ":")
		}, about("quartz", "quartz-redis-jobstore", "github.com/jlinn/quartz-redis-jobstore@quartz-redis-jobstore-1.2.0: RedisJobStoreSchema.java, AbstractRedisStorage.java", "the name has trigger_lock:, a group and a name, or quartz and ends in lock")),
		opaque(func(v string) bool {
			id, ok := undashed(v)
			return ok && id.Version() == 4
		}, needsTTL(keyspace.Certain)).under("lock4j:",
			about("lock4j", "lock4j", "github.com/baomidou/lock4j@v2.2.6: RedisTemplateLockExecutor.java",
				"the name begins with lock4j:, and the value is a UUID without dashes")),
		// Java's alturkovic/distributed-lock: a UUID, the same in all keys of one acquire.
		opaque(isUUID, needsTTL(keyspace.Likely)).under("distributed_lock:",
			about("alturkovic", "alturkovic/distributed-lock", "github.com/alturkovic/distributed-lock@3.0.0: SimpleRedisLock.java",
				"the name begins with distributed_lock:, and the value is a UUID")),
		opaque(isUUID, needsTTL(keyspace.Certain)).under("CSRedisClientLock: RedisClientLock:",
			about("csredis", "csredis, FreeRedis", "github.com/2881099/csredis@96d0e8d10b: src/CSRedisCore/CSRedisClient.cs; github.com/2881099/FreeRedis@8ebda12bc6: src/FreeRedis/RedisClient/Modules/Lock.cs",
				"the name begins with CSRedisClientLock: or RedisClientLock:, and the value is a UUID")),
		laravel(),
		// PHP's php-lock/lock: 16 random bytes and a digest, in hexadecimal. By default the key expires after 1000
		// years.
		opaque(func(v string) bool { return isHex(v, 64) }, needsTTL(keyspace.Certain)).under("php-malkusch-lock:",
			about("php-lock", "php-lock/lock", "github.com/php-lock/lock@3.1.1: src/Mutex/RedisMutex.php",
				"the name begins with php-malkusch-lock:, and the value is 64 hexadecimal digits")),
		stringLock{token: hostAndProcess("|"), sure: fixed(keyspace.Certain)}.where(func(key string) bool {
			return strings.HasSuffix(key, "_LOCK") && strings.Contains(key, "PHPREDIS_SESSION:")
		}, about("phpredis", "phpredis", "github.com/phpredis/phpredis@0fe45d24d4: redis_session.c", "the name is PHPREDIS_SESSION:, a session and _LOCK, and the value host|process")),
		opaque(func(v string) bool { return len(v) == 20 && only(v, "-_") }, needsTTL(keyspace.Likely)).where(func(key string) bool { return isHex(key, 37) },
			about("yii2", "yii2-redis", "github.com/yiisoft/yii2-redis@2.1.2: src/Mutex.php", "the name is 37 hexadecimal digits, and the value 20 random characters")),
		nextcloud(),
		unchecked(opaque(isUUID, needsTTL(keyspace.Certain)).under("activejob_uniqueness:",
			about("activejob-uniqueness", "activejob-uniqueness", "github.com/veeqo/activejob-uniqueness@v0.4.0: lib/active_job/uniqueness/lock_key.rb",
				"the name begins with activejob_uniqueness:, and the value is a UUID"))),
		redisSemaphoreRB(),
		sidekiqUniqueJobs(),
		mlanett(),
		unchecked(resqueLock()),
		unchecked(endsUnder("lonely_job:", keyspace.Certain, atSeconds, about("resque-lonely-job", "resque-lonely_job", "github.com/wallace/resque-lonely_job@v1.1.3: lib/resque-lonely_job.rb",
			"the name is lonely_job: and a queue, and the value a time in seconds"))),
		stringLock{token: hostAndProcess(":"), sure: needsTTL(keyspace.Certain)}.where(ends("resque_scheduler_master_lock"),
			about("resque-scheduler", "resque-scheduler", "github.com/resque/resque-scheduler@v5.0.0: lib/resque/scheduler/lock/base.rb",
				"the name ends in resque_scheduler_master_lock, and the value is host:process")),
		opaque(isUUID, needsTTL(keyspace.Certain)).under("gitlab:exclusive_lease:",
			about("gitlab", "GitLab", "github.com/gitlabhq/gitlabhq@017a6c129d: lib/gitlab/exclusive_lease.rb",
				"the name begins with gitlab:exclusive_lease:, and the value is a UUID")),
		goRedislockFair(),
	}
}

var jobWithArguments = regexp.MustCompile(`(^|:)(workers)?lock:[^:]+:[^:]+:\[`)

// blockingOn completes the format of a lock under lock: whose waiters block on a list beside it.
// The element that wakes a waiter expires after stays, unless stays is 0.
func blockingOn(list string, stays time.Duration, noTTL bool, f keyspace.Format) keyspace.Format {
	f.NoTTL, f.BlockingWait, f.Companion = noTTL, true, begins(list)
	f.Actions.Keys = func(l keyspace.Lock) []string { return []string{l.Key, list + strings.TrimPrefix(l.Key, "lock:")} }
	f.Actions.Args = func(l keyspace.Lock) []string {
		return []string{l.Holders[0].ID, strconv.FormatInt(stays.Milliseconds(), 10)}
	}
	f.Actions.ForceRelease, f.Actions.WakeHint = script("list_release"), "take an element from "+list+"{name}"
	return f
}

// hasDigest matches names that end in a mark and n hexadecimal digits.
func hasDigest(mark string, n int) func(key string) bool {
	return func(key string) bool {
		return len(key) >= n && strings.HasSuffix(key[:len(key)-n], mark) && isHex(key[len(key)-n:], n)
	}
}
