"""The form of python-redis-lock 4.0, not the library: the commands that its Lock(auto_renewal=True) sends.
Waiters block on a list, a thread renews after 2/3 of the TTL, and the holder is not told of a loss."""
import base64, json, math, os, sys, threading, time
import redis

RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('LPUSH', KEYS[2], 1)
return redis.call('PEXPIRE', KEYS[2], 1000)"""
RENEW = "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end return redis.call('EXPIRE', KEYS[1], ARGV[2])"
printing = threading.Lock()

def say(**reply):
    with printing:
        print(json.dumps(reply), flush=True)

class Hold:
    """A lock named lock:NAME, with the list lock-signal:NAME. The TTL is in whole seconds."""
    def __init__(self, name, ttl_ms):
        self.keys, self.ttl = ("lock:" + name, "lock-signal:" + name), math.ceil(ttl_ms / 1000)
        self.id, self.released = base64.b64encode(os.urandom(18)).decode(), threading.Event()

    def acquire(self, wait):
        give_up, timed_out = time.monotonic() + wait, not wait
        while True:
            self.asked = time.monotonic()
            if server.set(self.keys[0], self.id, nx=True, ex=self.ttl):
                return True
            if timed_out:
                return False
            timed_out = not server.blpop(self.keys[1], max(1, math.ceil(give_up - time.monotonic())))

    def valid_ms(self):
        return int(1000 * (self.ttl - (time.monotonic() - self.asked)))

    def renew(self):
        """Ends with the first renewal that fails, also because of the network, and tells no one."""
        while not self.released.wait(self.ttl * 2 / 3):
            asked = time.monotonic()
            if not server.eval(RENEW, 1, self.keys[0], self.id, self.ttl):
                return
            self.asked = asked
            say(event="renewed", token=self.id, valid_ms=self.valid_ms())

    def release(self):
        self.released.set()
        self.renewer.join()
        return server.eval(RELEASE, 2, *self.keys, self.id)

def lock(id, name, ttl_ms, wait_ms):
    hold = Hold(name, ttl_ms)
    if not hold.acquire(wait_ms / 1000):
        return say(id=id, ok=False, held=True)
    held[hold.id] = hold
    say(id=id, ok=True, token=hold.id, valid_ms=hold.valid_ms())
    hold.renewer = threading.Thread(target=hold.renew, daemon=True)
    hold.renewer.start()

held = {}
for line in sys.stdin:
    r = json.loads(line)
    try:
        if r["op"] == "hello":
            server = redis.Redis.from_url(r["urls"][0])
            say(ok=True, name="python-redis-lock-form 4.0", kinds=["mutex"], renews=True)
        elif r["op"] == "lock":
            lock(r["id"], r["key"], r["ttl_ms"], r["wait_ms"])
        elif r["op"] == "unlock":
            mine = held.pop(r["token"]).release()
            say(id=r["id"], ok=bool(mine), lost=not mine)
        elif r["op"] == "bye":
            break
        else:
            say(id=r["id"], ok=False, error="the library renews by itself")
    except redis.RedisError as e:
        say(id=r.get("id"), ok=False, error=str(e))
for hold in held.values():
    hold.release()
