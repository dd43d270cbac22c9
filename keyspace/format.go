package keyspace

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Format describes how one library stores one kind of lock. Package formats has the
// list of all formats.
//
// A key is checked in three steps, each more expensive than the one before: Prefixes
// and Match see its name, Probe one bounded piece of its value, and Decode everything
// that may be read of it. The functions are pure and never panic, whatever the bytes.
type Format struct {
	About
	Type          string     // the Redis type of its keys, or AnyType
	MaxConfidence Confidence // upper bound of the confidence of Decode; No = Certain is possible
	// Prefixes lists the possible beginnings of its key names, behind the namespace of an
	// application if there is one. A name is longer than its prefix. Empty: any beginning.
	Prefixes []string
	// Match reports whether a key with this name, which has one of the Prefixes, can be a
	// lock of the format. Nil: every name can.
	Match func(key string) bool
	// Probe returns the highest confidence that Decode can still reach, from the name and
	// the first piece of the value: the first 128 bytes of a string, the first element of a
	// list, or any one field or element of another type. Nil: only the whole value decides.
	Probe func(key, first string) Confidence
	// Companion reports whether a name belongs to a key beside a lock (a queue, a fence,
	// …). Such a key is never a lock itself, whatever other formats say. With Prefixes, the
	// name has no namespace. Nil: no such names.
	Companion func(key string) bool
	// Related returns the companion keys of the lock in an entry. They are read as well,
	// passed to Decode in Entry.Related, and never appear as locks themselves. Nil: none.
	Related func(Entry) []Companion
	// LockKey returns the key of the lock that a key of this format stands in for, while the
	// lock's own key does not exist: the lock of a queue. Nil: the keys are the locks.
	LockKey func(key string) string
	// StandIn is the inverse of LockKey. Nil if and only if LockKey is.
	StandIn func(lock string) Companion
	// Channels returns the pub/sub channels that waiters of the lock in an entry subscribe
	// to. The number of subscribers is passed to Decode in Entry.Subscribers. Nil: none.
	Channels func(Entry) []string
	// Decode reads a lock from an entry. It sets Kind, Holders, Waiters, Fence and the
	// numbers, and the Evidence besides Signature. Where it leaves the Expires of the lock
	// or of a holder zero, the expiry of the entry is used. Confidence No means that the
	// entry is not a lock of the format. Companions and subscribers can raise the
	// confidence.
	Decode func(Entry) (Lock, Confidence)
	// LockLike says that the name or the fields of its keys suggest a lock. Such a key is one
	// if it is deleted and comes back, whatever its TTL is.
	LockLike bool
	// NoTTL says that the library sets no deadline, by design.
	NoTTL bool
	// Unchecked says that the library unlocks without a check whose lock it is.
	Unchecked bool
	// ShowsWaiters says that Decode finds the waiters or their number. Without it, a lock
	// without visible waiters may still have some.
	ShowsWaiters bool
	// MayPoll says that some clients wait without an entry: they only poll.
	MayPoll bool
	// BlockingWait says that waiters use a blocking command such as BLPOP.
	BlockingWait bool
	// Attempts are the shapes of the commands with which a client tries to acquire a lock, the
	// most specific first. Nil: MONITOR does not show who waits for such a lock.
	Attempts []Attempt
	// Actions are the scripts that change a lock of this format from outside. Nil: such a
	// lock cannot be changed.
	Actions *Actions
	// Wake returns the command that wakes the next waiter of a lock that is free at now. It
	// changes no key. Nil, and a nil command: there is none.
	Wake func(l Lock, now time.Time) []string
	// ReleaseChannel is where the library publishes releases. Nil: it does not, or not
	// reliably.
	ReleaseChannel *ReleaseChannel
}

// About says what a format is.
type About struct {
	Name      string // stable, lower case; appears in JSON
	Library   string // for people: "Redisson", "redsync", …
	Source    string // where its facts come from: "repository@version: files", several with ;
	Signature string // how its keys are recognized, for people: "the field is …"
}

// MatchesName reports whether a key with this name can be a lock of the format.
func (f *Format) MatchesName(key string) bool {
	return f.HasName(key) || f.Prefixes != nil && AnyName(key, f.HasName)
}

// HasName reports whether a name is one of the format, without a namespace.
func (f *Format) HasName(name string) bool {
	longer := func(prefix string) bool { return len(name) > len(prefix) && strings.HasPrefix(name, prefix) }
	if f.Prefixes != nil && !slices.ContainsFunc(f.Prefixes, longer) {
		return false
	}
	return f.Match == nil || f.Match(name)
}

