package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

const (
	medallionReaders = ".readers"
	medallionWriter  = ".writer"
	medallionWaits   = "_WRITERWAITING"
)

// medallionToken parses machine_process_UUID.
func medallionToken(value string, _ time.Time) (keyspace.Holder, bool) {
	at := len(value) - 32
	if at < 0 || !isHex(value[at:], 32) {
		return keyspace.Holder{}, false
	}
	prefix, ok := strings.CutSuffix(value[:at], "_")
	machine, process, named := cutLast(prefix, "_")
	if !ok || !named || machine == "" || !digits(process, 1, 10) {
		return keyspace.Holder{}, false
	}
	return keyspace.Holder{ID: value, Label: machine + " process " + process, Depth: 1}, true
}

// medallionReadersLock is the format of the library's read/write lock with readers: a
// set of readers with one deadline, and a second key for a waiting writer.
func medallionReadersLock() keyspace.Format {
	writer := func(key string) string { return strings.TrimSuffix(key, medallionReaders) + medallionWriter }
	read := decodeMembers(keyspace.RW, keyspace.Certain, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
		h, ok := medallionToken(m.Name, now)
		h.Mode = keyspace.Read
		return h, ok
	})
	return keyspace.Format{
		About: about("medallion-readers", "DistributedLock (.NET)", "github.com/madelson/DistributedLock@2.8.1: src/DistributedLock.Redis/Primitives/RedisReaderWriterLockPrimitives.cs",
			"the name ends in .readers, and the set holds machine_process_UUID"),
		ShowsWaiters: true,
		Type:         "set",
		Match:        ends(medallionReaders),
		Probe:        probeMedallion,
		Related:      beside("string", writer),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l, sure := read(e)
			if w := e.Related[writer(e.Key)].Value; w != "" {
				l.Waiters = []keyspace.Waiter{{ID: strings.TrimSuffix(w, medallionWaits), Mode: keyspace.Write}}
			}
			return l, sure
		},
		Actions: memberActions(inSet, "hold_extend"),
	}
}

var probeMedallion = probeIf(keyspace.Certain, func(first string) bool {
	_, ok := medallionToken(first, time.Time{})
	return ok || len(first) >= probeBytes
})

// medallionWriterLock is the format of the library's read/write lock with a writer, or
// with a waiting writer and no readers.
func medallionWriterLock() keyspace.Format {
	readers := func(key string) string { return strings.TrimSuffix(key, medallionWriter) + medallionReaders }
	return keyspace.Format{
		About: about("medallion-writer", "DistributedLock (.NET)", "github.com/madelson/DistributedLock@2.8.1: src/DistributedLock.Redis/Primitives/RedisReaderWriterLockPrimitives.cs",
			"the name ends in .writer, and the value is machine_process_UUID"),
		ShowsWaiters: true,
		Type:         "string",
		Match:        ends(medallionWriter),
		Probe: func(key, first string) keyspace.Confidence {
			return probeMedallion(key, strings.TrimSuffix(first, medallionWaits))
		},
		Related: beside("set", readers),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			id, waits := strings.CutSuffix(e.Value, medallionWaits)
			h, ok := medallionToken(id, e.Now)
			_, read := e.Related[readers(e.Key)]
			if !ok || read { // the readers' key represents the lock
				return keyspace.Lock{}, keyspace.No
			}
			l := keyspace.Lock{Kind: keyspace.RW}
			if h.Mode = keyspace.Write; waits {
				l.Waiters = []keyspace.Waiter{{ID: id, Mode: keyspace.Write}}
			} else {
				l.Holders = []keyspace.Holder{h}
			}
			return l, keyspace.Certain
		},
		Actions: tokenActions(),
	}
}

// medallionSemaphore is the format of the library's semaphore: a zset of holders with
// their deadlines.
func medallionSemaphore() keyspace.Format {
	return keyspace.Format{
		About: about("medallion-semaphore", "DistributedLock (.NET)", "github.com/madelson/DistributedLock@2.8.1: src/DistributedLock.Redis/Primitives/RedisSemaphorePrimitive.cs",
			"the zset holds machine_process_UUID"),
		Type:  "zset",
		Probe: probeMedallion,
		Decode: decodeMembers(keyspace.Semaphore, keyspace.Certain, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
			h, ok := medallionToken(m.Name, now)
			until, timed := atScore(m.Score)
			h.Expires = until
			return h, ok && timed
		}),
		Actions: memberActions(inZset, "scores_extend"),
	}
}
