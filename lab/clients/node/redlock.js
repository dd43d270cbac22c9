// A client of locktop load --exec that locks with redlock 5, over all servers.
import { setTimeout as sleep } from 'node:timers/promises'
import Redis from 'ioredis'
import Redlock, { ExecutionError, ResourceLockedError } from 'redlock5'
import { Lost, serve, version } from './line.js'

const retryDelay = 200 // the default of the library

function hold(lock) {
  return {
    get valid() { return lock.expiration - Date.now() },
    unlock: () => lock.release().catch(explain),
    async extend(ttl) {
      lock = await lock.extend(ttl).catch(explain)
      return lock.expiration - Date.now()
    },
  }
}

// explain throws Lost if the servers answered that the lock is not there.
async function explain(err) {
  if (err instanceof ExecutionError && (await refused(err))) throw new Lost()
  throw err
}

// refused reports whether all votes against the lock say that it is locked, or not there;
// undefined if a server that has not voted may never answer.
async function refused(err) {
  const attempts = await Promise.race([Promise.all(err.attempts), sleep(100)])
  if (!attempts) return undefined
  const votes = attempts.flatMap((stats) => [...stats.votesAgainst.values()])
  return votes.length > 0 && votes.every((vote) => vote instanceof ResourceLockedError)
}

serve({
  name: `redlock ${version('redlock5')}`,
  kinds: ['mutex', 'redlock'],
  open(urls) {
    const redlock = new Redlock(urls.map((url) => new Redis(url)), { retryDelay })
    redlock.on('error', (err) => err instanceof ResourceLockedError || console.error(String(err)))
    return async (key, ttl, wait) => {
      try {
        return hold(await redlock.acquire([key], ttl, { retryCount: Math.floor(wait / retryDelay) }))
      } catch (err) {
        if (err instanceof ExecutionError && (await refused(err)) !== false) return null
        throw err
      }
    }
  },
})
