package keyspace

import "slices"

// formatIndex is the formats as the sieve looks them up, a million times over: by the
// type they live in, and by what they need to see. It is never changed.
type formatIndex struct {
	byType     map[string]*typeFormats // by type
	companions []func(key string) bool // each tells companions of some format
}

// typeFormats is the formats of one type.
type typeFormats struct {
	probed   prefixTable // a first piece may rule them out
	fullRead prefixTable // only all of a value can
	anyName  bool        // some of the glances are at keys of any name
}

// prefixTable is formats by the first byte of the names that their keys may have. Most
// keys of a million are of none that has one.
type prefixTable struct {
	byFirstByte [256][]*Format
	rest        []*Format
}

// add takes in a format.
func (t *prefixTable) add(f *Format) {
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

// formatsFor returns the formats that may have keys of this name, as far as its first
// byte tells.
func (t *prefixTable) formatsFor(key string) [2][]*Format {
	if key == "" {
		return [2][]*Format{t.rest}
	}
	return [2][]*Format{t.byFirstByte[key[0]], t.rest}
}

// has reports whether one of the formats may have keys of this name.
func (t *prefixTable) has(key string) bool {
	for _, some := range t.formatsFor(key) {
		for _, f := range some {
			if f.matchesName(key) {
				return true
			}
		}
	}
	return false
}

// newFormatIndex sorts formats, which must stay as they are.
func newFormatIndex(formats []Format) *formatIndex {
	x := &formatIndex{byType: make(map[string]*typeFormats)}
	for i := range formats {
		f := &formats[i]
		if f.Companion != nil {
			x.companions = append(x.companions, f.Companion)
		}
		if f.Type != AnyType {
			x.add(f, f.Type)
			continue
		}
		x.add(f, "string")
		for _, typ := range collections {
			x.add(f, typ)
		}
	}
	return x
}

// add puts a format on the shelf of a type.
func (x *formatIndex) add(f *Format, typ string) {
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

// isCompanion reports whether the name alone tells a companion key.
func (x *formatIndex) isCompanion(key string) bool {
	for _, is := range x.companions {
		if is(key) {
			return true
		}
	}
	return false
}

// need is what has to be seen of a key before it can be ruled out.
type need uint8

const (
	needNone  need = iota // no format takes a key of this type and name
	needProbe             // a first piece of its value may rule it out
	needFull              // only all of it can
)

// needOf says how closely a key has to be looked at that is no companion.
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

// bestProbe reports how much the surest of the formats could still make of a key
// of which a glance was enough to take, and has been taken, as far as it matters: from enough on it
// does not look for more.
func (x *formatIndex) bestProbe(key, typ, first string, enough Confidence) Confidence {
	s := x.byType[typ]
	if s == nil {
		return No
	}
	best := No
	for _, some := range s.probed.formatsFor(key) {
		for _, f := range some {
			if !f.matchesName(key) {
				continue
			}
			if best = max(best, f.Probe(key, first)); best >= enough {
				return best
			}
		}
	}
	return best
}
