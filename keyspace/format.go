package keyspace

import "time"

// Format is what is known about how one library stores one kind of lock.
// The list of all of them is in package formats.
type Format struct {
	Name    string // stable, lower case; appears in JSON
	Library string // for people: "Redisson", "redsync" …
	Source  string // where the layout can be read up
	// Match is the cheap side: by name and type alone, before the value is read.
	Match func(key, typ string) bool
	// Related returns the companion keys (queues, fences …) of a key that
	// matched. They are read along, handed to Decode in Entry.Related, and are
	// claimed: they never appear as locks of their own. Nil if there are none.
	Related func(key string) []string
	// Decode reads a lock from an entry. It is pure, and never panics whatever
	// the bytes. It fills Kind, Holders, Waiters and Fence; where it leaves
	// Expires zero, the entry's own is taken. Confidence No means: not mine.
	Decode func(Entry) (Lock, Confidence)
	// Samples are states as the library leaves them. They are tests, demo data
	// and documentation at once.
	Samples []Sample
}

// Entry is a key as it was read: type, expiry and a bounded part of the value.
type Entry struct {
	Key     string
	Type    string    // string, hash, list, set, zset, stream
	Now     time.Time // the server's clock when the key was read
	Expires time.Time // zero = no TTL
	Value   string    // of a string: the first 4 KiB
	Len     int64     // full length: bytes of a string, elements of the rest
	Members []Member  // of the rest: the first 256 elements
	Related map[string]Entry
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
type Sample struct {
	Name     string
	Commands [][]string // each an argv; "{ms+30000}" inside an argument stands for the server's time in ms plus 30,000
	Want     Lock       // Since and Expires are not compared; TTL is
	TTL      time.Duration
}
