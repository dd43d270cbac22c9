package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// reading is how to read a mutex that is one string.
type reading struct {
	// token takes the holder from a value, and judges by its shape alone. The
	// time is zero at a glance.
	token func(value string, now time.Time) (keyspace.Holder, bool)
	// sure is what a value of that shape makes of a key.
	sure func(key string, expires bool) keyspace.Confidence
}

// glanced is how much of a string a glance shows.
const glanced = 128

// glance is for Format.Glance.
func (r reading) glance(key, first string) keyspace.Confidence {
	if _, ok := r.token(first, time.Time{}); !ok && (len(first) < glanced || !lengthy(first)) {
		return keyspace.No
	}
	return max(r.sure(key, true), r.sure(key, false))
}

// lengthy reports whether a value that is longer than a glance may be a token:
// what makes tokens that long are names of machines and jobs, not prose, JSON or
// HTML.
func lengthy(value string) bool { return only(value, "._-:@+|/=") }

// decode is for Format.Decode.
func (r reading) decode(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if e.Truncated() || len(e.Value) >= glanced && !lengthy(e.Value) {
		return keyspace.Lock{}, keyspace.No
	}
	h, ok := r.token(e.Value, e.Now)
	if !ok {
		return keyspace.Lock{}, keyspace.No
	}
	return keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{h}}, r.sure(e.Key, !e.Expires.IsZero())
}

// shaped takes a value of a shape for a holder that tells nothing of itself.
func shaped(is func(string) bool) func(string, time.Time) (keyspace.Holder, bool) {
	return func(value string, _ time.Time) (keyspace.Holder, bool) {
		return keyspace.Holder{ID: value, Count: 1}, is(value)
	}
}

// always is for keys that are as surely a lock if they never expire.
func always(c keyspace.Confidence) func(string, bool) keyspace.Confidence {
	return func(string, bool) keyspace.Confidence { return c }
}

// leased is for locks that are always taken with a TTL: one without was
// tampered with, or is none.
func leased(c keyspace.Confidence) func(string, bool) keyspace.Confidence {
	return func(_ string, expires bool) keyspace.Confidence {
		if expires {
			return c
		}
		return lower(c)
	}
}

// anywhere is for tokens of any name: alone is what they make of a key that
// expires and whose name says nothing.
func anywhere(alone keyspace.Confidence) func(string, bool) keyspace.Confidence {
	return token{known: true, alone: alone}.confidence
}

// begins is for names with a fixed beginning and something behind.
func begins(prefixes ...string) func(string) bool {
	return func(key string) bool {
		for _, p := range prefixes {
			if len(key) > len(p) && strings.HasPrefix(key, p) {
				return true
			}
		}
		return false
	}
}

// ends is for names with a fixed end and something before.
func ends(suffix string) func(string) bool {
	return func(key string) bool { return len(key) > len(suffix) && strings.HasSuffix(key, suffix) }
}

// opaque is a sample of a mutex that is one string and whose holder tells
// nothing of itself, with what more commands store beside it; ttl 0 = for ever.
func opaque(name, key, value string, sure keyspace.Confidence, ttl time.Duration, more ...[]string) keyspace.Sample {
	s := held(name, key, value, "", ttl)
	s.Commands = append(s.Commands, more...)
	s.Want.Confidence = sure
	return s
}

// isUUID reports whether s is a UUID in its usual form.
func isUUID(s string) bool {
	_, ok := dashed(s)
	return ok
}

// isHex reports whether s is so many hexadecimal digits, in small letters.
func isHex(s string, n int) bool {
	if len(s) != n {
		return false
	}
	for i := range n {
		if !digit(s[i]) && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}

func digit(c byte) bool { return '0' <= c && c <= '9' }

// isRaw reports whether s is so many random bytes, which are never all
// printable.
func isRaw(s string, n int) bool {
	return len(s) == n && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) >= 0
}

// atSeconds reads a time in seconds since 1970, with or without a fraction, of
// today's length.
func atSeconds(s string) (time.Time, bool) {
	whole, rest, _ := strings.Cut(s, ".")
	if !digits(whole, 10, 10) || rest != "" && !digits(rest, 1, 9) {
		return time.Time{}, false
	}
	at, ok := atMilli(whole + (rest + "000")[:3])
	return at, ok
}

// atScore reads the score of a zset as a time in ms, of today's length.
func atScore(ms float64) (time.Time, bool) {
	if !(ms >= 1e12 && ms < 1e13) {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(ms * 1000)), true
}

// past returns at unless it is nonsense as the begin of a hold: no lock is
// older than Redis, and none began in the future.
func past(at, now time.Time) time.Time {
	switch {
	case at.Year() < 2009, at.After(now.Add(time.Minute)):
		return time.Time{}
	case at.After(now):
		return now
	default:
		return at
	}
}
