package formats

import (
	"fmt"
	"strings"
	"time"

	"locktop/keyspace"
)

// Key prefixes of simple-redis-mutex, and its channel for releases.
const (
	simpleMutexPrefix  = "@simple-redis-mutex:lock-"
	simpleMutexFences  = "@simple-redis-mutex:fencing-tokens"
	simpleMutexChannel = "@simple-redis-mutex:locks-releases"
)

// simpleRedisMutex is the format of npm's simple-redis-mutex: a random number in
// JavaScript's notation or, in old versions, 100 hexadecimal digits. One fence counter
// serves all locks. The counter and the tickets of old versions remain when no lock is
// held.
func simpleRedisMutex() keyspace.Format {
	r := stringLock{token: opaqueToken(simpleMutexToken), sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "simple-redis-mutex",
		Library:   "simple-redis-mutex",
		Source:    "github.com/AmrSaber/simple-redis-mutex: src/index.ts",
		Signature: "the name begins with " + simpleMutexPrefix + ", and the value is a random number",
		Prefixes:  []string{simpleMutexPrefix},
		Companion: func(key string) bool {
			ticket := strings.HasSuffix(key, ":next-id") || strings.HasSuffix(key, ":last-out-id")
			return key == simpleMutexFences || ticket && strings.HasPrefix(key, simpleMutexPrefix)
		},
		Actions: simpleMutexActions(),
		Samples: []keyspace.Sample{
			opaqueSample("held, the seventh hold of any lock", simpleMutexPrefix+"invoices", "0.8130532169470143", keyspace.Certain, 30*time.Second,
				[]string{"SET", simpleMutexFences, "7"}),
		},
	})
}

func simpleMutexToken(value string) bool {
	rest, fraction := strings.CutPrefix(value, "0.")
	return fraction && only(rest, "-") || isHex(value, 100)
}

// simpleMutexActions announce a release in JSON, like the library.
func simpleMutexActions() *keyspace.Actions {
	a := tokenActions()
	a.Args = func(l keyspace.Lock) []string {
		token := l.Holders[0].ID
		return []string{token, simpleMutexChannel, fmt.Sprintf(`{ "key": "%s", "value": "%s" }`, l.Key, token)}
	}
	a.WakeHint = "receive a message on " + simpleMutexChannel
	return a
}
