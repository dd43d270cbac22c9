package formats

import (
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
