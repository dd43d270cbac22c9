package formats

import (
	"slices"

	"locktop/keyspace"
)

// Marked returns the formats for somebody who says of keys like these globs
// that they are locks: what would be possible is likely then, and what no format
// knows is a lock all the same. Without globs it returns All.
func Marked(globs []string) []keyspace.Format {
	all := All()
	if len(globs) == 0 {
		return all
	}
	marked := func(key string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool { return keyspace.MatchGlob(glob, key) })
	}
	for i := range all {
		all[i] = trusting(all[i], marked)
	}
	for _, typ := range [...]string{"string", "hash", "set", "zset", "list"} {
		all = append(all, anything(typ, marked))
	}
	return all
}

// whyMarked goes with a lock that is likely because its user says so.
const whyMarked = "you say that it is a lock"

// trusting is a format that takes for likely what it finds possible of a marked
// key.
func trusting(f keyspace.Format, marked func(string) bool) keyspace.Format {
	decode, glance := f.Decode, f.Probe
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l, sure := decode(e)
		if sure == keyspace.Possible && marked(e.Key) {
			l.Why = append(slices.Clone(l.Why), whyMarked)
			return l, keyspace.Likely
		}
		return l, sure
	}
	if glance != nil {
		f.Probe = func(key, first string) keyspace.Confidence {
			sure := glance(key, first)
			if sure == keyspace.Possible && marked(key) {
				return keyspace.Likely
			}
			return sure
		}
	}
	return f
}

// anything takes every marked key of a type for a lock, whatever it holds.
func anything(typ string, marked func(string) bool) keyspace.Format {
	return keyspace.Format{
		Name:      "marked",
		Library:   "your own, see --lock",
		Source:    "--lock",
		Signature: whyMarked,
		Type:      typ,
		Match:     marked,
		Probe:     func(string, string) keyspace.Confidence { return keyspace.Likely },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Unknown}
			if e.Type == "string" {
				l.Holders = []keyspace.Holder{{ID: e.Value, Label: owner(e.Value), Count: 1}}
				return l, keyspace.Likely
			}
			for _, m := range e.Members {
				l.Holders = append(l.Holders, markedHolder(e, m))
			}
			return l, keyspace.Likely
		},
	}
}

// markedHolder makes of an element what can be made of it: a count of a hash's
// value, a deadline of a score that is a time to come.
func markedHolder(e keyspace.Entry, m keyspace.Member) keyspace.Holder {
	h := keyspace.Holder{ID: m.Name, Count: 1}
	if depth, ok := count(m.Value); ok && e.Type == "hash" && depth <= 999_999 {
		h.Count = depth
	}
	if until, ok := atScore(m.Score); ok && until.After(e.Now) {
		h.Expires = until
	} else if ok {
		h.Since = past(until, e.Now)
	}
	return h
}
