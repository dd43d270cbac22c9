package formats

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"locktop/keyspace"
)

// WithUserPatterns returns the formats for a user who says that keys matching the patterns
// of --lock are locks: a possible lock becomes likely, and a key of no known format is a
// lock as well. What a pattern says of the fields counts before the other formats. Without
// patterns it returns All.
func WithUserPatterns(patterns []string) []keyspace.Format {
	all := All()
	if len(patterns) == 0 {
		return all
	}
	var every, withRoles userPatterns
	for _, text := range patterns {
		p := parsePattern(text)
		if every = append(every, p); p.roles != nil {
			withRoles = append(withRoles, p)
		}
	}
	for i := range all {
		all[i] = promoted(all[i], every.match)
	}
	return slices.Concat(withRoles.formats(), all, every.formats())
}

// userPattern is a value of --lock: GLOB or GLOB=owner:FIELD,ROLE:FIELD.
type userPattern struct {
	glob  string
	roles map[string]string // by field, names that recordOf knows; nil = not given
}

type userPatterns []userPattern

var roles = regexp.MustCompile(`(?s)^(.+)=(owner:[^,]+(?:,(?:mode|count|since|until):[^,]+)*)$`)

func parsePattern(text string) userPattern {
	parts := roles.FindStringSubmatch(text)
	if parts == nil {
		return userPattern{glob: text}
	}
	p := userPattern{parts[1], make(map[string]string)}
	for part := range strings.SplitSeq(parts[2], ",") {
		role, field, _ := strings.Cut(part, ":")
		p.roles[field] = role
	}
	return p
}

// find returns the first pattern for a key.
func (all userPatterns) find(key string) (userPattern, bool) {
	for _, p := range all {
		if keyspace.MatchGlob(p.glob, key) {
			return p, true
		}
	}
	return userPattern{}, false
}

func (all userPatterns) match(key string) bool { _, ok := all.find(key); return ok }

// whyUser is the evidence of a lock that the user has declared.
const whyUser = "--lock declares it as a lock"

// promoted returns a format that reports marked keys as likely where it would report
// them as possible.
func promoted(f keyspace.Format, marked func(string) bool) keyspace.Format {
	decode, probe := f.Decode, f.Probe
	up := func(sure keyspace.Confidence, key string) keyspace.Confidence {
		if sure == keyspace.Possible && marked(key) {
			return keyspace.Likely
		}
		return sure
	}
	f.Decode = func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
		l, sure := decode(e)
		if up(sure, e.Key) != sure {
			l.Evidence = append(slices.Clone(l.Evidence), whyUser)
		}
		return l, up(sure, e.Key)
	}
	if probe != nil {
		f.Probe = func(key, first string) keyspace.Confidence { return up(probe(key, first), key) }
	}
	return f
}

// formats returns formats that take every key of a pattern for a lock, whatever its value.
func (all userPatterns) formats() []keyspace.Format {
	format := func(name, typ string, attempts []keyspace.Attempt, actions *keyspace.Actions) keyspace.Format {
		return keyspace.Format{
			About: about(name, "custom code, by --lock", "--lock", whyUser),
			Type:  typ, Match: all.match, Attempts: attempts, Decode: all.decode, Actions: actions,
			Probe: func(string, string) keyspace.Confidence { return keyspace.Likely },
		}
	}
	return []keyspace.Format{
		format("marked", "string", stringAttempts(), wholeActions(script("token_release"), script("token_extend"))),
		format("marked-hash", "hash", nil, wholeActions(script("whole_check", "whole_release"), script("whole_check", "hold_extend"))),
		format("marked-set", "set", nil, memberActions(inSet, "hold_extend")),
		format("marked-zset", "zset", nil, memberActions(inZset, "")),
		format("marked-list", "list", nil, nil),
	}
}

// wholeActions change a lock if its whole value is as it was read. Of a hash with a hold in
// each field, the fields of other holds stay.
func wholeActions(release, extend string) *keyspace.Actions {
	return &keyspace.Actions{Keys: lockKey, ForceRelease: release, Extend: extend, Args: func(l keyspace.Lock) []string {
		fields := len(l.Whole) / 2
		if fields == 0 {
			return l.Whole // a string
		}
		args := append([]string{strconv.Itoa(fields)}, l.Whole...)
		if l.Kind != keyspace.Mutex && len(l.Holders) < fields {
			args = append(args, holderIDs(l)...)
		}
		return args
	}}
}

