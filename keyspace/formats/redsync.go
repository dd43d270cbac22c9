package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// redsync is the format of Go's redsync, and of gocron's lock, which uses redsync: base64
// of 16 random bytes with padding, under any name, always with a TTL.
func redsync() keyspace.Format {
	r := stringLock{token: opaqueToken(redsyncToken), sure: func(key string, expires bool) keyspace.Confidence {
		return needsTTL(randomToken(key))(key, expires)
	}}
	return r.format(keyspace.Format{
		Name:      "redsync",
		Library:   "redsync",
		Source:    "github.com/go-redsync/redsync: mutex.go",
		Signature: "the value is base64 of 16 bytes, as redsync writes it",
		Samples:   []keyspace.Sample{opaqueSample("held", "inventory:sku-9", "qL3xN0b2Zf8dYw5tKcVj6Q==", keyspace.Likely, 8*time.Second)},
	})
}

func redsyncToken(s string) bool {
	token, padded := strings.CutSuffix(s, "==")
	return padded && sixteenBytes(token, "+/")
}

// randomToken returns the confidence for 16 random bytes under this name: likely,
// unless the name suggests another random value.
func randomToken(key string) keyspace.Confidence {
	if hintOf(key) != strongHint && looksLikeOther(key) {
		return keyspace.Possible
	}
	return keyspace.Likely
}
