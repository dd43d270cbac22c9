package formats

import (
	"fmt"

	"locktop/keyspace"
)

// oversized is the format of values that are too big for a lock although their name
// suggests one: a table of locks, a queue, or a mistake. It has no holders.
func oversized() keyspace.Format {
	return keyspace.Format{
		Name:          "oversized",
		Library:       "custom",
		Source:        "a name that suggests a lock, and a value that is too large for one",
		Signature:     "the name contains a word for locks",
		Type:          keyspace.AnyType,
		Match:         func(key string) bool { return hintOf(key) == strongHint },
		MaxConfidence: keyspace.Possible,
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			if !e.Truncated() {
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.Unknown, Evidence: []string{sizeOf(e) + " is too big for a lock"}}
			return l, keyspace.Possible
		},
		Samples: []keyspace.Sample{{
			Name:     "a string of 5000 bytes",
			Commands: [][]string{{"SETRANGE", "lock:archive", "4999", "x"}},
			Want: keyspace.Lock{
				Key: "lock:archive", Kind: keyspace.Unknown, Confidence: keyspace.Possible,
				Evidence: []string{"a string of 5000 bytes is too big for a lock"},
			},
		}},
	}
}

// sizeOf describes the type and size of an entry: "a hash of 1000000 elements".
func sizeOf(e keyspace.Entry) string {
	switch {
	case e.Type == "string":
		return fmt.Sprintf("a string of %d bytes", e.Len)
	case e.Oversized:
		return fmt.Sprintf("a %s of megabytes, which is not read,", e.Type)
	default:
		return fmt.Sprintf("a %s of %d elements", e.Type, e.Len)
	}
}
