"""Takes a lock with redis-py, says "held", and gives the lock back when its
input ends:  python3 hold.py PORT KEY [SECONDS]"""

import sys

import redis

port, key = int(sys.argv[1]), sys.argv[2]
timeout = float(sys.argv[3]) if len(sys.argv) > 3 else None
lock = redis.Redis(port=port).lock(key, timeout=timeout)
if not lock.acquire(blocking_timeout=10):
    sys.exit(f"{key} is held by somebody else")
print("held", flush=True)
sys.stdin.read()
lock.release()
