package formats

import (
	"encoding/base64"
	"time"

	"github.com/google/uuid"

	"locktop/keyspace"
)

// warlock is the format of node's warlock: base64 of a UUID v1, which contains its time.
func warlock() keyspace.Format {
	r := stringLock{token: warlockToken, sure: needsTTL(keyspace.Certain)}
	return r.format(keyspace.Format{
		Name:      "warlock",
		Library:   "warlock",
		Source:    "github.com/TheDeveloper/warlock: lib/warlock.js",
		Signature: "the name ends in :lock, and the value is base64 of a UUID that contains the time",
		Match:     ends(":lock"),
		Samples:   []keyspace.Sample{opaqueSample("held", "invoice:run:lock", "{v1b64-5000/5e}", keyspace.Certain, 10*time.Second)},
	})
}

func warlockToken(value string, now time.Time) (keyspace.Holder, bool) {
	if !redsyncToken(value) {
		return keyspace.Holder{}, false
	}
	raw, err := base64.StdEncoding.DecodeString(value)
	if err != nil {
		return keyspace.Holder{}, false
	}
	id, err := uuid.FromBytes(raw)
	if err != nil || id.Version() != 1 || id.Variant() != uuid.RFC4122 {
		return keyspace.Holder{}, false
	}
	made := madeAt(id, now)
	return keyspace.Holder{ID: value, Count: 1, Since: made}, now.IsZero() || !made.IsZero()
}
