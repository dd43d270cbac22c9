package keyspace

// catalogue is the formats to look for, in order of preference.
type catalogue []Format

// look is what has to be seen of a key before it can be ruled out.
type look uint8

const (
	nothing look = iota // no format takes a key of this type and name
	glance              // a first piece of its value may rule it out
	whole               // only all of it can
)

// look says how closely a key has to be looked at that is no companion.
func (c catalogue) look(key, typ string) look {
	need := nothing
	for i := range c {
		f := &c[i]
		settled := need == glance && f.Glance != nil // whatever its name
		if f.Type != typ || settled || f.Match != nil && !f.Match(key) {
			continue
		}
		if f.Glance == nil {
			return whole
		}
		need = glance
	}
	return need
}

// promises reports whether some format could still make at least this much of
// a key, having seen the first piece of its value.
func (c catalogue) promises(key, typ, first string, atLeast Confidence) bool {
	for i := range c {
		f := &c[i]
		if f.Type != typ || f.Glance != nil && f.Glance(key, first) < atLeast {
			continue
		}
		if f.Match == nil || f.Match(key) {
			return true
		}
	}
	return false
}

// byType sorts the formats by the type that they live in.
func (c catalogue) byType() map[string]catalogue {
	of := make(map[string]catalogue)
	for _, f := range c {
		of[f.Type] = append(of[f.Type], f)
	}
	return of
}

// companion reports whether the name alone tells a companion key.
func (c catalogue) companion(key string) bool {
	for i := range c {
		if c[i].Companion != nil && c[i].Companion(key) {
			return true
		}
	}
	return false
}

// surest returns the format that is surest of an entry, the first of them if
// several are, and how sure it is: No if none takes it.
func (c catalogue) surest(e Entry) (Format, Confidence) {
	var best Format
	sure := No
	for _, f := range c {
		if f.Type != e.Type || f.Match != nil && !f.Match(e.Key) {
			continue
		}
		if _, s := f.Decode(e); s > sure {
			best, sure = f, s
		}
	}
	return best, sure
}

// named returns the format of a name; nil if there is none.
func (c catalogue) named(name string) *Format {
	for i := range c {
		if c[i].Name == name {
			return &c[i]
		}
	}
	return nil
}

// related lists what the format stores beside a lock.
func (f Format) related(e Entry) []Companion {
	if f.Related == nil {
		return nil
	}
	return f.Related(e)
}

// lock decodes an entry that the format takes.
func (f Format) lock(e Entry) (Lock, Confidence) {
	l, sure := f.Decode(e)
	l.Key, l.Format, l.Confidence = e.Key, f.Name, sure
	if f.Tells != "" {
		l.Why = append([]string{f.Tells}, l.Why...)
	}
	inherit(&l, e)
	return l, sure
}

// inherit gives the lock and its holders the deadline of the key where the
// format has none of its own.
func inherit(l *Lock, e Entry) {
	if l.Expires.IsZero() {
		l.Expires = e.Expires
	}
	for i := range l.Holders {
		if l.Holders[i].Expires.IsZero() {
			l.Holders[i].Expires = l.Expires
		}
	}
}
