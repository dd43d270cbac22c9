package formats

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// The formats of this file are for locks that people write without a library. A word in the
// name and the shape of the value make a key possible; only its behaviour tells more.

// customString is the format of a string whose name and value suggest a holder.
func customString() keyspace.Format {
	return keyspace.Format{
		About: about("custom", "custom code, with strings", "common practice",
			"the name has a word for exclusive use, and the value names a holder"),
		Attempts: stringAttempts(),
		Type:     "string",
		LockLike: true,
		Probe: func(key, first string) keyspace.Confidence {
			sure, _, _ := customStringConfidence(key, first, true)
			return sure
		},
		Decode:  decodeCustomString,
		Actions: tokenActions(),
	}
}

// customStringConfidence returns the confidence for a value under this name, the shape of the
// value, and the word in the name that it depends on.
func customStringConfidence(key, value string, expires bool) (sure keyspace.Confidence, shape holderShape, word string) {
	hint, word := claimOf(key)
	if hint == noClaim && !mayBeLease(value) {
		return keyspace.No, noShape, "" // most keys
	}
	shape = shapeOf(value)
	possible := false
	switch {
	case shape == noShape || shape == numberShape && !expires || countsHolds(key, value):
	case hint == fullClaim:
		possible = shape != numberShape || !countsOtherwise(key, value)
	case hint == roleClaim:
		short := expires && (shape == markShape || shape == timeShape || shape == tokenShape)
		possible = shape >= recordShape || short && isActivity(word) || shape == numberShape && word == "pid"
	default:
		possible = shape == leaseShape && expires && !otherName(key)
	}
	if !possible {
		return keyspace.No, shape, word
	}
	return keyspace.Possible, shape, word
}

func decodeCustomString(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	sure, shape, word := customStringConfidence(e.Key, e.Value, !e.Expires.IsZero())
	if sure == keyspace.No || e.Truncated() || permitsLeft(e) || shape <= numberShape && e.Expires.Sub(e.Now) > 48*time.Hour {
		return keyspace.Lock{}, keyspace.No
	}
	h := keyspace.Holder{ID: e.Value, Depth: 1}
	l := keyspace.Lock{Kind: keyspace.Unknown, Evidence: customEvidence(word, "the value is "+shape.explain())}
	if fields, object := objectFields(e.Value); object {
		r, _ := recordOf(fields)
		h.Label, h.Depth, h.Since = r.owner, r.count, plausibleStart(r.since, e.Now)
	}
	if at := timeIn(e.Value); !at.IsZero() {
		h.Since = plausibleStart(at, e.Now)
		if e.Expires.IsZero() && at.After(e.Now) {
			h.Since, l.Expires = time.Time{}, at
		}
	}
	l.Holders = []keyspace.Holder{h}
	return l, sure
}

// customEvidence says why a key is possible.
func customEvidence(word, shape string) []string {
	if word == "" {
		return []string{shape}
	}
	return []string{fmt.Sprintf("%q in the name suggests exclusive use", word), shape}
}

// customHash is the format of a hash with the fields of one hold, or with an owner for each of
// several names.
func customHash() keyspace.Format {
	return keyspace.Format{
		About: about("custom-hash", "custom code, with hashes", "common practice",
			"the hash has fields that name a holder"),
		Type:     "hash",
		LockLike: true,
		Probe: func(key, first string) keyspace.Confidence {
			if fieldUses[plainField(first)] != 0 && !otherName(key) || suggestsHolders(key) {
				return keyspace.Likely
			}
			return keyspace.No
		},
		Decode:  decodeCustomHash,
		Actions: fieldActions(),
	}
}

func decodeCustomHash(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	if e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	hint, word := claimOf(e.Key)
	fields := make([]recordField, len(e.Members))
	for i, m := range e.Members {
		fields[i] = recordField{m.Name, m.Value}
	}
	r, ok := recordOf(fields)
	switch {
	case ok && r.shape() == leaseShape && (hint != noClaim || !otherName(e.Key)), ok && hint != noClaim && 2*r.others <= len(e.Members):
		l := keyspace.Lock{Kind: keyspace.Mutex, Evidence: customEvidence(word, fmt.Sprintf("the fields name the holder %q", r.owner))}
		l.Holders = []keyspace.Holder{{ID: fieldID(r.fields), Label: r.owner, Depth: r.count, Since: plausibleStart(r.since, e.Now)}}
		if hintOf(e.Key) == strongHint && !e.Expires.IsZero() {
			return l, keyspace.Likely
		}
		return l, keyspace.Possible
	case hint == fullClaim:
		return decodeOwnerTable(e, word)
	default:
		return keyspace.Lock{}, keyspace.No
	}
}

// decodeOwnerTable decodes a hash that has an owner for each of several names, or a time for
// each of several owners.
func decodeOwnerTable(e keyspace.Entry, word string) (keyspace.Lock, keyspace.Confidence) {
	l, sure := decodeMembers(keyspace.Unknown, keyspace.Possible, func(m keyspace.Member, now time.Time) (keyspace.Holder, bool) {
		h, shape := keyspace.Holder{ID: fieldID([]recordField{{m.Name, m.Value}}), Label: m.Value, Depth: 1}, shapeOf(m.Value)
		if shape == timeShape && shapeOf(m.Name) >= tokenShape {
			h.Label = m.Name
			setTime(&h, timeIn(m.Value), now)
			return h, true
		}
		return h, shape >= tokenShape
	})(e)
	l.Evidence = customEvidence(word, fmt.Sprintf("each of %d fields has an owner or a time", len(e.Members)))
	return l, sure
}

