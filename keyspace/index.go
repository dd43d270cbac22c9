package keyspace

// index is the formats as the sieve looks them up, a million times over: by the
// type they live in, and by what they need to see. It is never changed.
type index struct {
	shelves   map[string]*shelf       // by type
	companion []func(key string) bool // each tells companions of some format
}

// shelf is the formats of one type.
type shelf struct {
	glances []*Format // a first piece may rule them out
	wholes  []*Format // only all of a value can
	anyName bool      // some of the glances are at keys of any name
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
	if f.Glance == nil {
		s.wholes = append(s.wholes, f)
		return
	}
	s.glances = append(s.glances, f)
	s.anyName = s.anyName || f.Match == nil
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
	case takesAny(s.wholes, key):
		return whole
	case s.anyName || takesAny(s.glances, key):
		return glance
	default:
		return nothing
	}
}

// takesAny reports whether one of these formats may have keys of this name.
func takesAny(formats []*Format, key string) bool {
	for _, f := range formats {
		if f.Match == nil || f.Match(key) {
			return true
		}
	}
	return false
}

// promises reports how much the surest of the formats could still make of a key
// of which only a glance has been taken, as far as it matters: from enough on it
// does not look for more.
func (x *index) promises(key, typ, first string, enough Confidence) Confidence {
	s := x.shelves[typ]
	if s == nil {
		return No
	}
	if takesAny(s.wholes, key) {
		return Certain
	}
	best := No
	for _, f := range s.glances {
		if f.Match != nil && !f.Match(key) {
			continue
		}
		if best = max(best, f.Glance(key, first)); best >= enough {
			break
		}
	}
	return best
}
