package recording

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"locktop/keyspace"
)

// A segment is a part of a recording: one gzip stream of JSON lines.
//
//	{"segment":2,"at":…,"lock_count":N}    the header
//	{"key":…}                         N lines: all locks, in their order
//	{"at":…,"state":…,"crc":…}        the first frame
//	{"at":…,"renewed":…,"crc":…}      the other frames
//
// The header, the locks and the first frame are the full state. Each other frame is the
// difference to the one before, and names a lock of that state by its position. The crc
// of a frame is the CRC-32 of everything in the stream before it, so a reader never
// applies a damaged frame. The stream is flushed after each frame.
//
// A renewal is only a position. The deadline becomes the time of the frame plus the time
// to live that the lock had before. If the true deadline differs by more than
// renewalSlack, the lock is written whole. In the segments of a Writer it always is.

// segmentVersion is the version of the layout.
const segmentVersion = 2

// A segment begins with the fixed part of a gzip header and one extra field, which
// contains the time of the full state in ns since 1970.
const (
	memberStart   = "\x1f\x8b\x08\x04"
	fieldStart    = 12 // offset of the extra field
	segmentID     = "LS"
	segmentPrefix = fieldStart + 4 + 8 // bytes
)

// Precision and limits of a segment.
const (
	renewalSlack  = 1500 * time.Millisecond // largest error of the deadline of a renewed lock
	maxRenewals   = 8                       // renewals of a lock in one frame; with more it is written whole
	statePeriod   = 10 * time.Second        // time between two records of figures such as the uptime
	maxEvents     = 20_000                  // events of a frame; the rest is only counted
	maxLocks      = 2 << 20                 // locks of a segment
	maxLine       = 32 << 20                // bytes
	maxObjects    = 500_000                 // of a line, which bounds the memory for it
	maxUnpacked   = 1 << 30                 // bytes of a segment
	maxState      = 1 << 30                 // estimated bytes in memory of the locks of a moment
	crcField      = `,"crc":`
	framePrefix   = `{"at":"`
	recordingGap  = 10 * time.Second // a longer time between two frames is a gap
	segmentSuffix = ".lockrec"
)

// segmentHeader is the first line of a segment.
type segmentHeader struct {
	Segment int       `json:"segment"` // segmentVersion
	At      time.Time `json:"at"`
	Count   int       `json:"lock_count"` // number of locks that follow
}

// frame is the difference between two moments of a segment.
type frame struct {
	At      time.Time          `json:"at"`
	State   *keyspace.Snapshot `json:"state,omitzero"`   // only if it has changed
	Renewed []positions        `json:"renewed,omitzero"` // locks with one renewal, with two, …
	Gone    positions          `json:"gone,omitzero"`
	Locks   []keyspace.Lock    `json:"locks,omitzero"` // new, or changed by more than renewals
	Events  []frameEvent       `json:"events,omitzero"`
	Omitted int                `json:"events_omitted,omitzero"` // number of events above maxEvents
	Notices []keyspace.Notice  `json:"notices,omitzero"`
}

// positions are positions in the list of locks before a frame. In JSON each is the number
// of locks between it and the one before.
type positions []int

// MarshalJSON implements [json.Marshaler].
func (p positions) MarshalJSON() ([]byte, error) {
	text := append(make([]byte, 0, 2+3*len(p)), '[')
	next := 0
	for i, at := range p {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(at-next), 10)
		next = at + 1
	}
	return append(text, ']'), nil
}

// UnmarshalJSON implements [json.Unmarshaler]. It accepts only digits, commas and brackets.
func (p *positions) UnmarshalJSON(text []byte) error {
	all := make(positions, 0, 1+bytes.Count(text, []byte{','}))
	next, gap, digits := 0, 0, 0
	for _, c := range bytes.TrimPrefix(text, []byte{'['}) {
		switch {
		case '0' <= c && c <= '9' && digits < 7:
			gap, digits = 10*gap+int(c-'0'), digits+1
		case digits > 0 && (c == ',' || c == ']'):
			all = append(all, next+gap)
			next, gap, digits = next+gap+1, 0, 0
		case c != ']' || len(all) > 0:
			return errors.New("a list of positions is malformed")
		}
	}
	*p = all
	return nil
}

// check reports positions outside of a list of n locks.
func (p positions) check(n int) error {
	if len(p) > 0 && p[len(p)-1] >= n {
		return fmt.Errorf("a frame names lock %d of %d", p[len(p)-1], n)
	}
	return nil
}