// CutNamespace cuts a key that matches before its name. The namespace is empty, or ends in
// punctuation.
func (f *Format) CutNamespace(key string) (namespace, name string) {
	AnyName(key, func(s string) bool { name = s; return f.HasName(s) })
	return key[:len(key)-len(name)], name
}

// AnyName reports whether is holds for a key, or for what follows a punctuation mark in it.
func AnyName(key string, is func(name string) bool) bool {
	before := byte(':')
	for at := range len(key) {
		letter := '0' <= before && before <= '9' || 'a' <= before|0x20 && before|0x20 <= 'z' || before >= 0x80
		if before = key[at]; !letter && is(key[at:]) {
			return true
		}
	}
	return false
}

// DecodeLock decodes an entry whose name matches the format, and adds to the result of
// Decode what the format and the entry say of the lock.
func (f Format) DecodeLock(e Entry) (Lock, Confidence) {
	l, sure := f.Decode(e)
	l.Key, l.Format, l.Confidence, l.NoTTL = e.Key, f.Name, sure, f.NoTTL
	l.NoExtend, l.Unchecked = f.Actions == nil || f.Actions.Extend == "", l.Unchecked || f.Unchecked
	if f.LockKey != nil {
		l.Key = f.LockKey(e.Key)
	}
	if f.Signature != "" {
		l.Evidence = append([]string{f.Signature}, l.Evidence...)
	}
	l.Stamped, l.ReadAt = !l.Expires.IsZero(), e.Now
	l.endWithFields(e.Members)
	// A lock whose holders all have a deadline ends with the last of them: its key may exist for
	// longer, for its waiters or for a holder that has released it.
	if l.Expires.IsZero() {
		l.Expires = Earliest(e.Expires, lastDeadline(l.Holders))
	}
	for i := range l.Holders {
		l.Holders[i].Expires = cmp.Or(l.Holders[i].Expires, l.Expires)
	}
	return l, sure
}

// endWithFields gives each holder the deadline of its field of a hash, or the earliest one if its
// hold is several fields. No action changes them.
func (l *Lock) endWithFields(fields []Member) {
	var first time.Time
	for _, m := range fields {
		first = Earliest(first, m.Expires)
	}
	if first.IsZero() {
		return
	}
	l.NoExtend = true
	for i, h := range l.Holders {
		until := first
		if at := slices.IndexFunc(fields, func(m Member) bool { return m.Name == h.ID }); at >= 0 {
			until = fields[at].Expires
		}
		l.Holders[i].Expires = Earliest(h.Expires, until)
	}
}

// lastDeadline returns the latest of the holders' own deadlines; zero if one has none.
func lastDeadline(holders []Holder) (last time.Time) {
	for _, h := range holders {
		if h.Expires.IsZero() {
			return time.Time{}
		}
		last = Later(last, h.Expires)
	}
	return last
}

// AnyType is the type of a format whose keys can have any of the core types of Redis.
const AnyType = "any"

// Companion is a key that belongs to a lock, and its type.
type Companion struct {
	Key  string
	Type string
}

// Entry is a key as it was read: type, expiry and a bounded part of the value.
type Entry struct {
	Key       string
	Node      string           // cluster node on which the key was read; empty = the scanned server
	Type      string           // string, hash, list, set, zset, stream
	Now       time.Time        // the server's clock when the key was read
	Expires   time.Time        // zero = no TTL
	Spread    time.Duration    // the deadline may be later than Expires by up to this; 0 = Expires is exact
	Value     string           // of a string: the first 4 KiB
	Len       int64            // full length: bytes of a string, elements of other types
	Members   []Member         // of other types: the first 256 elements
	Oversized bool             // the elements are too large to be read; there are no Members
	Related   map[string]Entry // the companions that exist

	Subscribers map[string]int64 // of the channels of the format; nil if they were not counted
}

// Member is an element of a collection.
type Member struct {
	Name  string  // hash field, or element of a list, set or zset
	Value string  // hash value
	Score float64 // zset score

	Expires time.Time // own deadline of a hash field; zero = none, or not read
}

// Truncated reports whether the entry has only a part of the value.
func (e Entry) Truncated() bool {
	if e.Type == "string" {
		return e.Len > int64(len(e.Value))
	}
	return e.Len > int64(len(e.Members))
}

