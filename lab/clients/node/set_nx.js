// A client of locktop load --exec with a lock by hand, on ioredis: SET NX PX, and a script
// that deletes its own value. It does not renew, and does not learn of a loss.
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import Redis from 'ioredis'
import { Lost, serve, version } from './line.js'

const release = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

serve({
  name: `SET NX with ioredis ${version('ioredis')}`,
  kinds: ['mutex'],
  open([url]) {
    const redis = new Redis(url)
    redis.on('error', (err) => console.error(String(err)))
    return async (key, ttl, wait) => {
      const token = randomUUID()
      for (const giveUp = performance.now() + wait; ; await sleep(10)) {
        const asked = performance.now()
        if (await redis.set(key, token, 'PX', ttl, 'NX')) {
          return {
            get valid() { return ttl - (performance.now() - asked) },
            async unlock() { if (!(await redis.eval(release, 1, key, token))) throw new Lost() },
            extend() { throw new Error('the lock cannot be extended') },
          }
        }
        if (asked > giveUp) return null
      }
    }
  },
})