// frameEvent is an event of a frame. Its lock is that of the list after the frame, or
// before it, or in the event itself. The numbers of holders and waiters begin with 1.
type frameEvent struct {
	Kind   keyspace.EventKind `json:"kind"`
	At     time.Time          `json:"at,omitzero"` // zero: the time of the frame
	After  *int               `json:"after,omitzero"`
	Before *int               `json:"before,omitzero"`
	Lock   *keyspace.Lock     `json:"lock,omitzero"`

	HolderNo     int                  `json:"holder_no,omitzero"`      // of the lock
	PrevHolderNo int                  `json:"prev_holder_no,omitzero"` // of the lock before the frame
	Holder       *keyspace.Holder     `json:"holder,omitzero"`
	WaiterNo     int                  `json:"waiter_no,omitzero"`
	PrevWaiterNo int                  `json:"prev_waiter_no,omitzero"`
	Waiter       *keyspace.Waiter     `json:"waiter,omitzero"`
	Held         time.Duration        `json:"held_ns,omitzero"`
	Announced    bool                 `json:"announced,omitzero"`
	Possible     []keyspace.EventKind `json:"possible,omitzero"`
}

// stateOf returns a snapshot without its time, locks, events and notices.
func stateOf(s keyspace.Snapshot) keyspace.Snapshot {
	return keyspace.Snapshot{Complete: s.Complete, Cost: s.Cost, Server: s.Server, Nodes: s.Nodes, Problems: s.Problems, Watch: s.Watch}
}

// withoutFigures returns a state without its numbers and times, such as the uptime, which always change.
func withoutFigures(s keyspace.Snapshot) keyspace.Snapshot {
	s.Nodes = slices.Clone(s.Nodes)
	clearFigures(reflect.ValueOf(&s).Elem())
	return s
}

// clearFigures sets all numbers and times in v to zero.
func clearFigures(v reflect.Value) {
	switch {
	case v.CanInt() || v.CanFloat() || v.Type() == reflect.TypeFor[time.Time]():
		v.SetZero()
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			clearFigures(v.Field(i))
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			clearFigures(v.Index(i))
		}
	}
}

// segmentStart returns the time of the full state of the segment that begins with prefix.
func segmentStart(prefix []byte) (time.Time, bool) {
	if len(prefix) < segmentPrefix || !bytes.HasPrefix(prefix, []byte(memberStart)) || !bytes.HasPrefix(prefix[fieldStart:], []byte(segmentID+"\x08\x00")) {
		return time.Time{}, false
	}
	return time.Unix(0, int64(binary.BigEndian.Uint64(prefix[fieldStart+4:]))), true
}

// jsonFormat is the format of the lines: a duration is a number of ns, and a text that is not UTF-8 is no error.
var jsonFormat = json.JoinOptions(jsonv1.FormatDurationAsNano(true), jsontext.AllowInvalidUTF8(true))

// encodeLine returns a value as a line of JSON.
func encodeLine(v any) ([]byte, error) {
	line, err := json.Marshal(v, jsonFormat)
	return append(line, '\n'), err
}

// decodeLine sets a value from a line of JSON.
func decodeLine(line []byte, v any) error { return json.Unmarshal(line, v, jsonFormat) }

// checkCRC verifies the checksum of the line of a frame. sum is that of the stream before.
func checkCRC(line []byte, sum uint32) error {
	i := bytes.LastIndex(line, []byte(crcField))
	if i < 0 {
		return errors.New("a frame has no checksum")
	}
	want, err := strconv.ParseUint(string(bytes.TrimSuffix(line[i+len(crcField):], []byte("}\n"))), 10, 32)
	if err != nil || uint32(want) != crc32.Update(sum, crc32.IEEETable, line[:i]) {
		return errors.New("the checksum of a frame is wrong")
	}
	return nil
}

// The functions below define the restored deadline of a renewed lock. The writer and the
// reader both use them.

// renewedFrom returns the time from which the time to live of a lock counts: its last
// renewal, or the begin of its hold. It is zero if a renewal of the lock cannot be restored.
func renewedFrom(l *keyspace.Lock) time.Time {
	switch {
	case len(l.Holders) != 1 || l.Expires.IsZero():
		return time.Time{}
	case !l.Renewed.IsZero():
		return l.Renewed
	default:
		return l.Holders[0].Since
	}
}

// withRenewal returns the lock with a renewal at the time at to the deadline expires.
func withRenewal(l keyspace.Lock, at, expires time.Time) keyspace.Lock {
	shift := expires.Sub(l.Expires)
	l.Renewed, l.Expires = at, expires
	l.Holders, l.Votes = slices.Clone(l.Holders), slices.Clone(l.Votes)
	for i := range l.Holders {
		l.Holders[i].Expires = shifted(l.Holders[i].Expires, shift)
	}
	for i := range l.Votes {
		l.Votes[i].Expires = shifted(l.Votes[i].Expires, shift)
	}
	return l
}

func shifted(deadline time.Time, by time.Duration) time.Time {
	if deadline.IsZero() {
		return deadline
	}
	return deadline.Add(by)
}

