"""A lock as most people write it with redis-py: SET NX PX, and a script that deletes its own value."""
import json, sys, time, uuid
import redis

UNLOCK = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"

def say(**reply):
    print(json.dumps(reply), flush=True)

def lock(id, key, ttl_ms, wait_ms):
    token, give_up = str(uuid.uuid4()), time.monotonic() + wait_ms / 1000
    while True:
        asked = time.monotonic()
        if server.set(key, token, nx=True, px=ttl_ms):
            keys[token] = key
            return say(id=id, ok=True, token=token, valid_ms=ttl_ms - int(1000 * (time.monotonic() - asked)) - 1)
        if time.monotonic() > give_up:
            return say(id=id, ok=False, held=True)
        time.sleep(0.01)

keys = {}
for line in sys.stdin:
    r = json.loads(line)
    if r["op"] == "hello":
        server = redis.Redis.from_url(r["urls"][0])
        say(ok=True, name="SET NX with redis-py " + redis.__version__, kinds=["mutex"])
    elif r["op"] == "lock":
        lock(r["id"], r["key"], r["ttl_ms"], r["wait_ms"])
    elif r["op"] == "unlock":
        mine = server.eval(UNLOCK, 1, keys.pop(r["token"]), r["token"])
        say(id=r["id"], ok=bool(mine), lost=not mine)
    elif r["op"] == "bye":
        break
    else:
        say(id=r["id"], ok=False, error="not supported: " + r["op"])
