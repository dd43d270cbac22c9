package formats

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"

	"github.com/google/uuid"
)

// drupalRequest parses the result of PHP's uniqid(mt_rand(), true).
func drupalRequest(value string, now time.Time) (keyspace.Holder, bool) {
	whole, fraction, ok := strings.Cut(value, ".")
	at := len(whole) - 13
	if !ok || !digits(fraction, 8, 8) || at < 1 || !digits(whole[:at], 1, 10) {
		return keyspace.Holder{}, false
	}
	h, ok := uniqid(whole[at:], now)
	h.ID = value
	return h, ok
}

// timedHex parses a UUID v1 without dashes and with a plausible time.
func timedHex(value string, now time.Time) (keyspace.Holder, bool) {
	id, ok := undashed(value)
	if !ok || !recentV1(id, now) {
		return keyspace.Holder{}, false
	}
	return keyspace.Holder{ID: value, Depth: 1, Since: madeAt(id, now)}, true
}

// uniqid parses eight hexadecimal digits of seconds and five of µs, in this century.
func uniqid(value string, now time.Time) (keyspace.Holder, bool) {
	if !isHex(value, 13) {
		return keyspace.Holder{}, false
	}
	sec, _ := strconv.ParseInt(value[:8], 16, 64)
	micro, _ := strconv.ParseInt(value[8:], 16, 64)
	since := plausibleStart(time.Unix(sec, micro*1000), now)
	return keyspace.Holder{ID: value, Depth: 1, Since: since}, micro < 1_000_000 && (now.IsZero() || !since.IsZero())
}

func redsyncToken(s string) bool {
	token, padded := strings.CutSuffix(s, "==")
	return padded && sixteenBytes(token, "+/")
}

// randomToken returns the confidence for 16 random bytes under this name: likely,
// unless the name suggests another random value.
func randomToken(key string) keyspace.Confidence {
	if hintOf(key) != strongHint && looksLikeOther(key) {
		return keyspace.Possible
	}
	return keyspace.Likely
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
	return keyspace.Holder{ID: value, Depth: 1, Since: made}, now.IsZero() || !made.IsZero()
}

// written returns a token function for values that begin so and match a pattern, whose groups are in the label.
func written(begin, pattern, label string) func(string, time.Time) (keyspace.Holder, bool) {
	all := regexp.MustCompile(pattern)
	return func(value string, _ time.Time) (keyspace.Holder, bool) {
		if !strings.HasPrefix(value, begin) || !all.MatchString(value) {
			return keyspace.Holder{}, false
		}
		return keyspace.Holder{ID: value, Label: all.ReplaceAllString(value, label), Depth: 1}, true
	}
}

// suffixedUUID parses a UUID, and the suffix of a caller.
func suffixedUUID(value string, _ time.Time) (keyspace.Holder, bool) {
	t := uuidToken(value, time.Time{})
	plain := len(value) == 36 || t.label != ""
	return keyspace.Holder{ID: value, Label: t.label, Depth: 1}, t.known && len(value) >= 36 && plain
}

// hostAndProcess returns a token function for a host and a process ID around sep.
func hostAndProcess(sep string) func(string, time.Time) (keyspace.Holder, bool) {
	return func(value string, _ time.Time) (keyspace.Holder, bool) {
		host, process, ok := cutLast(value, sep)
		return keyspace.Holder{ID: value, Depth: 1}, ok && host != "" && digits(process, 1, 10)
	}
}

// anyToken accepts every value but an empty or a long one.
func anyToken(v string) bool { return v != "" && len(v) < probeBytes }
