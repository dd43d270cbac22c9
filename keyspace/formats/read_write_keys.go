package formats

import (
	"strings"
	"time"

	"locktop/keyspace"
)

// readWriteKeys is the format of a read/write lock in two strings: one key for all
// readers and one for the writer, with names that say so. If both exist, exclusion is
// violated, and the writer's key represents the lock.
func readWriteKeys() keyspace.Format {
	return keyspace.Format{
		Name:      "read-write-keys",
		Library:   "custom: two keys",
		Source:    "common practice",
		Signature: "the name ends in readLock or writeLock, and the value is a number",
		Type:      "string",
		Match: func(key string) bool {
			_, _, ok := sides(key)
			return ok
		},
		Probe: probeIf(keyspace.Likely, func(first string) bool { return digits(first, 1, 6) }),
		Related: func(e keyspace.Entry) []keyspace.Companion {
			_, other, _ := sides(e.Key)
			return []keyspace.Companion{{Key: other, Type: "string"}}
		},
		Decode:  decodeReadWriteKeys,
		Actions: readWriteActions(),
		Samples: readWriteKeysSamples(),
	}
}

// sides returns the mode of a key and the key of the other mode.
func sides(key string) (mode keyspace.Mode, other string, ok bool) {
	if n := len(key); n < len("readlock") || key[n-1]|0x20 != 'k' { // fast path for most keys
		return "", "", false
	}
	for _, lock := range [...]string{"Lock", "lock", "LOCK"} {
		for _, sep := range [...]string{"", "_", "-", ":"} {
			for _, pair := range [...][2]string{{"read", "write"}, {"Read", "Write"}, {"READ", "WRITE"}} {
				if stem, is := strings.CutSuffix(key, pair[0]+sep+lock); is {
					return keyspace.Read, stem + pair[1] + sep + lock, true
				}
				if stem, is := strings.CutSuffix(key, pair[1]+sep+lock); is {
					return keyspace.Write, stem + pair[0] + sep + lock, true
				}
			}
		}
	}
	return "", "", false
}

func decodeReadWriteKeys(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	mode, beside, ok := sides(e.Key)
	if !ok || !digits(e.Value, 1, 6) {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{Kind: keyspace.RW, Holders: []keyspace.Holder{{ID: e.Value, Count: 1, Mode: mode}}}
	other, both := e.Related[beside]
	switch {
	case both && mode == keyspace.Read: // the writer's key represents the lock
		return keyspace.Lock{}, keyspace.No
	case both:
		l.Holders = append(l.Holders, keyspace.Holder{ID: other.Value, Count: 1, Mode: keyspace.Read, Expires: other.Expires})
		l.Evidence = []string{"both keys exist: it is held for reading and for writing at once"}
	}
	return l, keyspace.Likely
}

func readWriteKeysSamples() []keyspace.Sample {
	reader := opaqueSample("read", "doc:7:readLock", "1", keyspace.Likely, 30*time.Second)
	reader.Want.Kind, reader.Want.Holders[0].Mode = keyspace.RW, keyspace.Read
	broken := opaqueSample("broken: held for reading and for writing at once", "doc:8:writeLock", "1", keyspace.Likely, 20*time.Second)
	broken.Commands = append(broken.Commands, []string{"SET", "doc:8:readLock", "1", "PX", "30000"})
	broken.Want.Kind = keyspace.RW
	broken.Want.Holders = []keyspace.Holder{{ID: "1", Count: 1, Mode: keyspace.Write}, {ID: "1", Count: 1, Mode: keyspace.Read}}
	broken.Want.Evidence = []string{"both keys exist: it is held for reading and for writing at once"}
	return []keyspace.Sample{reader, broken}
}

func readWriteActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: func(l keyspace.Lock) []string {
			own, other, _ := sides(l.Key)
			var keys []string
			for _, h := range l.Holders {
				if h.Mode == own {
					keys = append(keys, l.Key)
				} else {
					keys = append(keys, other)
				}
			}
			return keys
		},
		Args:         holderIDs,
		ForceRelease: script("keys_check", "keys_release"),
		Extend:       script("keys_check", "keys_extend"),
	}
}
