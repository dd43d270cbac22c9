package formats

import (
	"strconv"
	"time"

	"locktop/keyspace"
)

// stampRW is the format of a read/write lock in a hash with two times: the last acquire
// for reading and the last one for writing. Their validity is not known, so the later
// one is the holder.
func stampRW() keyspace.Format {
	sure := func(key string) keyspace.Confidence {
		if looksLikeLock(key) {
			return keyspace.Likely
		}
		return keyspace.Possible
	}
	return keyspace.Format{
		Name:      "stamp-rw",
		Library:   "custom: a hash of two times",
		Source:    "common practice",
		Signature: "the hash has a time in ms for read or write, and nothing else",
		Type:      "hash",
		Probe: func(key, first string) keyspace.Confidence {
			if modeOf(first) == "" {
				return keyspace.No
			}
			return sure(key)
		},
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			var last keyspace.Holder
			for _, m := range e.Members {
				at, ok := atMilli(m.Value)
				if !ok || modeOf(m.Name) == "" {
					return keyspace.Lock{}, keyspace.No
				}
				if since := plausibleStart(at, e.Now); last.ID == "" || since.After(last.Since) {
					last = keyspace.Holder{ID: m.Value, Count: 1, Mode: modeOf(m.Name), Since: since}
				}
			}
			if last.ID == "" {
				return keyspace.Lock{}, keyspace.No
			}
			return keyspace.Lock{Kind: keyspace.RW, Holders: []keyspace.Holder{last}}, sure(e.Key)
		},
		Actions: hashRWActions(""),
		Samples: []keyspace.Sample{{
			Name:     "read just now, written before",
			Commands: [][]string{{"HSET", "rwlock:prices", "read", "{ms-1000}", "write", "{ms-90000}"}},
			Want: keyspace.Lock{
				Key: "rwlock:prices", Kind: keyspace.RW, Confidence: keyspace.Likely,
				Holders: []keyspace.Holder{{ID: "{ms-1000}", Count: 1, Mode: keyspace.Read}},
			},
		}},
	}
}

// modeOf returns the mode of a field; "" if the field has none.
func modeOf(field string) keyspace.Mode {
	switch field {
	case "read", "r":
		return keyspace.Read
	case "write", "w":
		return keyspace.Write
	default:
		return ""
	}
}

// hashRW is the format of a read/write lock in a hash with two owners.
func hashRW() keyspace.Format {
	return keyspace.Format{
		Name:      "hash-rw",
		Library:   "custom: a hash of two owners",
		Source:    "common practice",
		Signature: "the name contains a word for locks, and the hash has an owner for r or w, and nothing else",
		Type:      "hash",
		Match:     looksLikeLock,
		Probe:     probeIf(keyspace.Likely, func(first string) bool { return modeOf(first) != "" }),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.RW}
			for _, m := range e.Members {
				mode := modeOf(m.Name)
				if mode == "" || m.Value == "" || digits(m.Value, 1, 20) {
					return keyspace.Lock{}, keyspace.No
				}
				l.Holders = append(l.Holders, keyspace.Holder{ID: m.Value, Count: 1, Mode: mode})
			}
			return ifHeld(l, keyspace.Likely)
		},
		Actions: hashRWActions("hold_extend"),
		Samples: []keyspace.Sample{{
			Name: "a writer",
			Commands: [][]string{
				{"HSET", "rwlock:stock", "w", "billing-3:main"},
				{"PEXPIRE", "rwlock:stock", "30000"},
			},
			Want: keyspace.Lock{
				Key: "rwlock:stock", Kind: keyspace.RW, Confidence: keyspace.Likely,
				Holders: []keyspace.Holder{{ID: "billing-3:main", Count: 1, Mode: keyspace.Write}},
			},
			TTL: 30 * time.Second,
		}},
	}
}

// hashRWActions change a hash of mode → holder or time.
func hashRWActions(extend string) *keyspace.Actions {
	h := &keyspace.Actions{
		Keys: lockKey,
		Args: func(l keyspace.Lock) []string {
			seen := []string{strconv.Itoa(len(l.Holders))}
			for _, h := range l.Holders {
				seen = append(seen, string(h.Mode), h.ID)
			}
			return seen
		},
		ForceRelease: script("hash_rw_check", "hash_rw_release"),
	}
	if extend != "" {
		h.Extend = script("hash_rw_check", extend)
	}
	return h
}
