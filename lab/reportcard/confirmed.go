//go:build unix

package main

// confirmed says how the failures were repeated without locktop: the name of a client, the
// name of a test, and what was done and seen.
var confirmed = map[string]map[string]string{
	"redis-cli": {
		"freeze":          lateDelete,
		"late-unlock":     lateDelete,
		"second-hold":     lateDelete,
		"partition":       lateDelete,
		"between-release": lateDelete,
		"lost-release":    lateDelete,
		"flushall":        "`SET k A NX PX 60000`, `FLUSHALL`, `SET k B NX PX 60000`, `DEL k` by A replies 1, and `SET k C NX PX 60000` replies OK.",
	},
	"redsync": {
		"nodes-3-down": "a Go program with five servers, of which three are down: LockContext with a context that ends after 1 s and an expiry of 6 s " +
			"fails, and the other two servers have its key for another 5.7 s (3 of 3 times).",
		"node-frozen": "a Go program with five servers, of which one is stopped by SIGSTOP: Lock over go-redis with its default options " +
			"returns an error after 30 s (3 tries). With `ContextTimeoutEnabled: true` in the options of go-redis it gets the lock after 101 ms.",
	},
	"redis-semaphore": {
		"partition": "a Node program with a lockTimeout of 2 s whose server is stopped by SIGSTOP: after 5 s isAcquired is still true, " +
			"and onLockLost was not called. It is called when the server answers again.",
	},
}

const lateDelete = "`SET k A NX PX 100`, then after 200 ms `SET k B NX PX 60000`: `DEL k` by A replies 1, and `SET k C NX PX 60000` replies OK."
