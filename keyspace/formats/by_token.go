package formats

import (
	"encoding/base64"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"locktop/keyspace"
)

// byToken lists the formats with a recognizable token under any name.
func byToken() []keyspace.Format {
	return []keyspace.Format{
		jedisLock(),
		// redis-py's Lock and Python libraries that use it: a UUID v1 without dashes, which
		// contains its time. By default the key has no TTL.
		stringLock{token: timedHex, sure: token{known: true, baseConfidence: keyspace.Likely, distinctive: true}.confidence}.anywhere(
			about("redis-py", "redis-py, django-redis", "github.com/redis/redis-py@34817ce2a2: redis/lock.py",
				"the value is a UUID without dashes that contains the time, as redis-py writes it")),
		// Elixir's podium/redis_mutex: a UUID v1, which contains its time.
		stringLock{sure: anyKey(keyspace.Likely), token: func(value string, now time.Time) (keyspace.Holder, bool) {
			id, ok := dashed(value)
			h, timed := timedHolder(value, id, now)
			return h, ok && timed
		}}.anywhere(about("redis-mutex-ex", "redis_mutex (Elixir), redislock and ioredis-lock (npm)", "github.com/podium/redis_mutex@1.1.0: lib/redis_mutex/lock.ex",
			"the value is a UUID that contains the time")),
		// Go's redsync, and gocron's lock, which uses redsync: base64 of 16 random bytes with
		// padding, under any name, always with a TTL.
		opaque(redsyncToken, func(key string, expires bool) keyspace.Confidence {
			return needsTTL(randomToken(key))(key, expires)
		}).anywhere(about("redsync", "redsync", "github.com/go-redsync/redsync@v4.17.0: mutex.go",
			"the value is base64 of 16 bytes, as redsync writes it")),
		redislock(),
		// ronnylt/redlock-php: the result of PHP's uniqid(), a time in µs as 13 hexadecimal digits.
		stringLock{token: uniqid, sure: anyKey(keyspace.Likely)}.anywhere(
			about("redlock-php", "ronnylt/redlock-php", "github.com/ronnylt/redlock-php@1.0.1: src/RedLock.php",
				"the value is the time as PHP's uniqid() writes it")),
		// Rust's rslock: 20 raw bytes under any name.
		opaque(func(v string) bool { return isRaw(v, 20) }, anyKey(keyspace.Likely)).anywhere(
			about("rslock", "rslock", "github.com/hexcowboy/rslock@0.7.3: src/lock.rs",
				"the value is 20 raw bytes")),
		// Elixir's lyokato/redlock: 40 random bytes in hexadecimal.
		opaque(func(v string) bool { return isHex(v, 80) }, anyKey(keyspace.Likely)).anywhere(
			about("redlock-ex", "redlock (Elixir)", "github.com/lyokato/redlock@456b3fb30f: lib/redlock/executor.ex",
				"the value is 80 hexadecimal digits")),
		// symfony/lock before 5.2.
		opaque(thirtyTwoBytes, anyKey(keyspace.Possible)).anywhere(
			about("symfony-string", "symfony/lock before 5.2", "github.com/symfony/lock@v5.1.11: Store/RedisStore.php",
				"the value is base64 of 32 bytes")),
		// .NET's EasyCaching: the 16 raw bytes of a GUID. .NET reverses the bytes of the first three
		// parts.
		opaque(func(v string) bool { return isRaw(v, 16) && v[7]>>4 == 4 && v[8]&0xc0 == 0x80 }, anyKey(keyspace.Possible)).anywhere(
			about("easycaching", "EasyCaching", "github.com/dotnetcore/EasyCaching@1ebd8e8733: src/EasyCaching.Redis/DistributedLock/RedisLockProvider.cs",
				"the value is the 16 raw bytes of a random GUID")),
		// node's redlock: 16 random bytes in hexadecimal, the same in all keys of one acquire, under
		// any name. Python's redis-lock-py (miintto) stores the same; its waiters subscribe.
		opaque(func(v string) bool { return isHex(v, 32) }, anyKey(keyspace.Possible)).format(keyspace.Format{
			About: about("node-redlock", "redlock (npm), redis-lock-py, lock4j without a prefix", "github.com/mike-marcacci/node-redlock@afe5cf92c8: src/index.ts",
				"the value is 16 random bytes in hexadecimal, as node's redlock writes them"),
			Actions: announcing(tokenActions(), "poll; those of redis-lock-py receive ok on rlock-channel:{key}",
				func(l keyspace.Lock) []string { return []string{"rlock-channel:" + l.Key, "ok"} }),
		}),
		// Go's go-zero: 16 random letters and digits under any name. Laravel without a prefix and
		// .NET's Foundatio store the same.
		opaque(func(v string) bool { return len(v) == 16 && only(v, "") && !digits(v, 16, 16) }, anyKey(keyspace.Possible)).anywhere(
			about("go-zero", "go-zero, Laravel without a prefix, Foundatio", "github.com/zeromicro/go-zero@v1.10.3: core/stores/redis/redislock.go",
				"the value is 16 letters and digits, as go-zero, Laravel and Foundatio write them")),
		opaque(func(v string) bool { return isHex(v, 50) }, anyKey(keyspace.Possible)).anywhere(
			about("sidekiq-lock", "sidekiq-lock", "github.com/rwojsznis/sidekiq-lock@v0.7.0: lib/sidekiq/lock/redis_lock.rb", "the value is 50 hexadecimal digits")),
		// Lock in Ruby's redis-objects: an empty string with a TTL.
		unchecked(opaque(func(v string) bool { return v == "" }, anyKey(keyspace.Possible)).anywhere(
			about("redis-objects", "redis-objects", "github.com/nateware/redis-objects@v1.7.0: lib/redis/lock.rb",
				"the value is empty"))),
		discourse(),
	}
}

