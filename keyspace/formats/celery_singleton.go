package formats

import (
	"strings"

	"locktop/keyspace"
)

// celerySingleton is the format of celery-singleton, which queues a task only once:
// the task's ID, by default without a TTL.
func celerySingleton() keyspace.Format {
	const prefix = "SINGLETONLOCK_"
	r := stringLock{token: opaqueToken(func(v string) bool { return v != "" && len(v) < probeBytes }), sure: fixed(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "celery-singleton",
		Library:   "celery-singleton",
		Source:    "github.com/steinitzu/celery-singleton: celery_singleton/singleton.py",
		Signature: "the name is SINGLETONLOCK_ and a digest",
		Prefixes:  []string{prefix},
		Match:     func(key string) bool { return isHex(strings.TrimPrefix(key, prefix), 32) },
		Samples:   []keyspace.Sample{opaqueSample("a task in the queue", prefix+"900150983cd24fb0d6963f7d28e17f72", sampleUUID1, keyspace.Certain, 0)},
	})
}
