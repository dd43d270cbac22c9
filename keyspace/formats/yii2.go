package formats

import (
	"time"

	"locktop/keyspace"
)

// yii2 is the format of Mutex in PHP's yii2-redis: 20 characters under a digest of the
// application and the name.
func yii2() keyspace.Format {
	r := stringLock{sure: needsTTL(keyspace.Likely), token: opaqueToken(func(v string) bool { return len(v) == 20 && only(v, "-_") && mixed(v) })}
	return r.format(keyspace.Format{
		Name:      "yii2",
		Library:   "yii2-redis",
		Source:    "github.com/yiisoft/yii2-redis: src/Mutex.php",
		Signature: "the name is 37 hexadecimal digits, and the value 20 random characters",
		Match:     func(key string) bool { return isHex(key, 37) },
		Samples:   []keyspace.Sample{opaqueSample("held", "5d414"+sampleHex1, "Kq3_vN0b2Qf8dYw5tKcV", keyspace.Likely, 30*time.Second)},
	})
}
