package keyspace

import "slices"

// index is the formats as the sieve looks them up, a million times over: by the
// type they live in, and by what they need to see. It is never changed.
type index struct {
	shelves   map[string]*shelf       // by type
	companion []func(key string) bool // each tells companions of some format
}

// shelf is the formats of one type.
type shelf struct {
	glances rack // a first piece may rule them out
	wholes  rack // only all of a value can
	anyName bool // some of the glances are at keys of any name
}

// rack is formats by the first byte of the names that their keys may have. Most
// keys of a million are of none that has one.
type rack struct {
	begin [256][]*Format
	any   []*Format
}

// put takes in a format.
func (r *rack) put(f *Format) {
	if f.Prefixes == nil {
		r.any = append(r.any, f)
		return
	}
	var firsts []byte
	for _, prefix := range f.Prefixes {
		firsts = append(firsts, prefix[0])
	}
	slices.Sort(firsts)
	for _, c := range slices.Compact(firsts) {
		r.begin[c] = append(r.begin[c], f)
	}
}

// of returns the formats that may have keys of this name, as far as its first
// byte tells.
func (r *rack) of(key string) [2][]*Format {
	if key == "" {
		return [2][]*Format{r.any}
	}
	return [2][]*Format{r.begin[key[0]], r.any}
}

// has reports whether one of the formats may have keys of this name.
func (r *rack) has(key string) bool {
	for _, some := range r.of(key) {
		for _, f := range some {
			if f.mayBe(key) {
				return true
			}
		}
	}
	return false
}

// newIndex sorts formats, which must stay as they are.
func newIndex(formats []Format) *index {
	x := &index{shelves: make(map[string]*shelf)}
	for i := range formats {
		f := &formats[i]
		if f.Companion != nil {
			x.companion = append(x.companion, f.Companion)
		}
		if f.Type != AnyType {
			x.put(f, f.Type)
			continue
		}
		x.put(f, "string")
		for _, typ := range collections {
			x.put(f, typ)
		}
	}
	return x
}

// put puts a format on the shelf of a type.
func (x *index) put(f *Format, typ string) {
	s := x.shelves[typ]
	if s == nil {
		s = &shelf{}
		x.shelves[typ] = s
	}
	if f.Probe == nil {
		s.wholes.put(f)
		return
	}
	s.glances.put(f)
	s.anyName = s.anyName || f.Prefixes == nil && f.Match == nil
}

// belongs reports whether the name alone tells a companion key.
func (x *index) belongs(key string) bool {
	for _, is := range x.companion {
		if is(key) {
			return true
		}
	}
	return false
}

// look is what has to be seen of a key before it can be ruled out.
type look uint8

const (
	nothing look = iota // no format takes a key of this type and name
	glance              // a first piece of its value may rule it out
	whole               // only all of it can
)

// look says how closely a key has to be looked at that is no companion.
func (x *index) look(key, typ string) look {
	s := x.shelves[typ]
	switch {
	case s == nil:
		return nothing
	case s.wholes.has(key):
		return whole
	case s.anyName || s.glances.has(key):
		return glance
	default:
		return nothing
	}
}

// promises reports how much the surest of the formats could still make of a key
// of which a glance was enough to take, and has been taken, as far as it matters: from enough on it
// does not look for more.
func (x *index) promises(key, typ, first string, enough Confidence) Confidence {
	s := x.shelves[typ]
	if s == nil {
		return No
	}
	best := No
	for _, some := range s.glances.of(key) {
		for _, f := range some {
			if !f.mayBe(key) {
				continue
			}
			if best = max(best, f.Probe(key, first)); best >= enough {
				return best
			}
		}
	}
	return best
}
