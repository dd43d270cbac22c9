package formats

import (
	"encoding/json"
	"fmt"
	"slices"
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
func (s stringLock) under(prefixes string, about keyspace.About) keyspace.Format {
	return s.format(keyspace.Format{About: about, Prefixes: strings.Fields(prefixes)})
}

// where returns the format of such a mutex under the names that match.
func (s stringLock) where(match func(string) bool, about keyspace.About) keyspace.Format {
	return s.format(keyspace.Format{About: about, Match: match})
}

// anywhere returns the format of such a mutex under any name.
func (s stringLock) anywhere(about keyspace.About) keyspace.Format {
	return s.format(keyspace.Format{About: about})
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
	return len(s) == n && strings.Trim(s, "0123456789abcdef") == ""
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
	return atMilli(whole + (rest + "000")[:3])
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

// setNX is the format of SET key token NX PX and SETNX, from a library or from custom
// code: a string with a token of a common shape, or with any value if the name of the
// key says that it is a lock.
func setNX() keyspace.Format {
	return keyspace.Format{
		About: about("set-nx", "custom SET NX, and libraries that store a UUID or other random text: aioredlock, redlock-rb, sherlock, Spring, StackExchange.Redis, Verrou, XdpCs/redis-lock …",
			"redis.io/commands/set; common practice",
			"the value, the name and the TTL suggest a lock"),
		Attempts: stringAttempts(),
		Type:     "string",
		Probe: func(key, first string) keyspace.Confidence {
			return setNXConfidence(key, first, true, time.Time{})
		},
		Decode:  decodeSetNX,
		Actions: setNXActions(),
	}
}

// setNXConfidence returns the confidence for a value under this name. A number beside a lock is
// none; another number without a TTL is at most a possible one.
func setNXConfidence(key, value string, expires bool, now time.Time) keyspace.Confidence {
	t := tokenOf(value, now)
	sure := t.confidence(key, expires)
	if sure == keyspace.No {
		return sure // most keys
	}
	short, last := digits(value, 1, maxCounterDigits), nameWords[lastWord(key)]
	switch {
	case countsHolds(key, value), denies(value), short && last&property != 0:
		return keyspace.No
	case !expires && short && value != "1", // a counter
		!expires && hasWord(key, past) && !timeIn(value).IsZero(),
		t.baseConfidence == keyspace.No && (last&property != 0 || !expires && hasWord(key, setting)),
		shapeOf(value) == markShape && (strings.Contains(key, "@") || strings.Contains(strings.ToLower(key), "account_lock") || hasUse(key, logIn)): // it keeps a user out: login:lock:ada
		return min(sure, keyspace.Possible)
	default:
		return sure
	}
}

func decodeSetNX(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	t := tokenOf(e.Value, e.Now)
	sure := setNXConfidence(e.Key, e.Value, !e.Expires.IsZero(), e.Now)
	if sure == keyspace.No || e.Truncated() || permitsLeft(e) {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{
		Kind:    keyspace.Unknown,
		Holders: []keyspace.Holder{tokenHolder(e.Value, t.label, madeAt(t.id, e.Now), e.Now)},

		Unchecked: slices.Contains([]string{"", "*", "1", "true", "lock", "locked", "b:1;", "i:1;"}, strings.ToLower(e.Value)), // a flag of all holders
	}
	if t.known {
		l.Kind = keyspace.Mutex
	}
	if h := &l.Holders[0]; h.Label == "" {
		h.Label = owner(e.Value)
	}
	return l, sure
}

// setNXActions wake waiters by Spring's channel as well. Spring's locks look like others,
// and for other locks the channel has no subscribers.
func setNXActions() *keyspace.Actions {
	return announcing(tokenActions(), "poll; those of Spring receive the key on {registry}-channel:{key}", func(l keyspace.Lock) []string {
		registry, _, ok := strings.Cut(l.Key, ":")
		if !ok || !isUUID(l.Holders[0].ID) {
			return nil
		}
		return []string{registry + "-channel:" + l.Key, l.Key}
	})
}

// owner returns the owner in a JSON object, or "".
func owner(value string) string {
	var fields map[string]any
	if !strings.HasPrefix(value, "{") || json.Unmarshal([]byte(value), &fields) != nil {
		return ""
	}
	for _, name := range [...]string{"owner", "holder", "locked_by", "host", "hostname", "worker"} {
		switch v := fields[name].(type) {
		case string:
			return v
		case map[string]any: // an object of the application, as osparc's user
			if id := v["user_id"]; id != nil {
				return fmt.Sprintf("user %v", id)
			}
		}
	}
	return ""
}

// redislock is the format of several libraries that store 22 random characters: Go's bsm/redislock, base64url
// of 16 bytes, followed by the caller's metadata; Python's redlock-py, letters and digits; node's
// @redis-kit/lock, base64. Always with a TTL.
func redislock() keyspace.Format {
	return keyspace.Format{
		About: about("redislock", "bsm/redislock, redlock-py, @redis-kit/lock",
			"github.com/bsm/redislock@v0.10.0: redislock.go; github.com/SPSCommerce/redlock-py@42ef491061: redlock/__init__.py",
			"the value is 22 random characters, as several libraries write them, or begins with 22 that are base64 of 16 bytes"),
		Type:     "string",
		Attempts: append(stringAttempts(), byScript(0, 1, 2)), // bsm sends the length of the metadata, too
		Probe:    redislockToken,
		Related:  beside("string", redislockFence),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			sure := redislockToken(e.Key, e.Value)
			if sure == keyspace.No || e.Truncated() {
				return keyspace.Lock{}, keyspace.No
			}
			if e.Expires.IsZero() {
				sure = oneLess(sure)
			}
			return keyspace.Lock{
				Kind: keyspace.Mutex, Holders: []keyspace.Holder{{ID: e.Value, Label: e.Value[22:], Depth: 1}}, Fence: fenceIn(e, redislockFence(e.Key)),
			}, sure
		},
		Actions: tokenActions(),
	}
}

// redislockFence returns the counter of the fencing tokens, as the library's documentation names it.
func redislockFence(key string) string { return key + ":fence" }

// redislockToken returns the confidence for a value. Metadata can be any text, so with
// metadata the name must suggest a lock, too.
func redislockToken(key, value string) keyspace.Confidence {
	switch {
	case len(value) == 22 && isRandom(value):
		return randomToken(key)
	case len(value) <= 22 || !sixteenBytes(value[:22], "-_") || !mixed(value[:22]):
		return keyspace.No
	case isRandom(value) && (mixed(value[22:]) || slices.Contains([]int{24, 32, 43, 44, 64, 86, 88}, len(value))): // a longer token
		return keyspace.No
	case !looksLikeLock(key):
		return keyspace.Possible
	}
	return randomToken(key)
}
