// Package formats knows how lock libraries store their locks in Redis. Each
// file is about one library or one custom, with samples of what it leaves
// behind. To teach locktop a library is to write such a file and to list it in
// All.
package formats

import (
	"slices"

	"locktop/keyspace"
)

// All returns every format, the most particular first: where several are
// equally sure of a key, the first has it.
func All() []keyspace.Format {
	return slices.Concat(owned(), named(), shapes(), customs())
}

// owned are told by a structure that nobody else writes.
func owned() []keyspace.Format {
	return []keyspace.Format{
		locktop(),
		locktopReentrant(),
		locktopRW(),
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

// named are told by a name that nobody else gives, and by what it is given to.
func named() []keyspace.Format {
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

// shapes are told by their tokens, whatever the name.
func shapes() []keyspace.Format {
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

// customs are what people write by hand. There the name must speak for a lock.
func customs() []keyspace.Format {
	return []keyspace.Format{
		readWriteKeys(),
		stampRW(),
		hashRW(),
		hashReentrant(),
		getset(),
		django(),
		setNX(),
		redissonCount(),
		dramatiq(),
		oversized(),
	}
}
