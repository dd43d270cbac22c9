//go:build unix

package clienttest

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
	"locktop/internal/servertest"
)

// Scripts of the styles. ARGV is the token, the TTL in milliseconds, the permits, how far
// the clock of the client is ahead, the flaw, and the owner.
const (
	releaseScript = `if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('publish', KEYS[1]..':released', '')
return redis.call('del', KEYS[1])`
	extendScript = `if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])`
	fencedScript = `if redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) then return redis.call('incr', KEYS[1]..':fence') end return 0`

	// A hash with the owner, and a field for each entry.
	enterScript = `local owner = redis.call('hget', KEYS[1], 'owner')
if owner and owner ~= ARGV[6] then return 0 end
redis.call('hset', KEYS[1], 'owner', ARGV[6], ARGV[1], 1)
return redis.call('pexpire', KEYS[1], ARGV[2])`
	exitScript = `if redis.call('hget', KEYS[1], 'owner') ~= ARGV[6] then return 0 end
local entry = ARGV[1]
if ARGV[5] == 're-release-retry' or ARGV[5] == 're-retry' then -- a count: any entry
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do if field ~= 'owner' then entry = field end end
end
redis.call('hdel', KEYS[1], entry)
if redis.call('hlen', KEYS[1]) == 1 or ARGV[5] == 're-first-frees' then redis.call('del', KEYS[1]) end
return 1`
	stayScript = `if redis.call('hget', KEYS[1], 'owner') ~= ARGV[6] then return 0 end return redis.call('pexpire', KEYS[1], ARGV[2])`

	clock = `redis.replicate_commands()
local t = redis.call('time')
local now = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[4]
local readers = KEYS[1]..':readers'
`
	// A key of the writer, and a sorted set of the readers by the ends of their leases.
	endedScript = clock + `if ARGV[5] ~= 'readers-forever' then redis.call('zremrangebyscore', readers, '-inf', now) end
`
	readScript = endedScript + `if redis.call('exists', KEYS[1]) == 1 then
  if ARGV[5] == 'rw-persist' then redis.call('persist', KEYS[1]) end
  return 0
end
redis.call('zadd', readers, now + ARGV[2], ARGV[1])
if ARGV[5] == 'readers-forever' or ARGV[5] == 'rw-read-ttl' and redis.call('zcard', readers) > 1 then return 1 end
return redis.call('pexpire', readers, ARGV[2])`
	writeScript = endedScript + `if redis.call('zcard', readers) > 0 then return 0 end
return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2]) and 1 or 0`
	unreadScript = endedScript + `if ARGV[5] == 'rw-all-readers' then return redis.call('del', readers) end return redis.call('zrem', readers, ARGV[1])`
	rereadScript = endedScript + `if not redis.call('zscore', readers, ARGV[1]) then return 0 end
redis.call('zadd', readers, now + ARGV[2], ARGV[1])
return redis.call('pexpire', readers, ARGV[2])`

	// A sorted set of the holders by the ends of their leases.
	holdersScript = clock + `if ARGV[5] ~= 'sem-counts-expired' then redis.call('zremrangebyscore', KEYS[1], '-inf', now) end
`
	permitScript = holdersScript + `if redis.call('zcard', KEYS[1]) >= tonumber(ARGV[3]) then return 0 end
return redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1])`
	permittedScript = holdersScript + `if not redis.call('zscore', KEYS[1], ARGV[1]) then return 0 end
redis.call('zadd', KEYS[1], now + ARGV[2], ARGV[1]) return 1`
	giveBackScript = holdersScript + `return redis.call('zrem', KEYS[1], ARGV[1])`
)

// script runs a script for a hold.
func (c *testClient) script(node server.Client, text string, h *testHold) (bool, error) {
	n, err := node.Eval(context.Background(), text, []string{h.key}, h.token, h.ttl.Milliseconds(), h.permits, c.ahead.Milliseconds(), c.flaw, c.owner).Int64()
	if c.style == "fenced" && text == fencedScript {
		if h.fence = n; c.is("fence-constant") {
			h.fence = 7
		}
	}
	return n > 0, err
}

