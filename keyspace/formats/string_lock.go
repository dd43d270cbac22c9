package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// stringLock decodes a mutex that is one string.
type stringLock struct {
	// token returns the holder from a value, and whether the value has the right shape. The
	// time is zero in a probe.
	token func(value string, now time.Time) (keyspace.Holder, bool)
	// sure returns the confidence for a value of that shape.
	sure func(key string, expires bool) keyspace.Confidence
}

// probeBytes is how many bytes of a string a probe sees.
const probeBytes = 128

// probe implements Format.Probe.
func (s stringLock) probe(key, first string) keyspace.Confidence {
	if _, ok := s.token(first, time.Time{}); !ok && (len(first) < probeBytes || !maybeLongToken(first)) {
		return keyspace.No
	}
	return max(s.sure(key, true), s.sure(key, false))
}

// format completes the format of such a mutex. Where f has no Probe, Decode, Actions
// or Attempts, it gets those of the string and of its token.
func (s stringLock) format(f keyspace.Format) keyspace.Format {
	f.Type = "string"
	if f.Probe == nil {
		f.Probe = s.probe
	}
	if f.Decode == nil {
		f.Decode = s.decode
	}
	if f.Actions == nil {
		f.Actions = tokenActions()
	}
	if f.Attempts == nil {
		f.Attempts = stringAttempts()
	}
	return f
}

// under returns the format of such a mutex under the names with one of some prefixes, between spaces.
func (s stringLock) under(prefixes string, about keyspace.About, samples ...keyspace.Sample) keyspace.Format {
	return s.format(keyspace.Format{About: about, Prefixes: strings.Fields(prefixes), Samples: samples})
}

// where returns the format of such a mutex under the names that match.
func (s stringLock) where(match func(string) bool, about keyspace.About, samples ...keyspace.Sample) keyspace.Format {
	return s.format(keyspace.Format{About: about, Match: match, Samples: samples})
}

// anywhere returns the format of such a mutex under any name.
func (s stringLock) anywhere(about keyspace.About, samples ...keyspace.Sample) keyspace.Format {
	return s.format(keyspace.Format{About: about, Samples: samples})
}

// maybeLongToken reports whether a value that is longer than a probe can be a token.
// Tokens of that length consist of host and job names, not of prose, JSON or HTML.
func maybeLongToken(value string) bool { return only(value, "._-:@+|/=") }

// decode implements Format.Decode.
func (s stringLock) decode(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if e.Truncated() || len(e.Value) >= probeBytes && !maybeLongToken(e.Value) {
		return keyspace.Lock{}, keyspace.No
	}
	h, ok := s.token(e.Value, e.Now)
	if !ok {
		return keyspace.Lock{}, keyspace.No
	}
	return keyspace.Lock{Kind: keyspace.Mutex, Holders: []keyspace.Holder{h}}, s.sure(e.Key, !e.Expires.IsZero())
}

// opaqueToken returns a token function for values of a shape that contain no
// information about the holder.
func opaqueToken(is func(string) bool) func(string, time.Time) (keyspace.Holder, bool) {
	return func(value string, _ time.Time) (keyspace.Holder, bool) {
		return keyspace.Holder{ID: value, Depth: 1}, is(value)
	}
}

// fixed returns a confidence that does not depend on the expiry.
func fixed(c keyspace.Confidence) func(string, bool) keyspace.Confidence {
	return func(string, bool) keyspace.Confidence { return c }
}

// needsTTL returns c for keys that expire and the next lower confidence for others: the
// library always sets a TTL.
func needsTTL(c keyspace.Confidence) func(string, bool) keyspace.Confidence {
	return func(_ string, expires bool) keyspace.Confidence {
		if expires {
			return c
		}
		return oneLess(c)
	}
}

// certainWith returns certain for names with a mark of the library, and likely for others.
func certainWith(mark string) func(string, bool) keyspace.Confidence {
	return func(key string, _ bool) keyspace.Confidence {
		if strings.Contains(key, mark) {
			return keyspace.Certain
		}
		return keyspace.Likely
	}
}

// anyKey is for tokens under any name: base is the confidence for a key that expires
// and whose name suggests nothing.
func anyKey(base keyspace.Confidence) func(string, bool) keyspace.Confidence {
	return token{known: true, baseConfidence: base}.confidence
}

// begins matches names that have the prefix and are longer.
func begins(prefix string) func(string) bool {
	return func(key string) bool { return len(key) > len(prefix) && strings.HasPrefix(key, prefix) }
}

// ends matches names that have the suffix and are longer.
func ends(suffix string) func(string) bool {
	return func(key string) bool { return len(key) > len(suffix) && strings.HasSuffix(key, suffix) }
}

// opaqueSample returns a sample of a mutex that is one string with an opaque token;
// more are further commands; ttl 0 = no expiry.
func opaqueSample(name, key, value string, sure keyspace.Confidence, ttl time.Duration, more ...[]string) keyspace.Sample {
	s := held(name, key, value, "", ttl)
	s.Commands = append(s.Commands, more...)
	s.Want.Confidence = sure
	return s
}

// labelled returns a sample whose holder has a label.
func labelled(label string, s keyspace.Sample) keyspace.Sample {
	s.Want.Holders[0].Label = label
	return s
}

// unchecked returns the format of a library that unlocks without a check whose lock it is.
func unchecked(f keyspace.Format) keyspace.Format {
	f.Unchecked = true
	return f
}

// isUUID reports whether s is a UUID with dashes.
func isUUID(s string) bool {
	_, ok := dashed(s)
	return ok
}

// isHex reports whether s is n hexadecimal digits in lower case.
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

// isRaw reports whether s is n random bytes, which are never all printable.
func isRaw(s string, n int) bool {
	return len(s) == n && strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) >= 0
}

// atSeconds parses a current time in seconds since 1970, with or without a fraction.
func atSeconds(s string) (time.Time, bool) {
	whole, rest, _ := strings.Cut(s, ".")
	if !digits(whole, 10, 10) || rest != "" && !digits(rest, 1, 9) {
		return time.Time{}, false
	}
	at, ok := atMilli(whole + (rest + "000")[:3])
	return at, ok
}

// atScore reads the score of a zset as a current time in ms.
func atScore(ms float64) (time.Time, bool) {
	if !(ms >= 1e12 && ms < 1e13) {
		return time.Time{}, false
	}
	return time.UnixMicro(int64(ms * 1000)), true
}

// plausibleStart returns at if it can be the begin of a hold: no lock is older than
// Redis, and none began in the future. Otherwise it returns zero.
func plausibleStart(at, now time.Time) time.Time {
	switch {
	case at.Year() < 2009, at.After(now.Add(time.Minute)):
		return time.Time{}
	case at.After(now):
		return now
	default:
		return at
	}
}

// opaque returns a mutex whose values have a shape and say nothing about the holder.
func opaque(is func(string) bool, sure func(string, bool) keyspace.Confidence) stringLock {
	return stringLock{token: opaqueToken(is), sure: sure}
}
