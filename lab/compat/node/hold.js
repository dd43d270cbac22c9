// Hold takes a lock with a library, says "held", and gives the lock back when
// its input ends:  node hold.js LIBRARY PORT KEY
import { Queue, Worker } from 'bullmq'
import Redis from 'ioredis'
import { Mutex, Semaphore } from 'redis-semaphore'
import Redlock4 from 'redlock'
import Redlock5 from 'redlock5'

const ttl = 60_000
const [library, port, key] = process.argv.slice(2)
const redis = new Redis(Number(port), '127.0.0.1', { maxRetriesPerRequest: null })

const ended = new Promise((resolve) => {
  process.stdin.on('end', resolve)
  process.stdin.resume()
})

const holders = {
  async redlock4() {
    const lock = await new Redlock4([redis]).lock(key, ttl)
    return () => lock.unlock()
  },
  async redlock5() {
    const lock = await new Redlock5([redis]).acquire([key], ttl)
    return () => lock.release()
  },
  async mutex() {
    const mutex = new Mutex(redis, key, { lockTimeout: ttl, identifierSuffix: 'worker-3' })
    await mutex.acquire()
    return () => mutex.release()
  },
  async semaphore() {
    const semaphore = new Semaphore(redis, key, 3, { lockTimeout: ttl })
    await semaphore.acquire()
    return () => semaphore.release()
  },
  async bullmq() {
    const connection = { host: '127.0.0.1', port: Number(port), maxRetriesPerRequest: null }
    const queue = new Queue(key, { connection })
    let finish
    const running = new Promise((started) => {
      const worker = new Worker(key, () => new Promise((done) => { started(worker); finish = done }), { connection })
    })
    await queue.add('send', {})
    const worker = await running
    return async () => {
      finish()
      await worker.close()
      await queue.close()
    }
  },
}

const release = await holders[library]()
console.log('held')
await ended
await release()
redis.disconnect()
