package keyspace

// globs reports whether a key matches a pattern as SCAN takes it: * for
// anything, ? for one byte, [a-z] and [^a-z] for one of several, \ before what
// is meant literally.
func globs(pattern, key string) bool {
	for pattern != "" {
		if pattern[0] == '*' {
			for i := 0; i <= len(key); i++ {
				if globs(pattern[1:], key[i:]) {
					return true
				}
			}
			return false
		}
		rest, ok := globsByte(pattern, key)
		if !ok {
			return false
		}
		pattern, key = rest, key[1:]
	}
	return key == ""
}

// globsByte matches the first byte of a key, and returns what of the pattern is
// left.
func globsByte(pattern, key string) (rest string, ok bool) {
	switch {
	case key == "":
		return "", false
	case pattern[0] == '?':
		return pattern[1:], true
	case pattern[0] == '[':
		return globsSet(pattern[1:], key[0])
	case pattern[0] == '\\' && len(pattern) > 1:
		pattern = pattern[1:]
	}
	return pattern[1:], pattern[0] == key[0]
}

// globsSet matches a byte with what is between brackets, and returns what is
// behind them. Without a closing one they go on to the end.
func globsSet(set string, c byte) (rest string, ok bool) {
	not := set != "" && set[0] == '^'
	if not {
		set = set[1:]
	}
	for set != "" && set[0] != ']' {
		if set[0] == '\\' && len(set) > 1 {
			set = set[1:]
		}
		from, to := set[0], set[0]
		if len(set) > 2 && set[1] == '-' {
			to, set = set[2], set[2:]
		}
		ok = ok || min(from, to) <= c && c <= max(from, to)
		set = set[1:]
	}
	if set != "" {
		set = set[1:]
	}
	return set, ok != not
}
