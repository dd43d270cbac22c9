package formats

import (
	"slices"

	"locktop/keyspace"
)

// WithUserPatterns returns the formats for a user who says that keys matching the globs
// are locks: a possible lock becomes likely, and a key of no known format is a lock as
// well. Without globs it returns All.
func WithUserPatterns(globs []string) []keyspace.Format {
	all := All()
	if len(globs) == 0 {
		return all
	}
	marked := func(key string) bool {
		return slices.ContainsFunc(globs, func(glob string) bool { return keyspace.MatchGlob(glob, key) })
	}
	for i := range all {
		all[i] = promoted(all[i], marked)
	}
	for _, typ := range [...]string{"string", "hash", "set", "zset", "list"} {
		all = append(all, anyValue(typ, marked))
	}
	return all
}

// whyUser is the evidence of a lock that the user has declared.
const whyUser = "--lock declares it as a lock"

// promoted returns a format that reports marked keys as likely where it would report
// them as possible.
func promoted(f keyspace.Format, marked func(string) bool) keyspace.Format {
	decode, probe := f.Decode, f.Probe
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l, sure := decode(e)
		if sure == keyspace.Possible && marked(e.Key) {
			l.Evidence = append(slices.Clone(l.Evidence), whyUser)
			return l, keyspace.Likely
		}
		return l, sure
	}
	if probe != nil {
		f.Probe = func(key, first string) keyspace.Confidence {
			sure := probe(key, first)
			if sure == keyspace.Possible && marked(key) {
				return keyspace.Likely
			}
			return sure
		}
	}
	return f
}

// anyValue returns a format that takes every marked key of a type for a lock, whatever
// its value.
func anyValue(typ string, marked func(string) bool) keyspace.Format {
	var shapes []keyspace.Attempt
	if typ == "string" {
		shapes = stringAttempts()
	}
	return keyspace.Format{
		About: about("marked", "declared by --lock", "--lock",
			whyUser),
		Type:     typ,
		Attempts: shapes,
		Match:    marked,
		Probe:    func(string, string) keyspace.Confidence { return keyspace.Likely },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			l := keyspace.Lock{Kind: keyspace.Unknown}
			if e.Type == "string" {
				l.Holders = []keyspace.Holder{{ID: e.Value, Label: owner(e.Value), Depth: 1}}
				return l, keyspace.Likely
			}
			for _, m := range e.Members {
				l.Holders = append(l.Holders, userHolder(e, m))
			}
			return l, keyspace.Likely
		},
	}
}

// userHolder makes a holder of an element: a hash value that is a number is its count,
// a zset score that is a future time is its deadline.
func userHolder(e keyspace.Entry, m keyspace.Member) keyspace.Holder {
	h := keyspace.Holder{ID: m.Name, Depth: 1}
	if depth, ok := count(m.Value); ok && e.Type == "hash" && depth <= 999_999 {
		h.Depth = depth
	}
	if until, ok := atScore(m.Score); ok && until.After(e.Now) {
		h.Expires = until
	} else if ok {
		h.Since = plausibleStart(until, e.Now)
	}
	return h
}
