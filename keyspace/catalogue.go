package keyspace

import "strings"

// catalogue is the formats to look for, in order of preference.
type catalogue []Format

// surest returns the format that is surest of an entry, the first of them if
// several are, and how sure it is: No if none takes it.
func (c catalogue) surest(e Entry) (Format, Confidence) {
	var best Format
	sure := No
	for _, f := range c {
		if f.Type != e.Type && f.Type != AnyType || !f.mayBe(e.Key) {
			continue
		}
		if _, s := f.Decode(e); s > sure {
			best, sure = f, s
		}
	}
	return best, sure
}

// mayBe reports whether a key of this name may be one of the format.
func (f *Format) mayBe(key string) bool {
	if f.Prefixes != nil && !begins(key, f.Prefixes) {
		return false
	}
	return f.Match == nil || f.Match(key)
}

// begins reports whether a name begins with one of these, with something behind it.
func begins(key string, with []string) bool {
	for _, prefix := range with {
		if len(key) > len(prefix) && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
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
	l.Key, l.Format, l.Confidence, l.NoTTL = e.Key, f.Name, sure, f.NoTTL
	if f.Signature != "" {
		l.Why = append([]string{f.Signature}, l.Why...)
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
