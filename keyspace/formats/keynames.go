package formats

import (
	"iter"
	"strings"

	"locktop/keyspace"
)

// nameSign says how much the name of a key alone speaks for a lock.
type nameSign uint8

const (
	anyName    nameSign = iota // nothing
	weakName                   // a word that is used for locks and for other things
	strongName                 // a word that is used for locks
)

// signOf looks for the words that people give to locks. A word is what stands
// between punctuation: "orders:lock", not "clockwork" or "blocked".
func signOf(key string) nameSign {
	best := anyName
	for from := 0; from < len(key); from++ {
		n := 0
		for from+n < len(key) && wordByte(key[from+n]) {
			n++
		}
		best = max(best, signOfWord(key[from:from+n]))
		from += n
	}
	return best
}

func signOfWord(word string) nameSign {
	if len(word) < len("lock") || len(word) > len("semaphore") || strings.IndexByte("ldmrsw", word[0]|0x20) < 0 {
		return anyName // most words, without further ado
	}
	word = strings.ToLower(word)
	for _, mode := range [...]string{"read", "write", "dist", "red", "rw", "r", "w"} {
		if rest, ok := strings.CutPrefix(word, mode); ok && (rest == "lock" || rest == "locks" || rest == "mutex") {
			return strongName
		}
	}
	switch word {
	case "lock", "locks", "mutex":
		return strongName
	case "semaphore", "lease", "leader", "singleton":
		return weakName
	default:
		return anyName
	}
}

// lockLike reports whether the name of a key speaks for a lock at all.
func lockLike(key string) bool { return signOf(key) != anyName }

// otherwise reports whether the name of a key says that it is something else,
// whose values look like a lock's token.
func otherwise(key string) bool {
	for word := range words(key) {
		switch strings.ToLower(word) {
		case "csrf", "xsrf", "sess", "session", "sessions", "oauth", "otp", "token", "tokens", "refresh",
			"password", "passwd", "verify", "apikey", "key", "keys", "secret", "salt", "nonce", "ratelimit", "rate", "throttle",
			"stat", "stats", "counter", "cache", "cart", "flag", "config", "cursor", "id", "ids", "uuid",
			"hash", "md5", "etag", "digest", "checksum", "email", "login":
			return true
		}
	}
	return false
}

// counterName reports whether the last word of a name, but for numbers, says that
// its value is a counter or a version, also where others say that it is a lock's:
// "lock:failed_attempts", "lock_version".
func counterName(key string) bool {
	switch lastWord(key) {
	case "count", "counts", "counter", "counters", "total", "totals", "attempts", "retries", "tries", "failed", "failures", "fails", "errors",
		"timeouts", "waiters", "waiting", "acquired", "acquisitions", "released", "releases", "contended", "conflicts", "hits", "misses",
		"seq", "sequence", "serial", "version", "versions", "ver", "rev", "revision", "epoch", "term", "id", "ids":
		return true
	}
	return false
}

// fenceName reports whether a name says that its value numbers the holders of locks.
func fenceName(key string) bool {
	for word := range words(key) {
		switch strings.ToLower(word) {
		case "fence", "fences", "fencing", "fencingtoken", "fencingtokens":
			return true
		}
	}
	return false
}

// lastWord is the last word of a key that is no number, in small letters.
func lastWord(key string) string {
	last := ""
	for word := range words(key) {
		if !digits(word, 1, len(word)) {
			last = word
		}
	}
	return strings.ToLower(last)
}

// words yields the runs of ASCII letters and digits in a key, and of bytes
// beyond ASCII.
func words(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for from, i := 0, 0; i <= len(key); i++ {
			if i < len(key) && wordByte(key[i]) {
				continue
			}
			if i > from && !yield(key[from:i]) {
				return
			}
			from = i + 1
		}
	}
}

func wordByte(c byte) bool { return c >= 0x80 || alnum(c) }

func alnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// lower returns the confidence a step below.
func lower(c keyspace.Confidence) keyspace.Confidence {
	if c == keyspace.No {
		return c
	}
	return c - 1
}
