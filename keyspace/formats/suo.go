package formats

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"locktop/keyspace"
)

// suo is the format of Ruby's suo: a MessagePack array of holders, each the time of its
// acquire and a token. While held, the key has no TTL.
func suo() keyspace.Format {
	return keyspace.Format{
		Name:      "suo",
		NoTTL:     true,
		Library:   "suo",
		Source:    "github.com/nickelser/suo: lib/suo/client/redis.rb",
		Signature: "the value is a MessagePack array of times and tokens",
		Type:      "string",
		Probe: probeIf(keyspace.Certain, func(first string) bool {
			return len(first) > 3 && first[0]&0xf0 == suoArray && first[1:3] == suoPair
		}),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Mutex}
			if e.Truncated() || len(e.Value) < 2 || e.Value[0]&0xf0 != suoArray || e.Value[0] == suoArray {
				return keyspace.Lock{}, keyspace.No
			}
			rest := e.Value[1:]
			for range e.Value[0] & 0x0f {
				h, after, ok := suoHolder(rest, e.Now)
				if !ok {
					return keyspace.Lock{}, keyspace.No
				}
				l.Holders, rest = append(l.Holders, h), after
			}
			if rest != "" {
				return keyspace.Lock{}, keyspace.No
			}
			if len(l.Holders) > 1 {
				l.Kind = keyspace.Semaphore
			}
			return l, keyspace.Certain
		},
		Samples: []keyspace.Sample{{
			Name:     "held",
			Commands: [][]string{{"SET", "suo:gallery", "\x91" + suoPair + "\x41\xda\x47\xc8\x4e\x00\x00\x00" + "\xb8" + "qL3xN0b2Zf8dYw5tKcVj6Q=="}},
			Want: keyspace.Lock{
				Key: "suo:gallery", Kind: keyspace.Mutex, Confidence: keyspace.Certain,
				Holders: []keyspace.Holder{{ID: "qL3xN0b2Zf8dYw5tKcVj6Q==", Count: 1}},
			},
		}},
	}
}

// First bytes in MessagePack of a short array, of a pair that begins with a float, and
// of a short string.
const (
	suoArray  = 0x90
	suoPair   = "\x92\xcb"
	suoString = 0xa0
)

// suoHolder parses a pair of a time and a token, and returns the rest.
func suoHolder(s string, now time.Time) (h keyspace.Holder, rest string, ok bool) {
	s, ok = strings.CutPrefix(s, suoPair)
	if !ok || len(s) < 9 || s[8]&0xe0 != suoString {
		return h, "", false
	}
	seconds := math.Float64frombits(binary.BigEndian.Uint64([]byte(s[:8])))
	n := int(s[8] & 0x1f)
	if !(seconds > 1e9 && seconds < 1e10) || n == 0 || len(s) < 9+n {
		return h, "", false
	}
	at := time.UnixMilli(int64(seconds * 1000))
	return keyspace.Holder{ID: s[9 : 9+n], Count: 1, Since: plausibleStart(at, now)}, s[9+n:], true
}