// handMade lists formats without a library. Their key names must suggest a lock.
func handMade() []keyspace.Format {
	return []keyspace.Format{
		readWriteKeys(),
		stampRW(),
		hashRW(),
		hashReentrant(),
		getset(),
		// Django's cache.add used as a lock: a pickled flag. Only its name distinguishes it from other
		// cached values.
		unchecked(opaque(func(v string) bool {
			return len(v) > 2 && len(v) < 40 && v[0] == '\x80' && strings.HasSuffix(v, ".") && strings.Contains(v, "1")
		}, anyKey(keyspace.No)).format(keyspace.Format{
			About: about("django-cache", "Django's cache.add", "github.com/django/django@0019a798fd: django/core/cache/backends/redis.py",
				"the value is a mark as Python pickles it, and the name contains a word for locks"),
			Match: looksLikeLock,
		})),
		setNX(),
		customString(),
		customHash(),
		customZset(),
		customSet(),
		redissonCount(),
		dramatiq(),
		oversized(),
	}
}

// token is what the shape of a value says about a lock.
type token struct {
	known          bool                // it has a shape that is used for locks
	baseConfidence keyspace.Confidence // for a key that expires and whose name suggests nothing
	distinctive    bool                // hardly anything else has the shape: a key without expiry has the same confidence
	plain          string              // a value that no generator of tokens makes
	id             uuid.UUID           // the UUID in it; zero = none
	label          string              // the readable part
}

// tokenOf recognizes the tokens of libraries and those that people write by hand. The
// time is zero in a probe.
func tokenOf(value string, now time.Time) token {
	if t := uuidToken(value, now); t.known {
		return t
	}
	if isRandom(value) {
		return token{known: true, baseConfidence: keyspace.Possible}
	}
	return token{known: handWritten(value), plain: value}
}

