"""The lock of redis-py: redis.Redis.lock. It does not renew, and polls every 100 ms unless told otherwise."""
import json, sys, time
import redis
from redis.exceptions import LockError
from redis.lock import Lock

class TimedLock(Lock):
    """Notes when the attempt began that got the lock: the library does not show it."""
    def do_acquire(self, token):
        self.asked = time.monotonic()
        return super().do_acquire(token)

    def valid_ms(self):
        return int(1000 * (self.timeout - (time.monotonic() - self.asked)))

def say(id, **reply):
    print(json.dumps(reply | {"id": id} if id else reply), flush=True)

def acquire(id, key, ttl_ms, wait_ms):
    lock = TimedLock(server, key, timeout=ttl_ms / 1000)
    if lock.acquire(blocking_timeout=wait_ms / 1000):
        held[str(id)] = lock
        say(id, ok=True, token=str(id), valid_ms=lock.valid_ms())
    else:
        say(id, ok=False, held=True)

def extend(id, token, ttl_ms):
    lock, asked = held[token], time.monotonic()
    lock.extend(ttl_ms / 1000, replace_ttl=True)
    lock.asked = asked
    say(id, ok=True, valid_ms=lock.valid_ms())

held = {}
for line in sys.stdin:
    r = json.loads(line)
    op, id = r["op"], r.get("id")
    try:
        if op == "hello":
            server = redis.Redis.from_url(r["urls"][0])
            say(None, ok=True, name="redis-py " + redis.__version__, kinds=["mutex"])
        elif op == "lock":
            acquire(id, r["key"], r["ttl_ms"], r["wait_ms"])
        elif op == "unlock":
            held.pop(r["token"]).release()
            say(id, ok=True)
        elif op == "extend":
            extend(id, r["token"], r["ttl_ms"])
        elif op == "bye":
            break
    except LockError:
        say(id, ok=False, lost=True)
    except redis.RedisError as e:
        say(id, ok=False, error=str(e))
