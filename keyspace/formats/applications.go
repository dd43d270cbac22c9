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
		"the name is loners:queue: or solo:queue:, a queue, :job: and a digest, and the value is 1"),
		opaqueSample("a job in the queue", "loners:queue:imports:job:"+sampleHex1, "1", keyspace.Certain, 0)))
	loner.NoTTL = true
	return []keyspace.Format{
		loner,
		unchecked(flag("b:1;").under("framework/schedule- framework/command-", about("laravel-schedule", "Laravel's scheduler",
			"github.com/laravel/framework@4b65349007: src/Illuminate/Console/Scheduling/CacheEventMutex.php, src/Illuminate/Console/Scheduling/CacheSchedulingMutex.php",
			"the name has framework/schedule- or framework/command-, and the value is true as PHP writes it"), // newer ones have an owner: see laravel
			opaqueSample("a task that runs", "framework/schedule-"+sampleHex1+"9b1c2d3e", "b:1;", keyspace.Certain, 24*time.Hour))),
		unchecked(flag("1").where(ends("horizon:metrics:snapshot"), about("horizon", "Laravel Horizon", "github.com/laravel/horizon@v5.29.1: src/Lock.php, src/Console/SnapshotCommand.php",
			"the name ends in horizon:metrics:snapshot, and the value is 1"), opaqueSample("no snapshot until it ends", "laravel_horizon:metrics:snapshot", "1", keyspace.Certain, 270*time.Second))),
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).under("framework/crontab- hyperf/crontab-", about("hyperf-crontab", "Hyperf's crontab",
			"github.com/hyperf/hyperf@0978f52f50: src/crontab/src/Mutex/RedisTaskMutex.php, src/crontab/src/Mutex/RedisServerMutex.php",
			"the name has framework/crontab- or hyperf/crontab-"),
			opaqueSample("a server has the task", "hyperf/crontab-"+sampleHex1+"9b1c2d3e-sv", sampleHex2, keyspace.Certain, time.Hour))),
		unchecked(flag("1").where(func(key string) bool { return strings.HasSuffix(key, "}\n") && strings.Contains(key, "unique:") },
			about("gocraft-work", "gocraft/work", "github.com/gocraft/work@0861e4f8b5: redis.go", "the name has unique:, a job and its arguments, and the value is 1"),
			opaqueSample("a job in the queue", "work:unique:send_email:{\"to\":7}\n", "1", keyspace.Certain, 24*time.Hour))),
		unchecked(flag("1").where(func(key string) bool {
			return strings.Contains(key, "saq:") && (strings.HasSuffix(key, ":sweep") || strings.HasSuffix(key, ":schedule"))
		}, about("saq", "saq", "github.com/tobymao/saq@v0.26.3: saq/queue/redis.py", "the name is saq:, a queue and :sweep or :schedule, and the value is 1"),
			opaqueSample("a worker sweeps the queue", "saq:default:sweep", "1", keyspace.Certain, time.Minute))),
		unchecked(opaque(anyToken, needsTTL(keyspace.Certain)).where(ends("_#RL#"), about("jetcache", "JetCache",
			"github.com/alibaba/jetcache@v2.7.8: jetcache-core/src/main/java/com/alicp/jetcache/RefreshCache.java, jetcache-core/src/main/java/com/alicp/jetcache/Cache.java",
			"the name is a cached value and _#RL#"),
			opaqueSample("a value is being refreshed", "prices.eur_#RL#", "\xac\xed\x00\x05t\x00$"+sampleUUID1, keyspace.Certain, time.Minute))),
		opaque(func(v string) bool { return isHex(v, 12) }, needsTTL(keyspace.Certain)).under("QueuedTrackingLock", about("matomo", "Matomo's QueuedTracking",
			"github.com/matomo-org/plugin-QueuedTracking@0a2c29f04f: Queue/Lock.php", "the name begins with QueuedTrackingLock, and the value is 12 hexadecimal digits"),
			opaqueSample("a queue is being processed", "QueuedTrackingLock0", sampleHex1[:12], keyspace.Certain, time.Minute)),
		stringLock{token: hostAndProcess(":"), sure: needsTTL(keyspace.Certain)}.under("SINGLE_BEAT_", about("single-beat", "single-beat",
			"github.com/ybrs/single-beat@02bca99b0b: singlebeat/beat.py", "the name begins with SINGLE_BEAT_, and the value is host:process"),
			opaqueSample("a program runs", "SINGLE_BEAT_celery_beat", "beat-1:4711", keyspace.Certain, 5*time.Second)),
		opaque(func(v string) bool { return !timeIn(v).IsZero() }, needsTTL(keyspace.Certain)).under("tw:scheduler:", about("sentry-scheduler", "Sentry's scheduler of tasks",
			"github.com/getsentry/sentry@2f92e55edd: src/sentry/taskworker/scheduler/runner.py", "the name begins with tw:scheduler:, and the value is a time"),
			opaqueSample("a task that may not run again yet", "tw:scheduler:sentry.tasks.beacon", "{iso-5000}", keyspace.Certain, time.Hour)),
		unchecked(opaque(func(v string) bool { return strings.HasPrefix(v, `{"status":"IN_PROGRESS"`) }, needsTTL(keyspace.Certain)).under("node-idempotency:",
			about("node-idempotency", "node-idempotency", "github.com/mahendraHegde/node-idempotency@148eb76b9d: packages/core/src/idempotency.ts",
				"the name begins with node-idempotency:, and the value has the status IN_PROGRESS"),
			opaqueSample("a request", "node-idempotency:POST:/orders:7f3a", `{"status":"IN_PROGRESS","fingerPrint":"9f86d0"}`, keyspace.Certain, 24*time.Hour))),
		opaque(func(v string) bool { return isHex(v, 24) }, needsTTL(keyspace.Likely)).where(hasDigest("unique:", 40),
			about("sidekiq-enterprise", "Sidekiq Enterprise, as its users see it (sidekiq#5002)", "source not public",
				"the name is unique: and a digest, and the value is the ID of a job"),
			opaqueSample("a job in the queue", "unique:"+sampleHex1+"9b1c2d3e", "4f2b8c6a1d4e9a7b9c5d8e0f", keyspace.Likely, 4*time.Hour)),
		unchecked(flag("").where(ends("~lock"), about("spring-cache", "Spring's cache", "github.com/spring-projects/spring-data-redis@15f65f6997: src/main/java/org/springframework/data/redis/cache/DefaultRedisCacheWriter.java",
			"the name is a cache and ~lock, and the value is empty"),
			opaqueSample("a cache being cleared", "products~lock", "", keyspace.Certain, 0))),
		unchecked(stringLock{token: written("", `^(?s:(?:\[pid )?(\d{1,10})\] (.*?):.*)$`, "$2:$1"), sure: needsTTL(keyspace.Certain)}.where(ends(".lock"), about("moodle", "Moodle",
			"github.com/moodle/moodle@01309248d8: lib/classes/session/redis.php", "the name ends in .lock, and the value is [pid, a process,] a host and a request"),
			labelled("web1:3121", opaqueSample("a request", "d7e78666cbb4e131.lock", "[pid 3121] web1:/mod/quiz/view.php?id=7", keyspace.Certain, 2*time.Hour)))),
		opaque(isUUID, needsTTL(keyspace.Certain)).under("exq:unique:", about("exq", "Exq", "github.com/akira/exq@v0.23.0: lib/exq/redis/script.ex, lib/exq/redis/job_queue.ex",
			"the name begins with exq:unique:, and the value is the UUID of a job"),
			opaqueSample("a job in the queue", "exq:unique:"+symfonyToken1, sampleUUID1, keyspace.Certain, time.Hour)),
		unchecked(opaque(isUUID, needsTTL(keyspace.Certain)).under("query_hash_job:", about("redash", "Redash", "github.com/getredash/redash@ca79fe988d: redash/tasks/queries/execution.py",
			"the name is query_hash_job:, a data source and a digest, and the value is the UUID of a job"),
			opaqueSample("a query runs", "query_hash_job:1:"+sampleHex1, sampleUUID2, keyspace.Certain, 12*time.Hour))),
		unchecked(stringLock{sure: fixed(keyspace.Likely), token: written(`a:2:{i:0;i:`, `^a:2:\{i:0;i:(\d+);i:1;s:\d+:"([^"]+)";\}$`, "$2:$1")}.anywhere(about("ninja-mutex", "ninja-mutex",
			"github.com/arvenil/ninja-mutex@0.6.0: src/Lock/PredisRedisLock.php", "the value is a process and a host as PHP writes them"),
			labelled("web-1:3121", opaqueSample("held", "very-critical-stuff", `a:2:{i:0;i:3121;i:1;s:5:"web-1";}`, keyspace.Likely, 0)))),
		stringLock{sure: fixed(keyspace.Likely), token: written("hostname=", `^hostname=([^&]+)&processid=(\d+)$`, "$1:$2")}.anywhere(about("moodle-redislock", "moodle-local_redislock",
			"github.com/open-lms-open-source/moodle-local_redislock@b81c59b224: classes/lock/redis_lock_factory.php", "the value is hostname= and processid="),
			labelled("web-1:3121", opaqueSample("a task", "moodle_cron_core_cron", "hostname=web-1&processid=3121", keyspace.Likely, 0))),
		stringLock{sure: needsTTL(keyspace.Certain), token: written("", `^(\d+):0\.\d{8} \d{10}:\d{1,4}$`, "process $1")}.anywhere(about("php-redis-lock", "cheprasov/php-redis-lock",
			"github.com/cheprasov/php-redis-lock@v1.0.3: src/RedisLock/RedisLock.php", "the value is a process, the time as microtime() writes it, and a number"),
			labelled("process 3121", opaqueSample("held", "Export_Orders", "3121:0.12345600 1763651000:4711", keyspace.Certain, 30*time.Second))),
		stringLock{sure: anyKey(keyspace.Likely), token: func(value string, now time.Time) (keyspace.Holder, bool) {
			at := max(strings.LastIndexByte(value, '-'), 0)
			h, timed := rubyTime(value[:at], now)
			h.ID = value
			return h, timed && digits(value[at+1:], 1, 6)
		}}.anywhere(about("mario-redis-lock", "mario-redis-lock", "github.com/marioizquierdo/mario-redis-lock@0445f58e0b: lib/redis_lock.rb",
			"the value is a time as Ruby writes it, and a number"),
			opaqueSample("held", "RedisLock::default", "{ruby-3000}-523412", keyspace.Likely, 10*time.Second)),
		unchecked(stringLock{sure: anyKey(keyspace.Possible), token: rubyTime}.anywhere(about("simple-redis-lock", "simple_redis_lock",
			"github.com/nitzanav/simple_redis_lock@6f3e5a4151: lib/simple_redis_lock.rb", "the value is a time as Ruby writes it"),
			opaqueSample("held", "lock:task_384", "{ruby-3000}", keyspace.Likely, 10*time.Second))),
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
	const owner, transaction = "613_F0A1B2C3D4E5F607", "10.0.1.63:8091:4927604953972640934"
	magento := fieldsUnder("LOCKED_RECORD_INFO_", about("magento-cache", "Magento's cache", "github.com/magento/magento2@565f63ee54: lib/internal/Magento/Framework/Lock/Backend/Cache.php",
		"the name has LOCKED_RECORD_INFO_, and the data of the record begins with a process"), func(f map[string]string) (h keyspace.Holder) {
		pid, _, ok := strings.Cut(f["d"], "-")
		if at, timed := atSeconds(f["m"]); ok && timed && digits(pid, 1, 10) {
			h = keyspace.Holder{ID: "d=" + f["d"], Label: "process " + pid, Since: at}
		}
		return h
	}, sample("the configuration is being read", 2*time.Hour, keyspace.Lock{
		Key: "LOCKED_RECORD_INFO_SYSTEM_CONFIG", Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: "d=31231-2852561463-0f3a9c12", Label: "process 31231", Depth: 1}},
	}, "HSET LOCKED_RECORD_INFO_SYSTEM_CONFIG d 31231-2852561463-0f3a9c12 m {s-95000} i 0", "EXPIRE LOCKED_RECORD_INFO_SYSTEM_CONFIG 7200"))
	magento.Actions = fieldActions()
	bottleneck := elementsUnder("b_", "hash", keyspace.Semaphore, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
		return keyspace.Holder{ID: m.Name, Label: m.Value, Depth: 1}, only(m.Name+m.Value, "")
	}, about("bottleneck", "Bottleneck", "github.com/SGrondin/bottleneck@v2.19.5: src/Scripts.coffee, src/redis/register.lua",
		"the name is b_, a limiter and _job_clients, and the hash has a client for each job"), sample("two jobs", 0, keyspace.Lock{
		Key: "b_crm_job_clients", Kind: keyspace.Semaphore, Holders: []keyspace.Holder{{ID: "51is64q57xm", Label: "tjnp8wewsn", Depth: 1}, {ID: "ognpzty4hk", Label: "tjnp8wewsn", Depth: 1}},
	}, "HSET b_crm_job_clients 51is64q57xm tjnp8wewsn ognpzty4hk tjnp8wewsn"))
	bottleneck.Match, bottleneck.Actions = ends("_job_clients"), nil
	mediawiki := elementsUnder("", "hash", keyspace.RW, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
		kind, session, _ := strings.Cut(m.Name, ":")
		until, timed := atSeconds(m.Value)
		mode := map[string]keyspace.Mode{"SH": keyspace.Read, "EX": keyspace.Write}[kind]
		return keyspace.Holder{ID: m.Name, Label: "session " + session, Depth: 1, Mode: mode, Expires: until}, timed && mode != "" && session != ""
	}, about("mediawiki", "MediaWiki's RedisLockManager", "github.com/wikimedia/mediawiki@01eb64d0da: includes/libs/lockmanager/RedisLockManager.php",
		"the name is 31 letters and digits, and each field SH or EX and a session, with a time in seconds"), sample("a reader", 15*time.Second, keyspace.Lock{
		Key: "6k1v0o0y6hk4p2x8r1z3w5t7q9m2n4b", Kind: keyspace.RW, Holders: []keyspace.Holder{{ID: "SH:3kq8p1z0x9c7v5b3n1m2a4s6d8f0g2h", Label: "session 3kq8p1z0x9c7v5b3n1m2a4s6d8f0g2h", Depth: 1, Mode: keyspace.Read}},
	}, "HSET 6k1v0o0y6hk4p2x8r1z3w5t7q9m2n4b SH:3kq8p1z0x9c7v5b3n1m2a4s6d8f0g2h {s+15000}", "EXPIRE 6k1v0o0y6hk4p2x8r1z3w5t7q9m2n4b 7200"))
	mediawiki.Prefixes, mediawiki.Match, mediawiki.NoTTL = nil, func(key string) bool { return len(key) == 31 && only(key, "") }, false
	throttled := elementsUnder("throttled:", "zset", keyspace.Semaphore, deadlineScore, about("sidekiq-throttled", "sidekiq-throttled",
		"github.com/ixti/sidekiq-throttled@v2.1.0: lib/sidekiq/throttled/strategy/concurrency.rb, lib/sidekiq/throttled/strategy/concurrency.lua",
		"the name is throttled:, a class of jobs and :concurrency.v2"), sample("one job", 15*time.Minute, keyspace.Lock{
		Key: "throttled:ImportJob:concurrency.v2", Kind: keyspace.Semaphore, Holders: []keyspace.Holder{{ID: sampleHex1[:24], Depth: 1}},
	}, "DEL throttled:ImportJob:concurrency.v2", "ZADD throttled:ImportJob:concurrency.v2 {f+900000} "+sampleHex1[:24]))
	throttled.Match = func(key string) bool { return strings.Contains(key, ":concurrency.v2") }
	gocraft := elementsUnder("jobs:", "hash", keyspace.Semaphore, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
		h := keyspace.Holder{ID: m.Name}
		n, running := count(m.Value)
		if h.Depth = n; !running {
			h.Expires = now // the field of a pool without jobs remains
		}
		return h, isHex(m.Name, 24)
	}, about("gocraft-work-jobs", "gocraft/work", "github.com/gocraft/work@v0.5.1: redis.go",
		"the name is jobs:, a job and :lock_info, and the hash has the number of jobs of each pool of workers"), sample("three of five jobs", 0, keyspace.Lock{
		Key: "jobs:send_email:lock_info", Kind: keyspace.Semaphore, Limit: 5, Holders: []keyspace.Holder{{ID: sampleHex1[:24], Depth: 3}},
	}, "SET jobs:send_email:lock 3", "HSET jobs:send_email:lock_info "+sampleHex1[:24]+" 3 "+sampleHex2[:24]+" 0", "SET jobs:send_email:max_concurrency 5"))
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
		}, sample("a row of a transaction", 0, keyspace.Lock{
			Key: "SEATA_ROW_LOCK_jdbc:mysql://db1/shop^^^orders^^^42", Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: transaction, Depth: 1}},
		}, "HSET SEATA_ROW_LOCK_jdbc:mysql://db1/shop^^^orders^^^42 xid "+transaction+" branchId 4927604953972640935 tableName orders pk 42"))),
		elementsUnder("lockf lockp", "hash", keyspace.RW, juicefsHolder, about("juicefs", "JuiceFS", "github.com/juicedata/juicefs@04fd74290f: pkg/meta/redis_lock.go",
			"the name is lockf or lockp and an inode, and each field a session and an owner"), sample("a reader", 0, keyspace.Lock{
			Key: "lockf24578", Kind: keyspace.RW, Holders: []keyspace.Holder{{ID: owner, Label: "session 613", Depth: 1, Mode: keyspace.Read}},
		}, "HSET lockf24578 "+owner+" R")),
		elementsUnder("semaphore_main:", "zset", keyspace.Semaphore, deadlineScore, about("advanced-semaphores", "asyncio-advanced-semaphores", "github.com/fabien-marty/asyncio-advanced-semaphores@d623811653: asyncio_advanced_semaphores/redis/key.py, asyncio_advanced_semaphores/redis/lua/release.lua",
			"the name has semaphore_main:, and the zset a time for each permit"), sample("one permit", 25*time.Second, keyspace.Lock{
			Key: "semaphore_main:db", Kind: keyspace.Semaphore, Holders: []keyspace.Holder{{ID: sampleUUID1, Depth: 1}},
		}, "DEL semaphore_main:db", "ZADD semaphore_main:db {f+25000} "+sampleUUID1)),
		throttled,
		elementsUnder("set:", "zset", keyspace.Semaphore, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
			at, ok := atScore(1000 * m.Score)
			id, thread := strings.CutPrefix(m.Name, "thread:")
			return keyspace.Holder{ID: m.Name, Depth: 1, Since: plausibleStart(at, now)}, ok && thread && isUUID(id)
		}, about("marqo", "Marqo", "github.com/marqo-ai/marqo@58efc2430e: src/marqo/tensor_search/throttling/redis_throttle.py, src/marqo/tensor_search/throttling/check_and_increment.lua",
			"the name is set: and a kind of request, and each element thread: and a UUID"), sample("a search", 0, keyspace.Lock{
			Key: "set:SEARCH", Kind: keyspace.Semaphore, Holders: []keyspace.Holder{{ID: "thread:" + sampleUUID1, Depth: 1}},
		}, "ZADD set:SEARCH {s-3000} thread:"+sampleUUID1)),
		gocraft,
		elementsUnder("qslock:", "zset", keyspace.Semaphore, deadlineScore, about("tasktiger", "TaskTiger", "github.com/closeio/tasktiger@v0.25.0: tasktiger/redis_semaphore.py, tasktiger/worker.py",
			"the name is qslock: and a queue, and the zset has a time for each worker"), sample("one worker", time.Minute, keyspace.Lock{
			Key: "qslock:default", Kind: keyspace.Semaphore, Holders: []keyspace.Holder{{ID: sampleUUID1, Depth: 1}},
		}, "DEL qslock:default", "ZADD qslock:default {f+60000} "+sampleUUID1)),
		bottleneck, mediawiki,
	}
}

