package formats

import "strings"

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

// isLockOut reports whether a name can be that of a mark that keeps a user out: login:lock:ada.
func isLockOut(key string) bool {
	return strings.Contains(key, "@") || strings.Contains(strings.ToLower(key), "account_lock") || hasUse(key, logIn)
}

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
