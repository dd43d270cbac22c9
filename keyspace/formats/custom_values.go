package formats

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// holderShape is what a value says of the holder of a lock that people write by hand.
type holderShape uint8

const (
	noShape      holderShape = iota
	markShape                // a flag: 1, true, locked
	numberShape              // a small number, as a process ID
	timeShape                // when the lock was acquired, or ends
	tokenShape               // a UUID or random characters
	nameShape                // one word, as the name of a person or a role
	recordShape              // an object with an owner, that says nothing of a lock
	processShape             // a host, a process, a numbered worker
	leaseShape               // an object with an owner and a field that only locks have
)

// explain says what a value of the shape is.
func (s holderShape) explain() string {
	return [...]string{"", "a mark", "a number", "a time", "a token", "a name", "an object with an owner", "the name of a process", "an object with an owner and the time of its lock"}[s]
}

// mostNameBytes is the length of the longest name of a process or a person.
const mostNameBytes = 128

// shapeOf recognizes the values of locks that people write by hand. The first piece of a
// longer value, of probeBytes, may have a shape that the whole value does not have.
func shapeOf(value string) holderShape {
	switch {
	case len(value) > 1 && value[0] == '{':
		return shapeOfObject(value)
	case valueWords[lowered(value)]&denial != 0:
		return noShape
	case value == "" || value == "1" || valueWords[lowered(value)]&markWord != 0: // it says only that the lock is held
		return markShape
	case timeIn(value) != (time.Time{}):
		return timeShape
	case digits(value, 1, 7):
		return numberShape
	case len(value) > mostNameBytes || !only(value, "._-:@/|#+,;=~%"):
		return noShape
	case isUUID(value) || isHex(value, 32):
		return tokenShape
	default:
		return shapeOfName(value)
	}
}

// shapeOfName recognizes the name of a process or a person: one word.
func shapeOfName(value string) holderShape {
	letters := strings.IndexFunc(value, func(r rune) bool { return 'a' <= r|0x20 && r|0x20 <= 'z' }) >= 0
	switch {
	case !letters || len(value) < 2 || value[0] == '/' || strings.Contains(value, "://") || valueWords[lowered(value)]&statusWord != 0:
		return noShape // or the state of a thing
	case strings.ContainsAny(value, "0123456789-.:@|#"):
		return processShape
	default:
		return nameShape
	}
}

// valueUse says what a word that is a whole value means; several may apply.
type valueUse uint8

const (
	markWord   valueUse = 1 << iota // the lock is held
	statusWord                      // the state of a thing
	denial                          // nothing is held
)

var valueWords = usesOf(map[valueUse]string{
	markWord: `true yes y on x ok locked lock held busy taken running processing started inprogress acquired claimed`,
	statusWord: `done ok pending success succeeded failed failure error false no off null none nil
		queued completed complete finished idle new open closed enabled disabled ready waiting
		created cancelled canceled paused stopped active inactive in-progress in_progress`,
	denial: `0 n no false off none null nil free open opened unlocked released available disabled inactive idle b:0; i:0; -1`,
})

// timeIn reads a value that is a time: in seconds, ms, µs or ns since 1970, or as a date. It
// returns zero for other values, and for times that are no time of a lock.
func timeIn(value string) time.Time {
	var at time.Time
	switch n := len(value); {
	case n < 10 || n > 35 || !digit(value[0]):
		return time.Time{}
	case digits(value, 16, 19):
		at, _ = atMilli(value[:13])
	case digits(value, 13, 13):
		at, _ = atMilli(value)
	case n > 18 && value[4] == '-':
		for _, layout := range [...]string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999", "2006-01-02 15:04:05Z07:00"} {
			if t, err := time.Parse(layout, value); err == nil {
				at = t
				break
			}
		}
	default:
		at, _ = atSeconds(value)
	}
	if at.Year() < 2009 || at.Year() > 2100 {
		return time.Time{}
	}
	return at
}

// ownerNames are the fields that name a holder in the objects and hashes in which people store
// locks, the clearest first, in lower case without separators, as in all of these lists.
const ownerNames = `owner holder lockedby claimedby acquiredby heldby takenby lockowner lockholder holderidentity ownerid
	holderid worker workerid workername host hostname node nodeid instance instanceid pod podname machine server client clientid
	agent runner executor user username by identity pid processid thread threadid tid token lockid locktoken leaseid`

const countNames = "count depth holds reentrancy entered entries"

var ownerFields, countFields = strings.Fields(ownerNames), strings.Fields(countNames)

// fieldUse says what a field of such an object is; several may apply.
type fieldUse uint8

const (
	ownerField fieldUse = 1 << iota
	beginField          // it tells one hold from the next of the same holder
	timeField
	countField
	lockField // hardly anything but a lock has it
)

var fieldUses = usesOf(map[fieldUse]string{
	ownerField: ownerNames,
	beginField: `at since acquired acquiredat acquiretime lockedat claimedat heldsince start started startedat created createdat
		token lockid locktoken leaseid`,
	timeField: `time ts timestamp renewed renewedat renewtime refreshedat heartbeat heartbeatat lastheartbeat updatedat expires expiresat
		expiry expireat expiration until lockeduntil deadline leaseuntil validuntil leaseexpires ttl lease duration timeout leaseduration
		leasedurationseconds`,
	countField: countNames,
	lockField: `owner holder lockedby claimedby acquiredby heldby takenby lockowner lockholder holderidentity acquiredat acquiretime
		acquired lockedat claimedat lockeduntil leaseuntil leaseexpires leaseduration leasedurationseconds renewtime locktoken leaseid`,
})

