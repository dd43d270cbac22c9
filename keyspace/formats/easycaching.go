package formats

import (
	"time"

	"locktop/keyspace"
)

// easycaching is the format of .NET's EasyCaching: the 16 raw bytes of a GUID. .NET
// reverses the bytes of the first three parts.
func easycaching() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { return isRaw(v, 16) && v[7]>>4 == 4 && v[8]&0xc0 == 0x80 }), sure: anyKey(keyspace.Possible)}
	return r.format(keyspace.Format{
		Name:      "easycaching",
		Library:   "EasyCaching",
		Source:    "github.com/dotnetcore/EasyCaching: EasyCaching.Redis/DistributedLock",
		Signature: "the value is the 16 raw bytes of a random GUID",
		Samples:   []keyspace.Sample{opaqueSample("held", "DefaultRedis:lock:menu", "\x52\x3d\x6a\x0f\x1c\x8b\x7f\x4e\xa2\xd9\x6c\x5b\x4a\x39\x28\x17", keyspace.Likely, 30*time.Second)},
	})
}
