package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// redsync is the format of Go's redsync, and of gocron's lock, which uses redsync: base64
// of 16 random bytes with padding, under any name, always with a TTL.
func redsync() keyspace.Format {
	return keyspace.Format{
		Name:      "redsync",
		Library:   "redsync",
		Source:    "github.com/go-redsync/redsync: mutex.go",
		Signature: "the value is base64 of 16 bytes, as redsync writes it",
		Type:      "string",
		Probe: func(key, first string) keyspace.Confidence {
			if !redsyncToken(first) {
				return keyspace.No
			}
			return randomToken(key)
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			if !redsyncToken(e.Value) {
				return keyspace.Lock{}, keyspace.No
			}
			sure := randomToken(e.Key)
			if e.Expires.IsZero() {
				sure = oneLess(sure)
			}
			return keyspace.Lock{
				Kind:    keyspace.Mutex,
				Holders: []keyspace.Holder{{ID: e.Value, Count: 1}},
			}, sure
		},
		Actions: tokenActions(),
		Samples: []keyspace.Sample{{
			Name:     "held",
			Commands: [][]string{{"SET", "inventory:sku-9", "qL3xN0b2Zf8dYw5tKcVj6Q==", "PX", "8000"}},
			Want: keyspace.Lock{
				Key: "inventory:sku-9", Kind: keyspace.Mutex, Confidence: keyspace.Likely,
				Holders: []keyspace.Holder{{ID: "qL3xN0b2Zf8dYw5tKcVj6Q==", Count: 1}},
			},
			TTL: 8 * time.Second,
		}},
	}
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
