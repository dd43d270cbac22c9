package formats

import (
	"iter"
	"regexp"
	"strings"

	"locktop/keyspace"
)

// nameHint is how strongly the name of a key suggests a lock.
type nameHint uint8

const (
	noHint     nameHint = iota // no word suggests a lock
	weakHint                   // a word for locks and for other things
	strongHint                 // a word for locks only
)

// hintOf looks for words that people use for locks. A word stands between punctuation:
// "orders:lock", not "clockwork" or "blocked".
func hintOf(key string) nameHint {
	best := noHint
	for from := 0; from < len(key); from++ {
		n := 0
		for from+n < len(key) && wordByte(key[from+n]) {
			n++
		}
		best = max(best, hintOfWord(key[from:from+n]))
		from += n
	}
	return best
}

func hintOfWord(word string) nameHint {
	n := len(word)
	for n > 0 && '0' <= word[n-1] && word[n-1] <= '9' {
		n--
	}
	if word = word[:n]; n < len("lock") || n > 2*maxClaimWord {
		return noHint
	}
	switch word[n-1] | 0x20 { // fast path for most words
	case 'k', 's', 'x':
	case 'e', 'r', 'n':
		if n != len("lease") && n != len("leader") && n != len("semaphore") && n != len("singleton") {
			return noHint
		}
	default:
		return noHint
	}
	lower := strings.ToLower(word)
	for _, thing := range [...]string{"lock", "locks", "mutex"} {
		rest, ok := strings.CutSuffix(lower, thing)
		switch {
		case !ok:
		case rest == "", strings.Contains(" read write dist red rw r w ", " "+rest+" "):
			return strongHint
		case !alnum(rest[len(rest)-1]) || nameWords[lower]&noLock != 0:
			return noHint
		case strings.IndexByte("bcf", rest[len(rest)-1]) < 0 || humpBetween(word[len(rest)-1], word[len(rest)]): // no block, clock, flock
			return weakHint
		}
	}
	switch lower {
	case "semaphore", "lease", "leader", "singleton":
		return weakHint
	default:
		return noHint
	}
}

// looksLikeLock reports whether the name of a key suggests a lock at all.
func looksLikeLock(key string) bool { return hintOf(key) != noHint }

// looksLikeOther reports whether the name of a key suggests something else whose values
// look like the token of a lock.
func looksLikeOther(key string) bool { return hasWord(key, otherThing) }

// hasWord reports whether a word in a name has a use.
func hasWord(key string, use nameUse) bool {
	for word := range words(key) {
		if nameWords[strings.ToLower(word)]&use != 0 {
			return true
		}
	}
	return false
}

// nameUse says what a word in the name of a key suggests other than a lock; several may apply.
type nameUse uint16

const (
	otherThing  nameUse = 1 << iota // a thing whose values look like the token of a lock
	counted                         // a counter
	countedLast                     // a counter, as the last word
	fencing                         // a fencing token
	numbering                       // a number of holds or versions, or a thing that a lock protects
	permits                         // the permits of a semaphore
	property                        // a property of a thing, as the last word: a number or a mark with it is no lock
	setting                         // a thing that is configured: a mark with it, without a TTL, is no lock
	past                            // what happened: a time with it is no deadline
	noLock                          // a word that ends like a lock
)

var nameWords = usesOf(map[nameUse]string{
	otherThing: `csrf xsrf sess session sessions oauth otp token tokens refresh
		password passwd verify apikey key keys secret salt nonce ratelimit rate throttle
		stat stats counter cache cart flag config cursor id ids uuid hash md5 etag digest checksum email login captcha
		ws websocket websockets socket sockets conn conns connection connections`,
	counted: `count counts total visits views hits likes score attempts retries seq sequence version page offset size num number
		qty enabled feature timer dedup dedupe deduplication throttled debounce stallblock`,
	countedLast: `count counts counter counters total totals attempts retries tries failed failures fails errors
		timeouts waiters waiting acquired acquisitions released releases contended conflicts hits misses
		seq sequence serial ver rev revision`,
	fencing:   `fence fences fencing fencingtoken fencingtokens`,
	numbering: numberWords,
	permits:   `semaphore semaphores sem permit permits`,
	property: `state status battery level lang language locale firmware model color colour size length width height ms sec secs seconds
		minutes duration wait latency timeout ttl mode percent percentage pct rate ratio avg p50 p95 p99 usage enabled
		setting settings config url stats progress exists`,
	setting: `config configs setting settings feature features flag flags preference preferences option options permission permissions`,
	past:    `last checkpoint`,
	noLock:  `unlock unlocks deadlock deadlocks padlock padlocks warlock gridlock sherlock hemlock headlock livelock livelocks interlock airlock`,
})

const numberWords = "token tokens index indexes idx gen generation generations incarnation epoch term version versions id ids " +
	"lockindex locktoken lockgeneration lockepoch lockversion lockid lockids leasetoken leaseid leaderepoch leaderterm"

// countsHolds reports whether a string is a number beside a lock, by its name: a fencing token, a
// counter or a version. Under the name of a thing that a lock may protect, as in lock:search-index
// and lock:version:7, it is one only if it is no mark of a lock (1) and no time.
func countsHolds(key, value string) bool {
	if !digits(value, 1, 19) || !hasWord(key, fencing|countedLast|numbering) {
		return false // most keys
	}
	last, mark := lastWord(key), value == "1" || len(value) > maxCounterDigits
	return hasWord(key, fencing) || nameWords[last]&countedLast != 0 || numberOfLock.MatchString(key) ||
		!mark && hintOfWord(last) == noHint && numberOfThing.MatchString(key)
}

// The names of numbers: lock_token:7, lockindex, orders:lock:epoch; and search-index, token:42.
var (
	numberOfLock  = regexp.MustCompile(`(?i)(lock|mutex|lease|leader|semaphore)s?[_-]?(` + numbers + `|counts?|attempts|retries|failures)([^\w-]|$)|(^|[^\w-])` + numbers + `[^\w-]*$`)
	numberOfThing = regexp.MustCompile(`(?i)[_-]` + numbers + `[^a-z]*$|(^|[^\w-])` + numbers + `[^\w-]`)
	numbers       = "(" + strings.ReplaceAll(numberWords, " ", "|") + ")"
)

// lastWord returns the last word of a key that is not a number, in lower case.
func lastWord(key string) string {
	last := ""
	for word := range words(key) {
		if !digits(word, 1, len(word)) {
			last = word
		}
	}
	return strings.ToLower(last)
}

// words yields the runs of ASCII letters and digits and of non-ASCII bytes in a key.
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

// oneLess returns the next lower confidence.
func oneLess(c keyspace.Confidence) keyspace.Confidence {
	if c == keyspace.No {
		return c
	}
	return c - 1
}
