package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// xiaoxuxiansheng is the format of Go's xiaoxuxiansheng/redis_lock. The token has the
// holder's process and goroutine.
func xiaoxuxiansheng() keyspace.Format {
	r := stringLock{sure: needsTTL(keyspace.Certain), token: func(v string, _ time.Time) (keyspace.Holder, bool) {
		process, goroutine, ok := strings.Cut(v, "_")
		ok = ok && digits(process, 1, 10) && digits(goroutine, 1, 19)
		return keyspace.Holder{ID: v, Label: "process " + process + ", goroutine " + goroutine, Count: 1}, ok
	}}
	const key, value = "REDIS_LOCK_PREFIX_coupon:88", "20221_34"
	s := opaqueSample("held by a goroutine", key, value, keyspace.Certain, 30*time.Second)
	s.Want.Holders[0].Label = "process 20221, goroutine 34"
	return r.format(keyspace.Format{
		Name:      "xiaoxuxiansheng",
		Library:   "xiaoxuxiansheng/redis_lock",
		Source:    "github.com/xiaoxuxiansheng/redis_lock: lock.go",
		Signature: "the name begins with REDIS_LOCK_PREFIX_, and the value is process_goroutine",
		Prefixes:  []string{"REDIS_LOCK_PREFIX_"},
		Samples:   []keyspace.Sample{s},
	})
}