// plainField returns the name of a field in lower case without separators.
func plainField(name string) string {
	if len(name) > 2*maxClaimWord {
		return ""
	}
	if only(name, "") {
		return strings.ToLower(name)
	}
	return strings.ToLower(fieldSeparators.Replace(name))
}

var fieldSeparators = strings.NewReplacer("_", "", "-", "", " ", "", ".", "")

// record is an object or a hash with fields of a lock.
type record struct {
	fields []recordField // those that name the holder and the begin of its hold
	owner  string        // for people
	since  time.Time
	count  int
	others int    // number of fields that are unknown
	locks  bool   // it has a field that only locks have
	timed  bool   // it has a time
	host   bool   // it has a host
	pid    string // the process ID
}

type recordField struct{ name, value string }

// recordOf reads the fields of a lock. ok is false if no field names a holder.
func recordOf(fields []recordField) (r record, ok bool) {
	if len(fields) == 0 || len(fields) > 12 { // a larger hash is an object of the application
		return r, false
	}
	rank := len(ownerFields)
	r.count = 1
	for _, f := range fields {
		name := plainField(f.name)
		use := fieldUses[name]
		r.locks = r.locks || use&lockField != 0
		r.host = r.host || name == "host" || name == "hostname"
		if name == "pid" || name == "processid" {
			r.pid = f.value
		}
		if use&(ownerField|beginField) != 0 {
			r.fields = append(r.fields, f)
		}
		switch {
		case use&ownerField != 0:
			if len(f.value) > 2*mostNameBytes {
				return r, false
			}
			if at := slices.Index(ownerFields, name); at < rank && f.value != "" {
				r.owner, rank = f.value, at
			}
		case use&(timeField|beginField) != 0:
			r.timed = true
			if at := timeIn(f.value); use&beginField != 0 && !at.IsZero() {
				r.since = at
			}
		case use&countField != 0:
			if n, number := count(f.value); number && n > 0 && n < 1_000_000 {
				r.count = n
			}
		default:
			r.others++
		}
	}
	if rank >= slices.Index(ownerFields, "host") && rank <= slices.Index(ownerFields, "server") && r.pid != "" {
		r.owner += ":" + r.pid
	}
	return r, r.owner != ""
}

// shape returns what the record says without the help of a name: only a record of nothing
// but a holder and its times can be a lock.
func (r record) shape() holderShape {
	if r.others == 0 && r.timed && (r.locks || r.host && r.pid != "") {
		return leaseShape
	}
	return recordShape
}

// shapeOfObject recognizes a JSON object with an owner. The first piece of a longer one
// cannot be parsed: any field of a lock in it is enough.
func shapeOfObject(value string) holderShape {
	fields, complete := objectFields(value)
	if !complete && len(value) == probeBytes {
		return leaseShape
	}
	r, ok := recordOf(fields)
	if !complete || !ok {
		return noShape
	}
	return r.shape()
}

// mayBeLease reports whether a value can be an object of a shape that only locks have: most
// objects can be ruled out without parsing them.
func mayBeLease(value string) bool {
	if len(value) < 2 || value[0] != '{' {
		return false
	}
	first := value[:min(len(value), probeBytes)]
	for at := range len(first) - 1 {
		if beginsOfParts[pairAt(first, at)] && slices.ContainsFunc(partsOfFields, func(part string) bool { return strings.HasPrefix(first[at:], part) }) {
			return true
		}
	}
	return false
}

// partsOfFields are parts of the fields of such an object, in the common spellings. One of them
// is in its first piece.
var partsOfFields = strings.Fields(`wner" older" "host" "hostname" ockedBy" ocked_by" ockedAt" ocked_at" ockedUntil" ocked_until" ock_owner" ockToken"
	ock_token" cquired laimedBy" laimed_by" laimedAt" laimed_at" eldBy" eld_by" akenBy" aken_by" ease_ easeId" easeDuration" easeUntil" enewTime"`)

// beginsOfParts has the first two bytes of each part.
var beginsOfParts = func() (begins [1 << 16]bool) {
	for _, part := range partsOfFields {
		begins[pairAt(part, 0)] = true
	}
	return begins
}()

func pairAt(s string, at int) uint16 { return uint16(s[at])<<8 | uint16(s[at+1]) }

// objectFields returns the fields of a JSON object in their order. Fields that are objects
// have their text. complete is false if it is no object, or only the begin of one.
func objectFields(value string) (fields []recordField, complete bool) {
	var all map[string]json.RawMessage
	if json.Unmarshal([]byte(value), &all) != nil {
		return nil, false
	}
	for name, text := range all {
		var s string
		if json.Unmarshal(text, &s) != nil {
			s = string(bytes.TrimSpace(text))
		}
		fields = append(fields, recordField{name, s})
	}
	slices.SortFunc(fields, func(a, b recordField) int { return strings.Compare(a.name, b.name) })
	return fields, true
}
