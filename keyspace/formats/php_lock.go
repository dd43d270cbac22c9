package formats

import (
	"time"

	"locktop/keyspace"
)

// phpLock is the format of PHP's php-lock/lock: 32 random bytes in hexadecimal. By
// default the key expires after 1000 years.
func phpLock() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return isHex(v, 64) }), sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "php-lock",
		Library:   "php-lock/lock",
		Source:    "github.com/php-lock/lock: src/Mutex/RedisMutex.php",
		Signature: "the name begins with php-malkusch-lock:, and the value is 64 hexadecimal digits",
		Prefixes:  []string{"php-malkusch-lock:"},
		Samples:   []keyspace.Sample{opaqueSample("held", "php-malkusch-lock:till-3", sampleHex1+sampleHex2, keyspace.Certain, 3*time.Second)},
	})
}
