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
    let asked // when the attempt began that got the lock: the library does not show it, nor its renewals
    const noted = Object.create(redis, { set: { value: (...args) => { asked = performance.now(); return redis.set(...args) } } })
    return async (key, ttl, wait, onLost) => {
      let gone = false
      const mutex = new Mutex(noted, key, {
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
        valid: ttl - (performance.now() - asked),
        async unlock() {
          await mutex.release()
          if (gone) throw new Lost()
        },
        extend() { throw new Error('the library renews by itself') },
      }
    }
  },
})