// decode implements Format.Decode.
func (all userPatterns) decode(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
	p, _ := all.find(e.Key)
	l, whole := keyspace.Lock{Kind: keyspace.Unknown}, !e.Truncated()
	fields, _ := objectFields(e.Value)
	for _, m := range e.Members {
		l.Holders, fields = append(l.Holders, userHolder(e, m)), append(fields, recordField{m.Name, m.Value})
		l.Whole, whole = append(l.Whole, m.Name, m.Value), whole && len(m.Name+m.Value) < 4096 // a longer one may be cut
	}
	switch {
	case e.Oversized && e.Type == "hash": // somebody has it
		l.Holders, l.Evidence = []keyspace.Holder{{ID: "?", Depth: 1}}, []string{sizeOf(e)}
	case e.Oversized:
		return l, keyspace.No
	case e.Type == "string":
		h, _ := p.hold(fields, e.Now)
		h.ID, h.Label = e.Value, h.ID
		l.Holders, l.Whole = []keyspace.Holder{h}, []string{e.Value}
	case e.Type == "hash":
		p.readHash(&l, fields, e.Now)
	default:
		l.Whole = nil
		return l, keyspace.Likely
	}
	if len(l.Holders) == 1 && keyspace.Earliest(l.Holders[0].Expires, e.Expires) != e.Expires {
		l.Expires = l.Holders[0].Expires
	}
	if !whole {
		l.Whole = nil
	}
	return l, keyspace.Likely
}

// readHash reads a hash, whose fields are holds, or one hold together.
func (p userPattern) readHash(l *keyspace.Lock, fields []recordField, now time.Time) {
	h, owned := p.hold(fields, now)
	if p.roles["*"] != "" || p.roles == nil && !owned && !slices.ContainsFunc(fields, recordField.isThing) {
		if l.Evidence = []string{"each field is a hold"}; l.Holders[0].Mode != "" {
			l.Kind = keyspace.RW
		}
		return
	}
	l.Kind, l.Holders, l.Evidence = keyspace.Mutex, nil, []string{"its fields are one hold"}
	if !owned && p.roles == nil { // all fields are compared, not the ID
		h.ID = fmt.Sprintf("%.256s", fieldID(fields))
	}
	if h.ID != "" { // else nobody has it
		l.Holders = []keyspace.Holder{h}
	}
}

// hold reads the fields of one hold. Its ID is the owner; false if none is named.
func (p userPattern) hold(fields []recordField, now time.Time) (keyspace.Holder, bool) {
	var known []recordField
	in := make(map[string]string)
	for _, f := range fields {
		if role := p.roles[f.name]; role != "" || p.roles == nil {
			f.name = cmp.Or(role, f.name)
			known, in[f.name] = append(known, f), f.value
		}
	}
	r, owned := recordOf(known)
	return keyspace.Holder{ID: r.owner, Depth: max(r.count, 1), Mode: modes[lowered(in["mode"])],
		Since: plausibleStart(r.since, now), Expires: timeIn(in["until"])}, owned
}

// modes are values that say how a lock is held.
var modes = map[string]keyspace.Mode{
	"r": keyspace.Read, "read": keyspace.Read, "shared": keyspace.Read, "w": keyspace.Write, "write": keyspace.Write, "exclusive": keyspace.Write,
}

// isThing reports whether a field is no hold: its value is neither a count nor a time nor a mode.
func (f recordField) isThing() bool {
	return !digits(f.value, 1, 6) && timeIn(f.value).IsZero() && modes[lowered(f.value)] == ""
}

// userHolder makes a holder of an element. A hash value is its count, its mode or a time; so is
// the score of a zset. A time in the future is its deadline.
func userHolder(e keyspace.Entry, m keyspace.Member) keyspace.Holder {
	h := keyspace.Holder{ID: m.Name, Depth: 1, Mode: modes[lowered(m.Value)]}
	if depth, ok := count(m.Value); ok && depth <= 999_999 {
		h.Depth = depth
	}
	at, ok := atScore(m.Score)
	if !ok {
		at = timeIn(m.Value)
	}
	setTime(&h, at, e.Now)
	return h
}
