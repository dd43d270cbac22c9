package keyspace

import "strings"

// formatSet is the formats to look for, in order of preference.
type formatSet []Format

// best returns the format that is surest of an entry, the first of them if
// several are, and how sure it is: No if none takes it.
func (s formatSet) best(e Entry) (Format, Confidence) {
	var found Format
	sure := No
	for _, f := range s {
		if f.Type != e.Type && f.Type != AnyType || !f.matchesName(e.Key) {
			continue
		}
		if _, conf := f.Decode(e); conf > sure {
			found, sure = f, conf
		}
	}
	return found, sure
}

// matchesName reports whether a key of this name may be one of the format.
func (f *Format) matchesName(key string) bool {
	if f.Prefixes != nil && !hasAnyPrefix(key, f.Prefixes) {
		return false
	}
	return f.Match == nil || f.Match(key)
}

// hasAnyPrefix reports whether a name begins with one of these, with something behind it.
func hasAnyPrefix(key string, with []string) bool {
	for _, prefix := range with {
		if len(key) > len(prefix) && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// byName returns the format of a name; nil if there is none.
func (s formatSet) byName(name string) *Format {
	for i := range s {
		if s[i].Name == name {
			return &s[i]
		}
	}
	return nil
}

// companionsOf lists what the format stores beside a lock.
func (f Format) companionsOf(e Entry) []Companion {
	if f.Related == nil {
		return nil
	}
	return f.Related(e)
}

// decodeLock decodes an entry that the format takes.
func (f Format) decodeLock(e Entry) (Lock, Confidence) {
	l, sure := f.Decode(e)
	l.Key, l.Format, l.Confidence, l.NoTTL = e.Key, f.Name, sure, f.NoTTL
	if f.Signature != "" {
		l.Why = append([]string{f.Signature}, l.Why...)
	}
	inheritExpiry(&l, e)
	return l, sure
}

// inheritExpiry gives the lock and its holders the deadline of the key where the
// format has none of its own.
func inheritExpiry(l *Lock, e Entry) {
	if l.Expires.IsZero() {
		l.Expires = e.Expires
	}
	for i := range l.Holders {
		if l.Holders[i].Expires.IsZero() {
			l.Holders[i].Expires = l.Expires
		}
	}
}
