package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// shedlock is the format of Java's ShedLock: the start of the job and its host. A key
// may outlive its job, until the minimum hold time ends.
func shedlock() keyspace.Format {
	return stringLock{token: shedlockToken, sure: needsTTL(keyspace.Certain)}.anywhere(
		about("shedlock", "ShedLock", "github.com/lukas-krecan/ShedLock@shedlock-parent-7.9.0: InternalRedisLockProvider.java",
			"the value is ADDED:, a time, @ and a host"))
}

func shedlockToken(value string, now time.Time) (keyspace.Holder, bool) {
	rest, ok := strings.CutPrefix(value, "ADDED:")
	stamp, host, found := strings.Cut(rest, "@")
	if !ok || !found || host == "" {
		return keyspace.Holder{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return keyspace.Holder{}, false
	}
	if id, cut := len(host)-37, len(host) > 37; cut && host[id] == ':' && isUUID(host[id+1:]) {
		host = host[:id]
	}
	return keyspace.Holder{ID: value, Label: host, Depth: 1, Since: plausibleStart(at, now)}, true
}

// jedisLock is the format of tokens with a UUID and a time in ms: in
// abelaska/jedis-lock the deadline, without a TTL; in others the time of the acquire,
// with a TTL.
func jedisLock() keyspace.Format {
	r := stringLock{token: opaqueToken(func(v string) bool { // a UUID, a separator and 13 digits
		return len(v) == 37+13 && isUUID(v[:36]) && strings.IndexByte(":._", v[36]) >= 0 && digits(v[37:], 13, 13)
	}), sure: token{known: true, baseConfidence: keyspace.Likely, distinctive: true}.confidence}
	return r.format(keyspace.Format{
		About: about("jedis-lock", "abelaska/jedis-lock, custom UUID and time", "github.com/abelaska/jedis-lock@6b75223f4c: JedisLock.java; common practice",
			"the value is a UUID and a time in ms"),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := r.decode(e)
			if sure == keyspace.No {
				return l, sure
			}
			at, _ := atMilli(e.Value[37:])
			switch {
			case e.Expires.IsZero():
				l.Expires = at
				l.Evidence = []string{whyByValue}
			case !at.After(e.Now):
				l.Holders[0].Since = plausibleStart(at, e.Now)
			}
			return l, sure
		},
		Actions: valueActions(),
	})
}