// fieldsUnder returns the format of a hash with the fields of one hold.
func fieldsUnder(prefix string, about keyspace.About, holder func(fields map[string]string) keyspace.Holder, s keyspace.Sample) keyspace.Format {
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
	return keyspace.Format{About: about, Type: "hash", Prefixes: []string{prefix}, Decode: decode, Samples: []keyspace.Sample{s}}
}

// elementsUnder returns the format of a collection of holders without a TTL.
func elementsUnder(prefixes, typ string, kind keyspace.Kind, holder func(keyspace.Member, time.Time) (keyspace.Holder, bool), about keyspace.About, s keyspace.Sample) keyspace.Format {
	return keyspace.Format{
		About: about, Type: typ, NoTTL: true, Prefixes: strings.Fields(prefixes), Decode: decodeMembers(kind, keyspace.Certain, holder),
		Actions: memberActions(map[string]string{"hash": inHash, "zset": inZset}[typ], ""), Samples: []keyspace.Sample{s},
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
		Samples: []keyspace.Sample{sample("a task that runs", 0, keyspace.Lock{
			Key: "huey.results.shop", Kind: keyspace.Mutex,
			Holders: []keyspace.Holder{{ID: "shop.lock.reindex", Label: "reindex", Depth: 1}},
		},
			"HSET huey.results.shop shop.lock.reindex "+"\x80\x04\x8c\x011\x94.")},
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
		Samples: []keyspace.Sample{sample("the seventh hold of the namespace", 30*time.Second, keyspace.Lock{
			Key: "lock:mailbox:42", Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: "7", Depth: 1}}, Fence: 7,
		},
			"HSET lock:mailbox:42 index 7",
			"PEXPIRE lock:mailbox:42 30000",
			"SET lockindex 7")},
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
