// A client of locktop load --exec that locks with the Mutex of redis-semaphore: it renews
// by itself, and tells its holder of a loss.
import Redis from 'ioredis'
import { LostLockError, Mutex, TimeoutError } from 'redis-semaphore'
import { Lost, serve, version } from './line.js'

serve({
  name: `redis-semaphore ${version('redis-semaphore')}`,
  kinds: ['mutex'],
  renews: true,
  tells: true,
  open([url]) {
    const redis = new Redis(url)
    return async (key, ttl, wait, onLost) => {
      let gone = false
      const mutex = new Mutex(redis, key, {
        lockTimeout: ttl,
        acquireTimeout: Math.max(wait, 1),
        onLockLost(err) {
          gone = err instanceof LostLockError
          onLost()
        },
      })
      try {
        await mutex.acquire()
      } catch (err) {
        if (err instanceof TimeoutError) return null
        throw err
      }
      return {
        valid: ttl / 5, // it renews after 4/5 of the TTL, and does not show when it did
        async unlock() {
          await mutex.release()
          if (gone) throw new Lost()
        },
        extend() { throw new Error('the library renews by itself') },
      }
    }
  },
})