// setTime sets the begin or the end of a hold to a time that is stored for it.
func setTime(h *keyspace.Holder, at, now time.Time) {
	if at.After(now) {
		h.Expires = at
	} else {
		h.Since = plausibleStart(at, now)
	}
}

// fieldID returns the ID of a holder in the fields of a hash: "owner=web-1 since=…".
func fieldID(fields []recordField) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.name + "=" + f.value
	}
	return strings.Join(parts, " ")
}

// fieldsOf returns the names and values of the fields in an ID. A value may contain spaces; if
// one looks like another field, the script finds no such field and does nothing.
func fieldsOf(id string) (fields []string) {
	for part := range strings.SplitSeq(id, " ") {
		name, value, ok := strings.Cut(part, "=")
		switch {
		case ok:
			fields = append(fields, name, value)
		case len(fields) > 0:
			fields[len(fields)-1] += " " + part
		}
	}
	return fields
}

// fieldActions change a lock that is a hash with fields of its holders. The script compares
// each field that an ID contains.
func fieldActions() *keyspace.Actions {
	return &keyspace.Actions{
		Keys: lockKey,
		Args: func(l keyspace.Lock) []string {
			removal, fields := "HDEL", []string(nil)
			if l.Kind == keyspace.Mutex {
				removal = "DEL"
			}
			for _, h := range l.Holders {
				some := fieldsOf(h.ID)
				if some == nil || removal == "HDEL" && h.Depth != 1 {
					fields = nil // it is no hold as it is stored
					break
				}
				fields = append(fields, some...)
			}
			args := append([]string{removal, strconv.Itoa(l.Holders[0].Depth), strconv.Itoa(len(fields) / 2)}, fields...)
			return append(args, countFields...)
		},
		ForceRelease: script("fields_check", "fields_release"),
		Extend:       script("fields_check", "hold_extend"),
	}
}

// customZset is the format of a zset of holders, each with the time when its hold began or
// ends.
func customZset() keyspace.Format {
	return keyspace.Format{
		About: about("custom-zset", "custom code, with zsets", "common practice",
			"the name has a word for exclusive use, and the zset has a time for each holder"),
		Type:     "zset",
		NoTTL:    true, // the times of its elements end the holds
		LockLike: true,
		Match:    suggestsHolders,
		Probe:    probeIf(keyspace.Likely, isHolderName),
		Related:  beside("zset", ownersOf),
		Decode:   decodeCustomZset,
		Actions:  memberActions(inZset, ""),
	}
}

// ownersOf returns the key of a fair semaphore as in "Redis in Action": its holders by their turn.
func ownersOf(key string) string { return key + ":owner" }

// suggestsHolders implements Format.Match for collections of holders.
func suggestsHolders(key string) bool {
	hint, _ := claimOf(key)
	return hint != noClaim
}

// isHolderName reports whether an element can be a holder, or what it holds.
func isHolderName(name string) bool {
	shape := shapeOf(name)
	return shape >= tokenShape || shape == numberShape
}

func decodeCustomZset(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	_, word := claimOf(e.Key)
	if e.Truncated() {
		return keyspace.Lock{}, keyspace.No
	}
	l := keyspace.Lock{Kind: keyspace.Semaphore, Evidence: customEvidence(word, "each element has a time")}
	ends, tokens, sure := false, hasWord(e.Key, permits), keyspace.Possible
	without := func(m keyspace.Member) bool {
		return !slices.ContainsFunc(e.Related[ownersOf(e.Key)].Members, func(turn keyspace.Member) bool { return turn.Name == m.Name })
	}
	if !slices.ContainsFunc(e.Members, without) {
		l.Evidence, sure = append(l.Evidence, "the zset :owner has the turn of each"), keyspace.Likely
	}
	for _, m := range e.Members {
		at := timeIn(strconv.FormatFloat(m.Score, 'f', -1, 64))
		if at.IsZero() || at.Sub(e.Now).Abs() > 30*24*time.Hour || !isHolderName(m.Name) {
			return keyspace.Lock{}, keyspace.No
		}
		h := keyspace.Holder{ID: m.Name, Depth: 1}
		setTime(&h, at, e.Now)
		ends = ends || !h.Expires.IsZero()
		tokens = tokens && shapeOf(m.Name) == tokenShape
		l.Holders = append(l.Holders, h)
	}
	if tokens {
		sure = keyspace.Likely
	}
	if ends { // the others have ended
		l.Holders = slices.DeleteFunc(l.Holders, func(h keyspace.Holder) bool { return h.Expires.IsZero() })
	}
	return ifHeld(l, sure)
}

// customSet is the format of a set of holders.
func customSet() keyspace.Format {
	holders := decodeMembers(keyspace.Unknown, keyspace.Possible, func(m keyspace.Member, _ time.Time) (keyspace.Holder, bool) {
		shape := shapeOf(m.Name)
		return keyspace.Holder{ID: m.Name, Depth: 1}, shape == processShape || shape == tokenShape
	})
	return keyspace.Format{
		About: about("custom-set", "custom code, with sets", "common practice",
			"the name has a word for exclusive use, and the set has names of processes"),
		Type:     "set",
		LockLike: true,
		Match:    suggestsHolders,
		Probe:    probeIf(keyspace.Possible, isHolderName),
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			hint, word := claimOf(e.Key)
			if hint != fullClaim || e.Truncated() {
				return keyspace.Lock{}, keyspace.No
			}
			l, sure := holders(e)
			l.Evidence = customEvidence(word, "its elements name processes")
			return l, sure
		},
		Actions: memberActions(inSet, "hold_extend"),
	}
}
