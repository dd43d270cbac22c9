// Package formats describes how lock libraries store their locks in Redis. Each file has
// the formats of one library, or of locks that people write without one, with samples.
// To add a library, write such a file and list its formats below; CONTRIBUTING.md has
// the steps.
package formats

import (
	"slices"

	"locktop/keyspace"
)

// All returns every format, the most specific first: with equal confidence, the first
// format wins.
func All() []keyspace.Format {
	return slices.Concat(byStructure(), byName(), byToken(), handMade())
}

// byStructure lists the formats with a structure that no other library writes.
func byStructure() []keyspace.Format {
	return []keyspace.Format{
		locktop(),
		locktopReentrant(),
		locktopRW(),
		locktopSemaphore(),
		redissonRW(),
		redisson(),
		redissonMulti(),
		redissonReserved(),
		redissonPermits(),
		goRedislock(),
		goRedislockRW(),
		medallionWriterLock(),
		medallionReadersLock(),
		medallionSemaphore(),
		medallion(),
		symfony(),
		magento(),
		shedlock(),
		drupal(),
		suo(),
		warlock(),
	}
}

// byName lists the formats with key names that no other library uses, and checks of the
// value.
func byName() []keyspace.Format {
	return []keyspace.Format{
		rueidislock(),
		valkeylock(),
		asynq(),
		xiaoxuxiansheng(),
		machinery(),
		redisSemaphoreMutex(),
		redisSemaphore(),
		hangfire(),
		bull(),
		redisLockNPM(),
		simpleRedisMutex(),
		nodeResque(),
		redbeat(),
		celeryOnce(),
		dogpile(),
		pythonRedisLock(),
		walrus(),
		huey(),
		hueyExpire(),
		celerySingleton(),
		rqScheduler(),
		arq(),
		sentry(),
		redlockNet(),
		quartz(),
		lock4j(),
		alturkovic(),
		csredis(),
		laravel(),
		phpLock(),
		phpredis(),
		yii2(),
		nextcloud(),
		activejob(),
		redisSemaphoreRB(),
		sidekiqUniqueJobs(),
		redisMutex(),
		mlanett(),
		resqueLock(),
		resqueScheduler(),
		gitlab(),
		goRedislockFair(),
	}
}

// byToken lists the formats with a recognizable token under any name.
func byToken() []keyspace.Format {
	return []keyspace.Format{
		jedisLock(),
		redisPy(),
		redisMutexEx(),
		redsync(),
		redislock(),
		redlockPHP(),
		rslock(),
		redlockEx(),
		symfonyString(),
		easycaching(),
		nodeRedlock(),
		redlockPy(),
		goZero(),
		redisObjects(),
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
		django(),
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

// probeIf returns a Probe that is sure of the values that is matches, and of no other.
func probeIf(sure keyspace.Confidence, is func(first string) bool) func(key, first string) keyspace.Confidence {
	return func(_, first string) keyspace.Confidence {
		if is(first) {
			return sure
		}
		return keyspace.No
	}
}

// ifHeld returns the results of a Decode that needs a holder: without one, the entry is
// not a lock of the format.
func ifHeld(l keyspace.Lock, sure keyspace.Confidence) (keyspace.Lock, keyspace.Confidence) {
	if len(l.Holders) == 0 {
		return keyspace.Lock{}, keyspace.No
	}
	return l, sure
}
