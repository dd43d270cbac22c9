package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// walrus is the format of Lock in Python's walrus: 32 raw bytes under lock:. Waiters
// block on a list, which remains after a release.
func walrus() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return isRaw(v, 32) }), sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:         "walrus",
		BlockingWait: true,
		Library:      "walrus",
		Source:       "github.com/coleifer/walrus: walrus/lock.py",
		Signature:    "the name begins with lock:, and the value is 32 raw bytes",
		Prefixes:     []string{"lock:"},
		Companion:    begins("lock.event:"),
		Actions: listActions(func(key string) string { return "lock.event:" + strings.TrimPrefix(key, "lock:") }, 0,
			"take an element from lock.event:{name}"),
		Samples: []keyspace.Sample{
			opaqueSample("held", "lock:walrus:crawl", "\x02\xf1walrus\x00\x9d\xa4raw\xfe32\x10bytes...012345", keyspace.Certain, 20*time.Second),
		},
	})
}
