package formats

import (
	"time"

	"locktop/keyspace"
)

// rslock is the format of Rust's rslock: 20 raw bytes under any name.
func rslock() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return isRaw(v, 20) }), sure: anyKey(keyspace.Likely)}
	return r.format(keyspace.Format{
		Name:      "rslock",
		Library:   "rslock",
		Source:    "github.com/hexcowboy/rslock: src/lock.rs",
		Signature: "the value is 20 raw bytes",
		Samples:   []keyspace.Sample{opaqueSample("held", "chunk:0042", "\x13\xc4\x00\x9arust\xff\x81lock20by\xe1\x02", keyspace.Likely, 10*time.Second)},
	})
}
