package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// django is the format of Django's cache.add used as a lock: a pickled flag. Only its
// name distinguishes it from other cached values.
func django() keyspace.Format {
	r := stringLock{sure: anyKey(keyspace.No), token: opaqueToken(func(v string) bool {
		return len(v) > 2 && len(v) < 40 && v[0] == '\x80' && strings.HasSuffix(v, ".") && strings.Contains(v, "1")
	})}
	return r.format(keyspace.Format{
		Name:      "django-cache",
		Library:   "Django's cache.add",
		Source:    "github.com/django/django: django/core/cache/backends/redis.py",
		Signature: "the value is a mark as Python pickles it, and the name contains a word for locks",
		Match:     looksLikeLock,
		Samples:   []keyspace.Sample{opaqueSample("held", ":1:lock:newsletter", "\x80\x05\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x011\x94.", keyspace.Likely, time.Minute)},
	})
}
