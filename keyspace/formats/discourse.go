package formats

import (
	"time"

	"locktop/keyspace"
)

// discourse is the format of Discourse's DistributedMutex: the deadline in seconds, in
// a key that expires 1 s later.
func discourse() keyspace.Format {
	sure := anyKey(keyspace.Possible)
	return keyspace.Format{
		Name:      "discourse",
		Library:   "Discourse",
		Source:    "github.com/discourse/discourse: lib/distributed_mutex.rb",
		Signature: "the value is a time in seconds, just before the key expires",
		Type:      "string",
		Probe: func(key, first string) keyspace.Confidence {
			if !digits(first, 10, 10) {
				return keyspace.No
			}
			return sure(key, true)
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			at, ok := atSeconds(e.Value)
			if !ok || !digits(e.Value, 10, 10) || e.Expires.IsZero() || e.Expires.Sub(at).Abs() > 3*time.Second {
				return keyspace.Lock{}, keyspace.No
			}
			return keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Value, Count: 1}}}, sure(e.Key, true)
		},
		Actions: valueActions(),
		Samples: []keyspace.Sample{opaqueSample("held", "default:mutex:user-export", "{s+60000}", keyspace.Likely, 61*time.Second)},
	}
}
