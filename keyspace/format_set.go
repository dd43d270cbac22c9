package keyspace

import "strings"

// formatSet is the list of formats to look for, in order of preference.
type formatSet []Format

// best returns the format with the highest confidence in an entry, and that confidence.
// The first format wins a tie. The confidence is No if no format matches.
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

// matchesName reports whether a key with this name can be a lock of the format.
func (f *Format) matchesName(key string) bool {
	if f.Prefixes != nil && !hasAnyPrefix(key, f.Prefixes) {
		return false
	}
	return f.Match == nil || f.Match(key)
}

// hasAnyPrefix reports whether key has one of the prefixes and is longer than it.
func hasAnyPrefix(key string, with []string) bool {
	for _, prefix := range with {
		if len(key) > len(prefix) && strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// byName returns the format with a name, nil if there is none.
func (s formatSet) byName(name string) *Format {
	for i := range s {
		if s[i].Name == name {
			return &s[i]
		}
	}
	return nil
}

// companionsOf lists the companion keys of a lock.
func (f Format) companionsOf(e Entry) []Companion {
	if f.Related == nil {
		return nil
	}
	return f.Related(e)
}

// decodeLock decodes an entry that matches the format.
func (f Format) decodeLock(e Entry) (Lock, Confidence) {
	l, sure := f.Decode(e)
	l.Key, l.Format, l.Confidence, l.NoTTL = e.Key, f.Name, sure, f.NoTTL
	if f.Signature != "" {
		l.Why = append([]string{f.Signature}, l.Why...)
	}
	inheritExpiry(&l, e)
	return l, sure
}

// inheritExpiry gives the lock and its holders the expiry of the key where they have no
// deadline of their own.
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
