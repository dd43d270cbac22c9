package keyspace

import "time"

// Format is what is known about how one library stores one kind of lock.
// The list of all of them is in package formats.
//
// A key is looked at in three steps, each dearer than the one before and taken
// only if the last has not ruled the key out: Prefixes and Match see its name,
// Probe one bounded piece of its value, Decode all that may be read of it.
// The functions are pure, and never panic whatever the bytes.
type Format struct {
	Name          string     // stable, lower case; appears in JSON
	Library       string     // for people: "Redisson", "redsync" …
	Source        string     // where the layout can be read up
	Signature     string     // what gives its keys away, for people: "the field is …"
	Type          string     // the Redis type of its keys, or AnyType; no others are asked for
	MaxConfidence Confidence // that Decode ever has; No: it may be certain
	// Prefixes is what the names of its keys begin with, one of these, with
	// something behind it. None: they may begin with anything.
	Prefixes []string
	// Match says whether a key of this name, which begins as it must, may be
	// one. Nil: any may.
	Match func(key string) bool
	// Probe returns the most that Decode could still say of a key, judged by
	// its name and the first thing in it: the first 128 bytes of a string, the
	// first element of a list, any one field or element of the rest. Nil: only
	// the whole can tell.
	Probe func(key, first string) Confidence
	// Companion says whether a name belongs to something beside a lock (a
	// queue, a fence …) that is never a lock itself, whoever else would like
	// to take it for one. Nil: there is nothing that its name gives away.
	Companion func(key string) bool
	// Related returns what is stored beside the lock in an entry. It is read
	// along, handed to Decode in Entry.Related, and claimed: it never appears
	// as a lock of its own. Nil if there is nothing.
	Related func(Entry) []Companion
	// Channels returns the pub/sub channels on which those who wait for the lock
	// in an entry listen. How many do is handed to Decode in Entry.Subscribers.
	// Nil if they do not.
	Channels func(Entry) []string
	// Decode reads a lock from an entry. It fills Kind, Holders, Waiters, Fence
	// and the numbers, and in Why what it goes by besides Signature; where it leaves
	// the Expires of the lock or of a holder zero, the entry's own is taken.
	// Confidence No means: not mine. Companions and subscribers may make it
	// surer than it was without.
	Decode func(Entry) (Lock, Confidence)
	// NoTTL tells that the library gives its locks no deadline, by design.
	NoTTL bool
	// ShowsWaiters tells that Decode finds those who wait, or their number. Without it a
	// lock that shows no waiters may have some.
	ShowsWaiters bool
	// BlockingWait tells that those who wait do so in a command that blocks, such as BLPOP.
	BlockingWait bool
	// Actions is how locks of this format are acted on from outside. Nil: hands
	// off.
	Actions *Actions
	// ReleaseChannel is how the library tells that a lock is free. Nil: it does not,
	// or not reliably.
	ReleaseChannel *ReleaseChannel
	// Samples are states as the library leaves them. They are tests, demo data
	// and documentation at once.
	Samples []Sample
}

// AnyType is the type of a format whose keys may be of every type that Redis has
// by itself.
const AnyType = "any"

// Companion is a key that a lock keeps beside its own, and the type it has.
type Companion struct {
	Key  string
	Type string
}

// Entry is a key as it was read: type, expiry and a bounded part of the value.
type Entry struct {
	Key       string
	Node      string           // of a cluster, that the key was read on; empty = the server that was looked at
	Type      string           // string, hash, list, set, zset, stream
	Now       time.Time        // the server's clock when the key was read
	Expires   time.Time        // zero = no TTL
	Spread    time.Duration    // the deadline may be later than Expires by up to this; 0 = Expires is exact
	Value     string           // of a string: the first 4 KiB
	Len       int64            // full length: bytes of a string, elements of the rest
	Members   []Member         // of the rest: the first 256 elements
	Oversized bool             // the elements are too big to be read: there are no Members
	Related   map[string]Entry // those of the companions that exist

	Subscribers map[string]int64 // to the channels of the format; nil if nobody asked, or may
}

// Member is an element of a collection.
type Member struct {
	Name  string  // hash field, or element of a list, set or zset
	Value string  // hash value
	Score float64 // zset score
}

// Truncated reports whether the entry holds only a part of the value.
func (e Entry) Truncated() bool {
	if e.Type == "string" {
		return e.Len > int64(len(e.Value))
	}
	return e.Len > int64(len(e.Members))
}

// Sample is a state as a library leaves it, and the lock it must decode to.
//
// Arguments of the commands, and the IDs of the lock wanted, may hold
// placeholders for the server's time, some milliseconds on or back:
// {ms+30000} is that time in ms, {s+30000} in seconds, {f+30000} with a
// fraction, {iso-9000} as a date, {uniqid-9000} as PHP writes it,
// {v1-9000/4a} and {v7-9000/4a} are UUIDs made
// then, whose other bits repeat the byte 4a; {v1hex-9000/4a} has no dashes, {v1b64-9000/4a}
// is base64.
type Sample struct {
	Name     string
	Commands [][]string    // each an argv; sending them twice does no harm
	Want     Lock          // Format, Since and Expires are not compared
	TTL      time.Duration // 0 = never expires
}
