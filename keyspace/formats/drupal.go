package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// drupal is the format of the lock backend of Drupal's Redis module: the ID of the
// request, which contains the time and is the same in all locks of the request.
func drupal() keyspace.Format {
	r := stringLock{token: drupalRequest, sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "drupal",
		Library:   "Drupal's Redis module",
		Source:    "github.com/md-systems/redis: src/Lock/PhpRedis.php",
		Signature: "the name contains :lock:, and the value is the ID of a Drupal request, which contains the time",
		Match:     func(key string) bool { return strings.Contains(key, ":lock:") },
		Samples:   []keyspace.Sample{opaqueSample("held", "drupal:lock:cron", "1827{uniqid-4000}.48151623", keyspace.Certain, 30*time.Second)},
	})
}

// drupalRequest parses the result of PHP's uniqid(mt_rand(), true).
func drupalRequest(value string, now time.Time) (keyspace.Holder, bool) {
	whole, fraction, ok := strings.Cut(value, ".")
	at := len(whole) - 13
	if !ok || !digits(fraction, 8, 8) || at < 1 || !digits(whole[:at], 1, 10) {
		return keyspace.Holder{}, false
	}
	h, ok := uniqid(whole[at:], now)
	h.ID = value
	return h, ok
}
