package inspect

import (
	"slices"

	"locktop/keyspace"
)

// formatSet is the list of formats to look for, in order of preference.
type formatSet []keyspace.Format

// best returns the format with the highest confidence in an entry, and that confidence.
// The first format wins a tie. The format is nil and the confidence is No if none matches.
// Subscribers may prove that the entry is of the format heard instead; nil = of no other.
func (s formatSet) best(e keyspace.Entry) (found, heard *keyspace.Format, sure keyspace.Confidence) {
	for i := range s {
		f := &s[i]
		if f.Type != e.Type && f.Type != keyspace.AnyType || !f.MatchesName(e.Key) {
			continue
		}
		_, conf := f.Decode(e)
		if conf > keyspace.No && f.Channels != nil && f.Related == nil {
			heard = f
		}
		if conf > sure {
			found, sure = f, conf
		}
	}
	return found, heard, sure
}

// formatIndex finds the formats for a key, a million times per pass: by type, and by
// what they need to see. It is immutable.
type formatIndex struct {
	byType     map[string]*typeFormats // by type
	companions []func(key string) bool // the Companion functions of the formats
}

// typeFormats are the formats of one type.
type typeFormats struct {
	probed   prefixTable // a first piece may rule them out
	fullRead prefixTable // only the whole value may
	anyName  bool        // some of the probed formats match any name
}

// prefixTable maps the first byte of a key name to formats. Most keys have a first byte
// without formats.
type prefixTable struct {
	byFirstByte [256][]*keyspace.Format
	rest        []*keyspace.Format
}

// add adds a format.
func (t *prefixTable) add(f *keyspace.Format) {
	if f.Prefixes == nil {
		t.rest = append(t.rest, f)
		return
	}
	var firsts []byte
	for _, prefix := range f.Prefixes {
		firsts = append(firsts, prefix[0])
	}
	slices.Sort(firsts)
	for _, c := range slices.Compact(firsts) {
		t.byFirstByte[c] = append(t.byFirstByte[c], f)
	}
}

// formatsFor returns the formats that the first byte of a name permits.
func (t *prefixTable) formatsFor(key string) [2][]*keyspace.Format {
	if key == "" {
		return [2][]*keyspace.Format{t.rest}
	}
	return [2][]*keyspace.Format{t.byFirstByte[key[0]], t.rest}
}

// has reports whether a format can match a key with this name.
func (t *prefixTable) has(key string) bool {
	for _, some := range t.formatsFor(key) {
		for _, f := range some {
			if f.MatchesName(key) {
				return true
			}
		}
	}
	return false
}

// newFormatIndex indexes formats, which must not change afterwards.
func newFormatIndex(formats []keyspace.Format) *formatIndex {
	x := &formatIndex{byType: make(map[string]*typeFormats)}
	for i := range formats {
		f := &formats[i]
		if f.Companion != nil {
			x.companions = append(x.companions, f.Companion)
		}
		if f.Type != keyspace.AnyType {
			x.addFor(f, f.Type)
			continue
		}
		x.addFor(f, "string")
		for _, typ := range collections {
			x.addFor(f, typ)
		}
	}
	return x
}

// addFor adds a format for keys of a type.
func (x *formatIndex) addFor(f *keyspace.Format, typ string) {
	s := x.byType[typ]
	if s == nil {
		s = &typeFormats{}
		x.byType[typ] = s
	}
	if f.Probe == nil {
		s.fullRead.add(f)
		return
	}
	s.probed.add(f)
	s.anyName = s.anyName || f.Prefixes == nil && f.Match == nil
}

// isCompanion reports whether the name alone identifies a companion key.
func (x *formatIndex) isCompanion(key string) bool {
	return slices.ContainsFunc(x.companions, func(is func(string) bool) bool { return is(key) })
}

// need is what must be read before a key can be ruled out.
type need uint8

const (
	needNone  need = iota // no format matches this type and name
	needProbe             // a first piece of the value may rule the key out
	needFull              // only the whole value may
)

// needOf returns what must be read of a key that is not a companion.
func (x *formatIndex) needOf(key, typ string) need {
	s := x.byType[typ]
	switch {
	case s == nil:
		return needNone
	case s.fullRead.has(key):
		return needFull
	case s.anyName || s.probed.has(key):
		return needProbe
	default:
		return needNone
	}
}

// bestProbe returns the highest confidence that the probed formats can still reach for
// a key. It stops at the first that reaches enough.
func (x *formatIndex) bestProbe(key, typ, first string, enough keyspace.Confidence) keyspace.Confidence {
	s := x.byType[typ]
	if s == nil {
		return keyspace.No
	}
	best := keyspace.No
	for _, some := range s.probed.formatsFor(key) {
		for _, f := range some {
			if !f.MatchesName(key) {
				continue
			}
			if best = max(best, f.Probe(key, first)); best >= enough {
				return best
			}
		}
	}
	return best
}
