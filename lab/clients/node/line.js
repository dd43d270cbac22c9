// The part that the Node clients of locktop load --exec share: the line protocol on stdin
// and stdout. A library is {name, kinds, renews, tells, open(urls)}; open returns
// lock(key, ttl, wait), which returns null if another client holds the lock, or
// {valid, unlock(), extend(ttl)}. unlock and extend throw Lost if the lock is lost; extend
// returns how long the lock is valid.
import { createInterface } from 'node:readline'
import { readFileSync } from 'node:fs'

export class Lost extends Error {}

// version returns the version of an installed package.
export const version = (name) =>
  JSON.parse(readFileSync(new URL(`node_modules/${name}/package.json`, import.meta.url))).version.replace(/^v/, '')

const say = (reply) => process.stdout.write(JSON.stringify(reply) + '\n')

export function serve(library) {
  const held = new Map()
  let lock
  let newest = 0

  const lost = (token) => held.has(token) && say({ event: 'lost', token })

  const answers = {
    async hello({ urls }) {
      lock = await library.open(urls)
      const { name, kinds, renews = false, tells = false } = library
      return { ok: true, name, kinds, renews, tells }
    },
    async lock({ key, ttl_ms, wait_ms }) {
      const token = `${process.pid}-${++newest}`
      const hold = await lock(key, ttl_ms, wait_ms, () => lost(token))
      if (!hold) return { ok: false, held: true }
      held.set(token, hold)
      return { ok: true, token, valid_ms: Math.floor(hold.valid) }
    },
    async unlock({ token }) {
      const hold = held.get(token)
      held.delete(token)
      await hold.unlock()
      return { ok: true }
    },
    async extend({ token, ttl_ms }) {
      const valid = await held.get(token).extend(ttl_ms)
      return { ok: true, valid_ms: Math.floor(valid) }
    },
    async bye() {
      await Promise.allSettled([...held.values()].map((hold) => hold.unlock()))
      process.exit(0)
    },
  }

  createInterface({ input: process.stdin }).on('line', async (text) => {
    const { id, op, ...request } = JSON.parse(text)
    try {
      say({ id, ...(await answers[op](request)) })
    } catch (err) {
      say(err instanceof Lost ? { id, ok: false, lost: true } : { id, ok: false, error: String(err) })
    }
  }).on('close', () => process.exit(0))
}
