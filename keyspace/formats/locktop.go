package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// locktop is the mutex of our own lock package: a string that holds the
// owner's label, a tilde, and a UUID v7 that is new for every attempt.
func locktop() keyspace.Format {
	return keyspace.Format{
		Name:    "locktop",
		Library: "locktop",
		Source:  "package locktop/lock",
		Type:    "string",
		Glance:  glanceLocktop,
		Decode:  decodeLocktop,
		Samples: []keyspace.Sample{{
			Name:     "held for nine seconds",
			Commands: [][]string{{"SET", "orders:4712", "pay-7:52~{v7-9000/4a}", "PX", "30000"}},
			Want: keyspace.Lock{
				Key: "orders:4712", Kind: keyspace.Mutex, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: "pay-7:52~{v7-9000/4a}", Label: "pay-7:52", Count: 1}},
			},
			TTL: 30 * time.Second,
		}},
	}
}

// glanceLocktop misses tokens whose label alone is longer than the glance; to
// read every long string for their sake would cost more than they are worth.
func glanceLocktop(_, first string) keyspace.Confidence {
	if strings.Contains(first, "~") {
		return keyspace.Certain
	}
	return keyspace.No
}

func decodeLocktop(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	i := strings.LastIndexByte(e.Value, '~')
	if i < 0 || e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	id, ok := dashed(e.Value[i+1:])
	if !ok || id.Version() != 7 {
		return keyspace.Lock{}, keyspace.No
	}
	return keyspace.Lock{
		Kind: keyspace.Mutex,
		Holders: []keyspace.Holder{{
			ID: e.Value, Label: e.Value[:i], Count: 1, Since: madeAt(id, e.Now),
		}},
	}, keyspace.Certain
}