// sameButRenewal reports whether l is the lock restored, except that the times of its
// renewal differ by at most renewalSlack.
func sameButRenewal(l, restored keyspace.Lock) bool {
	l.Expires, l.Renewed = nearby(l.Expires, restored.Expires), nearby(l.Renewed, restored.Renewed)
	l.Holders, l.Votes = slices.Clone(l.Holders), slices.Clone(l.Votes)
	for i := range min(len(l.Holders), len(restored.Holders)) {
		l.Holders[i].Expires = nearby(l.Holders[i].Expires, restored.Holders[i].Expires)
	}
	for i := range min(len(l.Votes), len(restored.Votes)) {
		l.Votes[i].Expires = nearby(l.Votes[i].Expires, restored.Votes[i].Expires)
	}
	return keyspace.SameLock(&l, &restored)
}

// nearby returns other if it differs from t by at most renewalSlack, else t.
func nearby(t, other time.Time) time.Time {
	if !t.IsZero() && !other.IsZero() && t.Sub(other).Abs() <= renewalSlack {
		return other
	}
	return t
}

// redactor replaces the secret parts of tokens by hashes. It has its own salt, and gives the same part always the same
// hash.
type redactor struct{ salt [16]byte }

// newRedactor returns a redactor with a new salt.
func newRedactor() *redactor {
	r := &redactor{}
	_, _ = rand.Read(r.salt[:]) // never fails
	return r
}

// saltName is the file with the salt of a directory. With the salt, a token can be tried,
// so only the owner of the recording can read it.
const saltName = "salt"

// redactorIn returns the redactor of a directory of segments: the same token has the same
// hash in all of them. If the salt cannot be stored, it is a new one.
func redactorIn(dir string) *redactor {
	name := filepath.Join(dir, saltName)
	r := newRedactor()
	stored, err := os.ReadFile(name)
	if err == nil && len(stored) == len(r.salt) {
		copy(r.salt[:], stored)
		return r
	}
	_ = os.WriteFile(name, r.salt[:], 0o600) // without it, only a restart is worse
	return r
}

// hash returns a token without its secret parts. A host, a process ID or the name of a client stays: they are what
// a reader follows to a log. A longer token of one part is secret as a whole, also if it is a number.
func (r *redactor) hash(token string) string {
	alone := len(token) > 6 && !strings.ContainsAny(token, tokenSeparators+"-._")
	return tokenPart.ReplaceAllStringFunc(token, func(part string) string {
		if !alone && readable.MatchString(part) {
			return part
		}
		sum := sha256.Sum256(append(r.salt[:], part...))
		return keyspace.RedactedToken + hex.EncodeToString(sum[:6])
	})
}

// tokenSeparators stand between the parts of a token.
const tokenSeparators = ":@|~#,; "

var tokenPart = regexp.MustCompile("[^" + tokenSeparators + "]+")

// readable matches a part of a token that is no secret: a number or a time, or names joined by - . or _, such as a host or a
// pod. A name has at most 8 letters in a row: by chance, few random texts look so.
var readable = regexp.MustCompile(`^([0-9]{1,13}|[0-9]{1,3}(\.[0-9]{1,3}){3}|([A-Za-z]?[a-z]{0,7}|[A-Z]{1,8})[0-9]{0,4}([-._]([A-Za-z]?[a-z]{0,7}[0-9]{0,5}|[0-9a-f]{8,10}|[0-9a-z]{5}))*)$`)

// JSON strings cannot hold arbitrary bytes, but keys and tokens can. A text that is
// not UTF-8 is stored as U+0000 and its base64 form.
const binaryMark = "\x00"

func escapeText(s string) string {
	if utf8.ValidString(s) && !strings.HasPrefix(s, binaryMark) {
		return s
	}
	return binaryMark + base64.StdEncoding.EncodeToString([]byte(s))
}

// unescapeText reverses escapeText. It returns other texts unchanged.
func unescapeText(s string) string {
	encoded, binary := strings.CutPrefix(s, binaryMark)
	if !binary {
		return s
	}
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return s
	}
	return string(raw)
}

// mapLock returns a copy of l with name applied to keys and labels, and token to tokens and
// IDs.
func mapLock(l keyspace.Lock, name, token func(string) string) keyspace.Lock {
	l.Key = name(l.Key)
	l.Holders, l.Waiters, l.Votes, l.Evidence = slices.Clone(l.Holders), slices.Clone(l.Waiters), slices.Clone(l.Votes), slices.Clone(l.Evidence)
	for i := range l.Holders {
		l.Holders[i].ID, l.Holders[i].Label = token(l.Holders[i].ID), name(l.Holders[i].Label)
	}
	for i := range l.Waiters {
		l.Waiters[i].ID = token(l.Waiters[i].ID)
	}
	for i := range l.Votes {
		l.Votes[i].Token, l.Votes[i].Was = token(l.Votes[i].Token), token(l.Votes[i].Was)
	}
	for i := range l.Evidence {
		l.Evidence[i] = name(l.Evidence[i])
	}
	return l
}