// acquire asks a node once. Waited: it has asked before.
func (c *testClient) acquire(node server.Client, h *testHold, waited bool) (bool, error) {
	ctx, ttl := context.Background(), h.ttl
	switch c.style {
	case "reentrant":
		entry := *h
		if c.is("re-retry") && waited {
			entry.token += " again"
		}
		return c.script(node, enterScript, &entry)
	case "rw":
		if h.read {
			return c.script(node, readScript, h)
		}
		return c.script(node, writeScript, h)
	case "semaphore":
		return c.script(node, permitScript, h)
	case "fenced":
		return c.script(node, fencedScript, h)
	}
	switch c.flaw {
	case "forever":
		ttl = 0
	case "seconds-zero":
		if ttl < time.Second {
			ttl = 0
		}
	case "seconds-floor":
		ttl = max(ttl.Truncate(time.Second), time.Second)
	case "queue":
		if node.LIndex(ctx, h.key+":queue", 0).Val() != h.token {
			return false, nil
		}
	case "token-name":
		got, err := node.SetNX(ctx, h.key, h.token, ttl).Result()
		return got || err == nil && node.Get(ctx, h.key).Val() == h.token, err
	case "setnx-expire", "wait-two-commands":
		if waited || c.is("setnx-expire") {
			got, err := node.SetNX(ctx, h.key, h.token, 0).Result()
			if got {
				err = node.PExpire(ctx, h.key, ttl).Err()
			}
			return got, err
		}
	}
	return node.SetNX(ctx, h.key, h.token, ttl).Result()
}

// release gives a lock back on a node, and reports whether the client had it there.
func (c *testClient) release(node server.Client, h *testHold) (had bool, err error) {
	ctx := context.Background()
	switch c.style {
	case "reentrant":
		for try := 0; try < 3; try++ {
			if had, err = c.script(node, exitScript, h); err == nil || c.is("re-retry") {
				break
			}
		}
		return had, err
	case "rw":
		if h.read {
			return c.script(node, unreadScript, h)
		}
	case "semaphore":
		return c.script(node, giveBackScript, h)
	case "watch":
		return c.transaction(node, h, func(p redis.Pipeliner) { p.Del(ctx, h.key) })
	}
	switch c.flaw {
	case "blind":
		return true, node.Del(ctx, h.key).Err()
	case "repeats":
		had, err = c.script(node, releaseScript, h)
		for again := err; again != nil; again = node.Del(ctx, h.key).Err() {
			time.Sleep(50 * time.Millisecond) // meanwhile the next client acquires the lock
		}
		return had || err != nil, nil
	case "token-retry", "retries":
		for try := 0; try < 3; try++ {
			if had, err = c.script(node, releaseScript, h); err == nil {
				break
			}
		}
		return had, err
	case "cached":
		return node.EvalSha(ctx, c.sha, []string{h.key}, h.token).Bool()
	case "get-then-del":
		if node.Get(ctx, h.key).Val() != h.token {
			return false, nil
		}
		return true, node.Del(ctx, h.key).Err()
	}
	return c.script(node, releaseScript, h)
}

// extend renews a lock on a node, and reports whether the client has it there.
func (c *testClient) extend(node server.Client, h *testHold) (has bool, err error) {
	ctx := context.Background()
	switch c.style {
	case "reentrant":
		return c.script(node, stayScript, h)
	case "rw":
		if h.read {
			return c.script(node, rereadScript, h)
		}
	case "semaphore":
		return c.script(node, permittedScript, h)
	case "watch":
		return c.transaction(node, h, func(p redis.Pipeliner) { p.PExpire(ctx, h.key, h.ttl) })
	}
	switch c.flaw {
	case "renew-after-unlock":
		select {
		case <-h.released:
			return true, node.Set(ctx, h.key, h.token, h.ttl).Err()
		default:
		}
	case "recreates":
		return true, node.Set(ctx, h.key, h.token, h.ttl).Err()
	case "extend-set-xx":
		return node.SetXX(ctx, h.key, h.token, h.ttl).Result()
	case "extend-blind", "renew-blind":
		return node.PExpire(ctx, h.key, h.ttl).Result()
	}
	return c.script(node, extendScript, h)
}

// transaction changes a lock if the client has it.
func (c *testClient) transaction(node server.Client, h *testHold, change func(redis.Pipeliner)) (has bool, err error) {
	ctx := context.Background()
	err = servertest.Watch(ctx, node, func(tx redis.Cmdable) error {
		token, err := tx.Get(ctx, h.key).Result()
		if has = token == h.token; !has {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error { change(p); return nil })
		return err
	}, h.key)
	if errors.Is(err, redis.Nil) || errors.Is(err, redis.TxFailedErr) {
		return false, nil
	}
	return has, err
}
