package formats

import (
	"strings"
	"time"

	"github.com/google/uuid"

	"locktop/keyspace"
)

// token is what the shape of a value tells of a lock.
type token struct {
	known bool                // it is a shape that is used for locks at all
	alone keyspace.Confidence // what it makes of a key that expires, under a name that says nothing
	rare  bool                // hardly anything else has the shape: it makes as much of a key that never expires
	id    uuid.UUID           // in it; zero if there is none
	label string              // in it, for people
}

// tokenOf recognises the tokens that libraries make and that people write by
// hand. The time is zero at a glance.
func tokenOf(value string, now time.Time) token {
	if t := uuidToken(value, now); t.known {
		return t
	}
	n := len(value)
	switch {
	case n == 16 && only(value, ""), n == 20 && only(value, "-_"), n == 22 && only(value, "-_"):
		return token{known: true, alone: keyspace.Possible}
	case n == 44 && strings.HasSuffix(value, "=") && only(value[:43], "+/"):
		return token{known: true, alone: keyspace.Possible} // base64 of 32 bytes
	case n == 24 && only(value, "+/"): // base64 of 18 bytes
		return token{known: true}
	default:
		return token{known: byHand(value)}
	}
}

// uuidToken recognises a UUID with or without dashes, alone or with a time, a
// thread or a name behind.
func uuidToken(value string, now time.Time) token {
	if id, ok := undashed(value); ok {
		if timely(id, now) {
			return token{known: true, alone: keyspace.Likely, rare: true, id: id} // redis-py and its family
		}
		return token{known: true, alone: keyspace.Possible}
	}
	if len(value) < 36 {
		return token{}
	}
	id, ok := dashed(value[:36])
	if !ok {
		return token{}
	}
	t := token{known: true, alone: keyspace.Possible, id: id}
	rest := value[36:]
	switch {
	case rest == "":
		if id.Version() == 1 {
			t.alone = keyspace.Likely
		}
		return t
	case strings.IndexByte(":._", rest[0]) >= 0 && digits(rest[1:], 13, 13):
		t.alone, t.rare = keyspace.Likely, true // and the time in ms
		return t
	case rest[0] == ':' && digits(rest[1:], 1, 10):
		return t
	case rest[0] == '-' && len(rest) > 1:
		t.label = rest[1:]
		return t
	default:
		return token{}
	}
}

// numberMost is the length of a number that is no time in seconds.
const numberMost = 9

// counted reports whether a key that never expires counts something, by its value: a
// number that is no mark and no time.
func counted(value string, expires bool) bool {
	return !expires && digits(value, 1, numberMost) && value != "0" && value != "1"
}

// byHand recognises what people store without a library: a mark, a time, or
// who they are.
func byHand(value string) bool {
	for _, mark := range [...]string{"", "true", "locked", "lock"} {
		if len(value) == len(mark) && strings.EqualFold(value, mark) {
			return true
		}
	}
	if digits(value, 1, 19) {
		return true
	}
	host, process, ok := cutLast(value, ":")
	return ok && host != "" && only(host, "._-") && digits(process, 1, 10)
}

// confidence is what the token makes of a key of that name.
func (t token) confidence(key string, expires bool) keyspace.Confidence {
	switch signOf(key) {
	case strongName:
		return keyspace.Likely
	case weakName:
		if t.known || expires {
			return keyspace.Likely
		}
		return keyspace.Possible
	}
	sure := t.alone
	if !expires && !t.rare {
		sure = lower(sure)
	}
	if sure > keyspace.No && otherwise(key) {
		sure = lower(sure)
	}
	return sure
}

// dashed reads a UUID in its usual form, as every library writes it.
func dashed(s string) (uuid.UUID, bool) {
	if len(s) != 36 || s[8] != '-' {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}

// undashed reads 32 hexadecimal digits.
func undashed(s string) (uuid.UUID, bool) {
	if len(s) != 32 {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}

// byTime reports whether a UUID is of a version that tells when it was made.
func byTime(id uuid.UUID) bool {
	return id.Variant() == uuid.RFC4122 && (id.Version() == 1 || id.Version() == 7)
}

// timely reports whether a UUID is of version 1 and was made so lately that a lock may
// still have it: one of 64 values of 32 hexadecimal digits looks like such a UUID,
// and one of a million tells a time within these days. The time is zero at a glance.
func timely(id uuid.UUID, now time.Time) bool {
	if id.Version() != 1 || !byTime(id) {
		return false
	}
	made := madeAt(id, now)
	return now.IsZero() || !made.IsZero() && now.Sub(made) < tokenMost
}

// tokenMost is how old the token of a lock is at the most, if nothing but its time
// speaks for it.
const tokenMost = 60 * 24 * time.Hour

// madeAt returns when a UUID was made, on the clock of whoever made it; zero
// if it does not tell, or tells nonsense: no lock is older than Redis, and none
// began in the future. A clock that is a little ahead of the server's is no
// nonsense.
func madeAt(id uuid.UUID, now time.Time) time.Time {
	if !byTime(id) {
		return time.Time{}
	}
	return past(time.Unix(id.Time().UnixTime()), now)
}

// only reports whether every byte of s is alphanumeric or one of extra.
func only(s, extra string) bool {
	for i := range len(s) {
		if !alnum(s[i]) && strings.IndexByte(extra, s[i]) < 0 {
			return false
		}
	}
	return true
}

// digits reports whether s is a number of so many digits.
func digits(s string, atLeast, atMost int) bool {
	if len(s) < atLeast || len(s) > atMost {
		return false
	}
	for i := range len(s) {
		if !digit(s[i]) {
			return false
		}
	}
	return true
}

// sixteenBytes reports whether s is base64 of 16 bytes without its padding:
// 22 characters, of which the last carries two bits only. Words and numbers
// that happen to be as long lack what random bytes hardly ever do: capitals
// and small letters (1 of 30,000 does).
func sixteenBytes(s, extra string) bool {
	return len(s) == 22 && strings.IndexByte("AQgw", s[21]) >= 0 && only(s, extra) &&
		s != strings.ToLower(s) && s != strings.ToUpper(s)
}
