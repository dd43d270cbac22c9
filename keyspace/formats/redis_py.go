package formats

import (
	"time"

	"locktop/keyspace"
)

// redisPy is the format of redis-py's Lock and of Python libraries that use it: a UUID
// v1 without dashes, which contains its time. By default the key has no TTL.
func redisPy() keyspace.Format {
	r := stringLock{token: timedHex, sure: token{known: true, baseConfidence: keyspace.Likely, distinctive: true}.confidence}
	return r.format(keyspace.Format{
		Name:      "redis-py",
		Library:   "redis-py, django-redis",
		Source:    "github.com/redis/redis-py: redis/lock.py",
		Signature: "the value is a UUID without dashes that contains the time, as redis-py writes it",
		Samples: []keyspace.Sample{
			opaqueSample("for ever: without a timeout", "job:nightly", "{v1hex-11520000/5e}", keyspace.Likely, 0),
			opaqueSample("with a timeout", ":1:thumbnails", "{v1hex-3000/5f}", keyspace.Likely, 15*time.Second),
		},
	})
}

// redbeat is the format of the lock that elects one of several celery schedulers.
func redbeat() keyspace.Format {
	r := stringLock{token: timedHex, sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "redbeat",
		Library:   "celery-redbeat",
		Source:    "github.com/sibson/redbeat: redbeat/schedulers.py",
		Signature: "the name is that of redbeat's lock, and the value a UUID that contains the time",
		Prefixes:  []string{"redbeat:"},
		Match:     func(key string) bool { return key == "redbeat:lock" || key == "redbeat::lock" },
		Samples:   []keyspace.Sample{opaqueSample("a scheduler leads", "redbeat::lock", "{v1hex-60000/60}", keyspace.Certain, 25*time.Minute)},
	})
}

// celeryOnce is the format of celery-once, which queues a task only once.
func celeryOnce() keyspace.Format {
	r := stringLock{token: timedHex, sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "celery-once",
		Library:   "celery-once",
		Source:    "github.com/cameronmaske/celery-once: celery_once/backends/redis.py",
		Signature: "the name begins with qo_, and the value is a UUID that contains the time",
		Prefixes:  []string{"qo_"},
		Samples:   []keyspace.Sample{opaqueSample("a task in the queue", "qo_reports.build_day-2026-11-20", "{v1hex-70000/61}", keyspace.Certain, time.Hour)},
	})
}

// dogpile is the format of the lock of a client that fills a dogpile.cache.
func dogpile() keyspace.Format {
	r := stringLock{token: timedHex, sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "dogpile",
		Library:   "dogpile.cache",
		Source:    "github.com/sqlalchemy/dogpile.cache: dogpile/cache/backends/redis.py",
		Signature: "the name begins with _lock, and the value is a UUID that contains the time",
		Prefixes:  []string{"_lock"},
		Samples:   []keyspace.Sample{opaqueSample("a value is being made", "_lockprices:eur", "{v1hex-800/62}", keyspace.Certain, 20*time.Second)},
	})
}

// timedHex parses a UUID v1 without dashes and with a plausible time.
func timedHex(value string, now time.Time) (keyspace.Holder, bool) {
	id, ok := undashed(value)
	if !ok || !recentV1(id, now) {
		return keyspace.Holder{}, false
	}
	return keyspace.Holder{ID: value, Count: 1, Since: madeAt(id, now)}, true
}
