package formats

import (
	"strconv"
	"time"

	"locktop/keyspace"
)

// redlockPHP is the format of ronnylt/redlock-php: the result of PHP's uniqid(), a time
// in µs as 13 hexadecimal digits.
func redlockPHP() keyspace.Format {
	r := stringLock{token: uniqid, sure: anyKey(keyspace.Likely)}
	return r.format(keyspace.Format{
		Name:      "redlock-php",
		Library:   "ronnylt/redlock-php",
		Source:    "github.com/ronnylt/redlock-php: src/RedLock.php",
		Signature: "the value is the time as PHP's uniqid() writes it",
		Samples:   []keyspace.Sample{opaqueSample("held", "stocktaking:hall-2", "{uniqid-2000}", keyspace.Likely, 10*time.Second)},
	})
}

// uniqid parses eight hexadecimal digits of seconds and five of µs, in this century.
func uniqid(value string, now time.Time) (keyspace.Holder, bool) {
	if !isHex(value, 13) {
		return keyspace.Holder{}, false
	}
	sec, _ := strconv.ParseInt(value[:8], 16, 64)
	micro, _ := strconv.ParseInt(value[8:], 16, 64)
	since := plausibleStart(time.Unix(sec, micro*1000), now)
	return keyspace.Holder{ID: value, Count: 1, Since: since}, micro < 1_000_000 && (now.IsZero() || !since.IsZero())
}