// isRandom reports whether a value is what a generator of tokens makes, by its alphabet and its length: base64, base64url,
// nanoid, ULID or letters and digits; JavaScript's Math.random(), also in base 36; raw bytes that are not compressed or pickled.
func isRandom(value string) bool {
	n, text := len(value), strings.TrimRight(value, "=")
	switch {
	case n < 8 || n > 88 || digits(value, 1, n):
		return false
	case n >= 16 && n-len(text) <= 2 && (only(text, "+/") || only(text, "-_")):
		return mixed(text) || (n == 16 || n == 26 && text == strings.ToUpper(text)) && only(text, "")
	case strings.HasPrefix(value, "0."):
		return digits(value[2:], 10, 24)
	case n >= 16:
		return !utf8.ValidString(value) && !strings.Contains("\x1f\x8b \x80\x03 \x80\x04 \x80\x05 \x04\x08 \xac\xed \x78\x9c \x28\xb5", value[:2])
	default: // 7 to 14 digits in base 36
		return n <= 14 && only(value, "") && value == strings.ToLower(value) && valueWords[value] == 0
	}
}

// uuidToken recognizes a UUID with or without dashes, alone or followed by a time, a
// thread or a name.
func uuidToken(value string, now time.Time) token {
	if id, ok := undashed(value); ok {
		if recentV1(id, now) {
			return token{known: true, baseConfidence: keyspace.Likely, distinctive: true, id: id} // redis-py and its family
		}
		return token{known: true, baseConfidence: keyspace.Possible}
	}
	if len(value) < 36 {
		return token{}
	}
	id, ok := dashed(value[:36])
	if !ok {
		return token{}
	}
	t := token{known: true, baseConfidence: keyspace.Possible, id: id}
	rest := value[36:]
	switch {
	case rest == "":
		if id.Version() == 1 {
			t.baseConfidence = keyspace.Likely
		}
		return t
	case strings.IndexByte(":._", rest[0]) >= 0 && digits(rest[1:], 13, 13):
		t.baseConfidence, t.distinctive = keyspace.Likely, true // and the time in ms
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

// denies reports whether a value is that of no lock: it says that nothing is held, or is markup, a list or a fraction.
func denies(value string) bool {
	_, err := strconv.ParseFloat(strings.TrimSuffix(value, "%"), 64)
	switch {
	case valueWords[lowered(value)]&denial != 0:
		return true
	case len(value) < 2, isRandom(value):
		return false
	case value[0] == '<', value[:2] == "{{", value[0] == '[' && strings.IndexByte(`"{[]0123456789`, value[1]) >= 0:
		return true
	}
	return err == nil && !digits(value, 1, 19) && timeIn(value).IsZero()
}

// isDoubtful reports whether a value hardly names a holder: prose, a list, a link, an object without an owner and a time, one of PHP.
func isDoubtful(value string) bool {
	if strings.HasPrefix(value, "{") && len(value) != probeBytes {
		fields, complete := objectFields(value)
		r, owned := recordOf(fields)
		return complete && !owned && !r.timed
	}
	if _, address, is := strings.Cut(value, "://"); is {
		return strings.Contains(address, "/") // that of a process has no path
	}
	process := strings.ContainsAny(value, ":-/@_|=") && strings.ContainsAny(value, "0123456789") && !strings.Contains(value, "#")
	return strings.ContainsAny(value, " ,;") && !process || serialised(value) && strings.HasSuffix(value, "}") // or a time
}

// maxCounterDigits is the maximum length of a number that is not a time in seconds.
const maxCounterDigits = 9

// handWritten recognizes what people store without a library: a flag, a time, or a
// process name.
func handWritten(value string) bool {
	for _, mark := range [...]string{"", "true", "locked", "lock", "b:1;", "i:1;"} {
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

// confidence returns the confidence for a key with this name.
func (t token) confidence(key string, expires bool) keyspace.Confidence {
	switch hint := hintOf(key); {
	case hint != noHint && (isDoubtful(t.plain) || hint == weakHint && !t.known && !expires):
		return keyspace.Possible
	case hint != noHint:
		return keyspace.Likely
	}
	sure := t.baseConfidence
	if !expires && !t.distinctive {
		sure = oneLess(sure)
	}
	if sure > keyspace.No && looksLikeOther(key) {
		sure = oneLess(sure)
	}
	return sure
}

// dashed parses a UUID with dashes.
func dashed(s string) (uuid.UUID, bool) { return uuidOf(s, 36) }

// undashed parses 32 hexadecimal digits.
func undashed(s string) (uuid.UUID, bool) { return uuidOf(s, 32) }

// uuidOf parses a UUID that is n bytes long.
func uuidOf(s string, n int) (uuid.UUID, bool) {
	if len(s) != n {
		return uuid.UUID{}, false
	}
	id, err := uuid.Parse(s)
	return id, err == nil
}

// timeBased reports whether the version of a UUID contains its time.
func timeBased(id uuid.UUID) bool {
	return id.Variant() == uuid.RFC4122 && (id.Version() == 1 || id.Version() == 7)
}

// recentV1 reports whether a UUID has version 1 and is young enough for a lock. One of
// 64 random values of 32 hexadecimal digits looks like a UUID of version 1, and one of
// a million has a time in this range. now is zero in a probe.
func recentV1(id uuid.UUID, now time.Time) bool {
	if id.Version() != 1 || !timeBased(id) {
		return false
	}
	made := madeAt(id, now)
	return now.IsZero() || !made.IsZero() && now.Sub(made) < 60*24*time.Hour
}

// madeAt returns the time of a UUID, on the clock of its creator; zero without a
// plausible time: no lock is older than Redis, and none began in the future. A clock
// that is slightly ahead is plausible.
func madeAt(id uuid.UUID, now time.Time) time.Time {
	if !timeBased(id) {
		return time.Time{}
	}
	return plausibleStart(time.Unix(id.Time().UnixTime()), now)
}

// tokenHolder returns the holder with a token that was made at a time. Most libraries make a token before they wait, some
// before they ask for the first time: the hold began then, or later.
func tokenHolder(token, label string, made, now time.Time) keyspace.Holder {
	h := keyspace.Holder{ID: token, Label: label, Depth: 1}
	if !made.IsZero() && made.Before(now) {
		h.Since, h.Late = now, now.Sub(made)
	}
	return h
}

// timedHolder returns the holder with a token in which a UUID is. It is false if the UUID is not of version 1, or has no
// plausible time.
func timedHolder(token string, id uuid.UUID, now time.Time) (keyspace.Holder, bool) {
	made := madeAt(id, now)
	return tokenHolder(token, "", made, now), id.Version() == 1 && timeBased(id) && (now.IsZero() || !made.IsZero())
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

// digits reports whether s is a number with atLeast to atMost digits.
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

// sixteenBytes reports whether s is base64 of 16 bytes without padding: 22 characters, the last of
// which has two bits only.
func sixteenBytes(s, extra string) bool {
	return len(s) == 22 && strings.IndexByte("AQgw", s[21]) >= 0 && only(s, extra)
}

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
	return tokenHolder(value, "", madeAt(id, now), now), true
}

// uniqid parses eight hexadecimal digits of seconds and five of µs, in this century.
func uniqid(value string, now time.Time) (keyspace.Holder, bool) {
	if !isHex(value, 13) {
		return keyspace.Holder{}, false
	}
	sec, _ := strconv.ParseInt(value[:8], 16, 64)
	micro, _ := strconv.ParseInt(value[8:], 16, 64)
	made := plausibleStart(time.Unix(sec, micro*1000), now)
	return tokenHolder(value, "", made, now), micro < 1_000_000 && (now.IsZero() || !made.IsZero())
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
	raw, _ := base64.StdEncoding.DecodeString(value)
	id, _ := uuid.FromBytes(raw)
	return timedHolder(value, id, now)
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