// Sample is a state that a library leaves on a server, and the lock that it must decode
// to: a test, data of the demo and documentation. The file formats/samples has them.
//
// Arguments of the commands, and the IDs of the wanted lock, may contain placeholders
// for the server's time plus an offset in ms: {ms+30000} is that time in ms, {s+30000}
// in seconds, {f+30000} with a fraction, {iso-9000} as a date, {ruby-9000} and
// {uniqid-9000} as Ruby and PHP write it. {v1-9000/4a} and {v7-9000/4a} are UUIDs of that time whose other bits
// repeat the byte 4a; {v1hex-9000/4a} has no dashes, {v1b64-9000/4a} is base64.
type Sample struct {
	Name     string
	Commands [][]string    // each is an argv; running them twice has the same result
	Want     Lock          // Format, Since and Expires are not compared
	TTL      time.Duration // 0 = never expires
}

// Attempt is the shape of the command with which a client of a library tries to acquire a
// lock. The indexes count the arguments behind the command; those of a script count ARGV.
type Attempt struct {
	Command string // in lower case; [AnyScript] is any command that runs a script
	Option  string // an argument that the command must have, in lower case; "" = none
	Token   int    // index of the token
	Numbers []int  // indexes of positive numbers, such as a TTL: they tell it from a release
}

// AnyScript is the Command of a shape that EVAL, EVALSHA or FCALL runs. The server gets only a
// digest of most scripts, so the shape is that of the arguments. The lock is one of KEYS.
const AnyScript = "script"

// ScriptCommands lists the commands that run a script.
func ScriptCommands() []string { return []string{"eval", "evalsha", "fcall"} }

// Attempt reports whether a client tries to acquire the lock under a key with a command of this
// library, and the token that the lock has if it succeeds. args is the command with its
// arguments. A renewal may look like an attempt: the token is that of the holder then.
func (f *Format) Attempt(args []string, key string) (token string, ok bool) {
	if len(args) < 2 {
		return "", false
	}
	command, args := strings.ToLower(args[0]), args[1:]
	if slices.Contains(ScriptCommands(), command) {
		keys, argv := scriptArguments(args)
		if !slices.Contains(keys, key) {
			return "", false
		}
		command, args = AnyScript, argv
	} else if args[0] != key {
		return "", false
	}
	if token, ok := f.tokenIn(command, args, key); ok {
		return token, true
	}
	if command == AnyScript && f.Type == "string" && len(args) > 2 {
		if _, err := strconv.Atoi(args[0]); err == nil { // as that of the database
			return f.tokenIn(command, args[1:], key)
		}
	}
	return "", false
}

// setsIfNone are the commands that acquire a lock that is one string, whatever its token.
var setsIfNone = []Attempt{{Command: "set", Token: 1, Option: "nx"}, {Command: "setnx", Token: 1}}

// tokenIn returns the token in the arguments of a command that has one of the shapes. A script must
// have a token that the format may have.
func (f *Format) tokenIn(command string, args []string, key string) (string, bool) {
	shapes := f.Attempts
	if f.Type == "string" && shapes != nil {
		shapes = slices.Concat(shapes, setsIfNone)
	}
	for _, shape := range shapes {
		token, ok := shape.tokenIn(command, args)
		if ok && (command != AnyScript || f.Type != "string" || f.Probe == nil || f.Probe(key, token) != No) {
			return token, true
		}
	}
	return "", false
}

// scriptArguments returns KEYS and ARGV of a script, without the command; nil if there are
// fewer than the command says.
func scriptArguments(args []string) (keys, argv []string) {
	if len(args) < 2 {
		return nil, nil
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 0 || n > len(args)-2 {
		return nil, nil
	}
	return args[2 : 2+n], args[2+n:]
}

// tokenIn returns the token in the arguments of a command that has the shape.
func (a Attempt) tokenIn(command string, args []string) (string, bool) {
	if command != a.Command || a.Token >= len(args) {
		return "", false
	}
	for _, i := range a.Numbers {
		if i >= len(args) {
			return "", false
		}
		if n, err := strconv.ParseFloat(args[i], 64); err != nil || n <= 0 {
			return "", false
		}
	}
	is := func(arg string) bool { return strings.EqualFold(arg, a.Option) }
	return args[a.Token], a.Option == "" || slices.ContainsFunc(args[a.Token+1:], is)
}

// Label returns the readable part of a token of a lock that is one string; "" if there is none, or
// if the format has another type.
func (f *Format) Label(key, token string, at time.Time) string {
	if f.Type != "string" || f.Decode == nil {
		return ""
	}
	e := Entry{Key: key, Type: f.Type, Now: at, Expires: at.Add(time.Minute), Value: token, Len: int64(len(token))}
	if l, sure := f.Decode(e); sure != No && len(l.Holders) == 1 {
		return l.Holders[0].Label
	}
	return ""
}
