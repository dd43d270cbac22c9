package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// byToken lists the formats with a recognizable token under any name.
func byToken() []keyspace.Format {
	return []keyspace.Format{
		jedisLock(),
		// redis-py's Lock and Python libraries that use it: a UUID v1 without dashes, which
		// contains its time. By default the key has no TTL.
		stringLock{token: timedHex, sure: token{known: true, baseConfidence: keyspace.Likely, distinctive: true}.confidence}.anywhere(
			about("redis-py", "redis-py, django-redis", "github.com/redis/redis-py@34817ce2a2: redis/lock.py",
				"the value is a UUID without dashes that contains the time, as redis-py writes it"),
			opaqueSample("for ever: without a timeout", "job:nightly", "{v1hex-11520000/5e}", keyspace.Likely, 0),
			opaqueSample("with a timeout", ":1:thumbnails", "{v1hex-3000/5f}", keyspace.Likely, 15*time.Second)),
		// Elixir's podium/redis_mutex: a UUID v1, which contains its time.
		stringLock{sure: anyKey(keyspace.Likely), token: func(value string, now time.Time) (keyspace.Holder, bool) {
			id, ok := dashed(value)
			if !ok || id.Version() != 1 || !timeBased(id) {
				return keyspace.Holder{}, false
			}
			made := madeAt(id, now)
			return keyspace.Holder{ID: value, Depth: 1, Since: made}, now.IsZero() || !made.IsZero()
		}}.anywhere(about("redis-mutex-ex", "redis_mutex (Elixir), redislock and ioredis-lock (npm)", "github.com/podium/redis_mutex@1.1.0: lib/redis_mutex/lock.ex",
			"the value is a UUID that contains the time"),
			opaqueSample("held", "campaign:9", "{v1-2500/63}", keyspace.Likely, 20*time.Second)),
		// Go's redsync, and gocron's lock, which uses redsync: base64 of 16 random bytes with
		// padding, under any name, always with a TTL.
		opaque(redsyncToken, func(key string, expires bool) keyspace.Confidence {
			return needsTTL(randomToken(key))(key, expires)
		}).anywhere(about("redsync", "redsync", "github.com/go-redsync/redsync@v4.17.0: mutex.go",
			"the value is base64 of 16 bytes, as redsync writes it"),
			opaqueSample("held", "inventory:sku-9", "qL3xN0b2Zf8dYw5tKcVj6Q==", keyspace.Likely, 8*time.Second)),
		redislock(),
		// ronnylt/redlock-php: the result of PHP's uniqid(), a time in µs as 13 hexadecimal digits.
		stringLock{token: uniqid, sure: anyKey(keyspace.Likely)}.anywhere(
			about("redlock-php", "ronnylt/redlock-php", "github.com/ronnylt/redlock-php@1.0.1: src/RedLock.php",
				"the value is the time as PHP's uniqid() writes it"),
			opaqueSample("held", "stocktaking:hall-2", "{uniqid-2000}", keyspace.Likely, 10*time.Second)),
		// Rust's rslock: 20 raw bytes under any name.
		opaque(func(v string) bool { return isRaw(v, 20) }, anyKey(keyspace.Likely)).anywhere(
			about("rslock", "rslock", "github.com/hexcowboy/rslock@0.7.3: src/lock.rs",
				"the value is 20 raw bytes"),
			opaqueSample("held", "chunk:0042", "\x13\xc4\x00\x9arust\xff\x81lock20by\xe1\x02", keyspace.Likely, 10*time.Second)),
		// Elixir's lyokato/redlock: 40 random bytes in hexadecimal.
		opaque(func(v string) bool { return isHex(v, 80) }, anyKey(keyspace.Likely)).anywhere(
			about("redlock-ex", "redlock (Elixir)", "github.com/lyokato/redlock@456b3fb30f: lib/redlock/executor.ex",
				"the value is 80 hexadecimal digits"),
			opaqueSample("held", "room:lobby", sampleHex1+sampleHex2+sampleHex3[:16], keyspace.Likely, 10*time.Second)),
		// symfony/lock before 5.2.
		opaque(thirtyTwoBytes, anyKey(keyspace.Possible)).anywhere(
			about("symfony-string", "symfony/lock before 5.2", "github.com/symfony/lock@v5.1.11: Store/RedisStore.php",
				"the value is base64 of 32 bytes"),
			opaqueSample("held", "sf:lock:import", symfonyToken1, keyspace.Likely, 300*time.Second)),
		// .NET's EasyCaching: the 16 raw bytes of a GUID. .NET reverses the bytes of the first three
		// parts.
		opaque(func(v string) bool { return isRaw(v, 16) && v[7]>>4 == 4 && v[8]&0xc0 == 0x80 }, anyKey(keyspace.Possible)).anywhere(
			about("easycaching", "EasyCaching", "github.com/dotnetcore/EasyCaching@1ebd8e8733: src/EasyCaching.Redis/DistributedLock/RedisLockProvider.cs",
				"the value is the 16 raw bytes of a random GUID"),
			opaqueSample("held", "DefaultRedis:lock:menu", "\x52\x3d\x6a\x0f\x1c\x8b\x7f\x4e\xa2\xd9\x6c\x5b\x4a\x39\x28\x17", keyspace.Likely, 30*time.Second)),
		// node's redlock: 16 random bytes in hexadecimal, the same in all keys of one acquire, under
		// any name. Python's redis-lock-py (miintto) stores the same; its waiters subscribe.
		opaque(func(v string) bool { return isHex(v, 32) }, anyKey(keyspace.Possible)).format(keyspace.Format{
			About: about("node-redlock", "redlock (npm), redis-lock-py, lock4j without a prefix", "github.com/mike-marcacci/node-redlock@afe5cf92c8: src/index.ts",
				"the value is 16 random bytes in hexadecimal, as node's redlock writes them"),
			Actions: announcing(tokenActions(), "poll; those of redis-lock-py receive ok on rlock-channel:{key}",
				func(l keyspace.Lock) []string { return []string{"rlock-channel:" + l.Key, "ok"} }),
			Samples: []keyspace.Sample{opaqueSample("held", "lock:shipment:5512", "9f86d081884c7d659a2feaa0c55ad015", keyspace.Likely, 10*time.Second)},
		}),
		// Go's go-zero: 16 random letters and digits under any name. Laravel without a prefix and
		// .NET's Foundatio store the same.
		opaque(func(v string) bool { return len(v) == 16 && only(v, "") && !digits(v, 16, 16) }, anyKey(keyspace.Possible)).anywhere(
			about("go-zero", "go-zero, Laravel without a prefix, Foundatio", "github.com/zeromicro/go-zero@v1.10.3: core/stores/redis/redislock.go",
				"the value is 16 letters and digits, as go-zero, Laravel and Foundatio write them"),
			opaqueSample("held", "lock:export:archive", "x9KfQ2mB7tZrW4Lp", keyspace.Likely, 60500*time.Millisecond)),
		opaque(func(v string) bool { return isHex(v, 50) }, anyKey(keyspace.Possible)).anywhere(
			about("sidekiq-lock", "sidekiq-lock", "github.com/rwojsznis/sidekiq-lock@v0.7.0: lib/sidekiq/lock/redis_lock.rb", "the value is 50 hexadecimal digits"),
			opaqueSample("held", "lock:payment_17", sampleHex1+sampleHex2[:18], keyspace.Likely, 30*time.Second)),
		// Lock in Ruby's redis-objects: an empty string with a TTL.
		unchecked(opaque(func(v string) bool { return v == "" }, anyKey(keyspace.Possible)).anywhere(
			about("redis-objects", "redis-objects", "github.com/nateware/redis-objects@v1.7.0: lib/redis/lock.rb",
				"the value is empty"),
			opaqueSample("held", "team:1:reorder_lock", "", keyspace.Likely, 15*time.Second))),
		discourse(),
	}
}

// handMade lists formats without a library. Their key names must suggest a lock.
func handMade() []keyspace.Format {
	return []keyspace.Format{
		readWriteKeys(),
		stampRW(),
		hashRW(),
		hashReentrant(),
		getset(),
		// Django's cache.add used as a lock: a pickled flag. Only its name distinguishes it from other
		// cached values.
		unchecked(opaque(func(v string) bool {
			return len(v) > 2 && len(v) < 40 && v[0] == '\x80' && strings.HasSuffix(v, ".") && strings.Contains(v, "1")
		}, anyKey(keyspace.No)).format(keyspace.Format{
			About: about("django-cache", "Django's cache.add", "github.com/django/django@0019a798fd: django/core/cache/backends/redis.py",
				"the value is a mark as Python pickles it, and the name contains a word for locks"),
			Match:   looksLikeLock,
			Samples: []keyspace.Sample{opaqueSample("held", ":1:lock:newsletter", "\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x011\x94.", keyspace.Likely, time.Minute)},
		})),
		setNX(),
		customString(),
		customHash(),
		customZset(),
		customSet(),
		redissonCount(),
		dramatiq(),
		oversized(),
	}
}
