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
	for word := range words(key) {
		best = max(best, hintOfWord(word))
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

// claimHint is how strongly the name of a key suggests that its value names a holder.
type claimHint uint8

const (
	noClaim   claimHint = iota
	roleClaim           // a word for a task or a role: the value must name a process or an owner
	fullClaim           // a word for exclusive use: the value may also be a time, a token or a mark
)

// wordUse says what a word in the name of a key suggests; several may apply.
type wordUse uint8

const (
	exclusiveUse wordUse = 1 << iota // exclusive use
	role                             // a role that one process has at a time
	lastRole                         // the same if nothing follows it: job:7:worker, but not worker:7
	takenBy                          // with "by", whose a thing is: locked_by, and not created_by
	otherUse                         // a thing that no process holds, or the liveness of a process
	liveness                         // a thing that is listed while it lives, with the same fields as a lock
	noun                             // it ends in -ing and is no activity that a process does alone
	logIn                            // what a user does that is locked out
)

// vocabulary has the words in lower case. Plurals and other forms are words of their own,
// because a name has them between separators.
var vocabulary = usesOf(map[wordUse]string{
	exclusiveUse: `lock locks locked locker locking mutex mutexes mutual sem semaphore semaphores lease leases leased leaseholder
		leader leaders leadership elect elected election elections electing claim claims claimed claimant claimer
		owner owners owned ownership holder holders holding hold held inflight inprogress processing running exclusive
		exclusively acquire acquired acquiring singleton singleflight reserve reserved reservation reservations busy
		executing occupied occupant inuse taken permit permits guard baton custody custodian`,
	role: `primary master coordinator controller scheduler dispatcher assigned assignee slot slots once active incumbent delegate
		responsible cron sched supervisor janitor sweeper daemon exec`,
	lastRole: `worker runner executor consumer handler processor operator agent editor driver publisher machine pid`,
	takenBy:  `locked claimed owned held taken reserved leased acquired picked occupied blocked used assigned processed handled run edited`,
	otherUse: `heartbeat heartbeats presence online alive seen ping typing status state progress session sessions sess csrf xsrf
		oauth otp token tokens refresh password passwd verify apikey secret salt nonce ratelimit throttle quota limit limits cart
		email login idempotency idempotent revoked blacklist denylist banned`,
	liveness: `worker workers process processes consumer consumers instance instances node nodes agent agents server servers
		service services svc registry member members peer peers client clients conn connection connections device devices
		user users route routes endpoint endpoints host hosts`,
	noun: `string strings setting settings staging pricing shipping billing rating ranking trending pending listing booking
		meeting training tracking landing onboarding marketing messaging routing mapping morning evening building
		warning logging waiting missing incoming outgoing following streaming spring greeting typing rolling`,
	logIn: `login logins signin logon password passwd otp captcha valid verify verification fail failed failure failures bruteforce`,
})

// usesOf returns the uses of each word, from the words with each use.
func usesOf[Use ~uint8 | ~uint16](words map[Use]string) map[string]Use {
	all := make(map[string]Use)
	for use, text := range words {
		for word := range strings.FieldsSeq(text) {
			all[word] |= use
		}
	}
	return all
}

// maxClaimWord is the length of the longest of these words, and of any activity.
const maxClaimWord = 16

// claimOf looks for a word that says that a process has something for itself, and returns
// it. A word stands between punctuation, or is a part of a name in camel case.
func claimOf(key string) (hint claimHint, word string) {
	var last, before string // the last two words, in lower case
	var use, uses wordUse   // of the last word, and of all
	for w, rest := nextHump(key); w != ""; w, rest = nextHump(rest) {
		if digit(w[0]) {
			last, use = "", 0 // it numbers what is before it
			continue
		}
		before, last = last, lowered(w)
		known := vocabulary[last]
		switch {
		case known&exclusiveUse != 0:
			return fullClaim, last
		case isPair(before, last), last == "by" && use&takenBy != 0:
			return fullClaim, before + "-" + last
		case known&role != 0, known&noun == 0 && isActivity(last):
			word = last
		}
		use, uses = known, uses|known
	}
	if word == "" && use&lastRole != 0 {
		word = last
	}
	if word == "" || uses&otherUse != 0 {
		return noClaim, ""
	}
	return roleClaim, word
}

// isPair reports whether two words together say what none says alone.
func isPair(before, word string) bool {
	switch before {
	case "in":
		return word == "flight" || word == "progress" || word == "use"
	case "checked":
		return word == "out"
	case "critical":
		return word == "section"
	}
	return false
}

// isActivity reports whether a word can name what a process does: rebuilding, importing.
func isActivity(word string) bool { return len(word) > len("using") && strings.HasSuffix(word, "ing") }

// otherName reports whether a name says that nobody holds the key, or that it is listed while
// it lives.
func otherName(key string) bool { return hasUse(key, otherUse|liveness) }

// hasUse reports whether a word in a name, which may be a part of one in camel case, has a use.
func hasUse(key string, use wordUse) bool {
	for w, rest := nextHump(key); w != ""; w, rest = nextHump(rest) {
		if vocabulary[lowered(w)]&use != 0 {
			return true
		}
	}
	return false
}

// lowered returns a word in lower case; empty if it is too long for any known word.
func lowered(word string) string {
	if len(word) > maxClaimWord {
		return ""
	}
	return strings.ToLower(word)
}

// nextHump returns the first word of a name, and what follows it. Punctuation separates words,
// and so do digits and the capitals of camel case: "order", "Lock", "42".
func nextHump(name string) (word, rest string) {
	from := 0
	for from < len(name) && !wordByte(name[from]) {
		from++
	}
	to := from + 1
	for to < len(name) && wordByte(name[to]) && !humpBetween(name[to-1], name[to]) {
		to++
	}
	if from == len(name) {
		return "", ""
	}
	return name[from:to], name[to:]
}

// humpBetween reports whether a word begins between two letters or digits.
func humpBetween(before, after byte) bool {
	return digit(before) != digit(after) || 'a' <= before && before <= 'z' && 'A' <= after && after <= 'Z'
}
