package inspect

import (
	"time"

	"locktop/keyspace"
)

// candidate is a key that may be a lock. It is filled in steps: the filter sets name and type,
// read the entry, match the format and the companions, decode the lock. A Watcher keeps in it
// what it knows of the lock.
type candidate struct {
	name, typ  string           // the key to read, and its expected type; the key may stand in for that of the lock
	entry      *keyspace.Entry  // the key as it was read, until it is decoded; nil = it is gone or was not read
	format     *keyspace.Format // the one that matches best
	heard      *keyspace.Format // the one whose subscribers are counted, until it is decoded; nil = none
	companions []keyspace.Companion
	lock       *keyspace.Lock // never changed once it is in a lockSet; snapshots share it
	spread     time.Duration  // the deadline may be later than read by up to this
	firstRead  time.Time      // local clock: the holder was read under this deadline by then
	lastRead   time.Time      // local clock: begin of the last such read
	touched    int64          // server's clock, in ms: no later own read has reset the idle time
	due        int64          // when it is read again, in ns since 1970 on the server's clock; 0 = only when it changes
	place      int            // in the deadlineQueue, if it is due
	quiet      uint32         // checks without a request of another client that no statistics count
	probed     string         // the first piece of the value when idle was asked for, until it is decoded
	idle       uint32         // seconds for which the key had not changed at least before the first read
	oversized  bool           // everything but its elements is read
	absent     bool           // the server knows no such key
	companion  bool           // of another key; most do not exist, so that all are measured before they are read
	light      bool           // its elements were measured together with the types of other keys, and may be read
	small      bool           // the command that reads a whole value may take the place of one that is denied
	certain    bool           // the format is, from the key alone
	partial    bool           // companions could not be read
	shared     bool           // other keys may have the same idle time
}

// none is no lock.
var none = candidate{lock: new(keyspace.Lock)}
