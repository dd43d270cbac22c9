package keyspace

// MatchGlob reports whether a key matches a glob as Redis defines it: ? is one byte, *
// any number of bytes, [a-c] a byte of the set, [^a-c] any other byte, and \ escapes
// the next byte.
func MatchGlob(glob, name string) bool {
	star, retry := -1, 0 // the last * in the glob, and where in the name to continue after it
	g, n := 0, 0
	for n < len(name) {
		if g < len(glob) && glob[g] == '*' {
			star, retry = g, n
			g++
			continue
		}
		if width, ok := matchByte(glob[g:], name[n]); ok {
			g, n = g+width, n+1
			continue
		}
		if star < 0 {
			return false
		}
		retry++
		g, n = star+1, retry
	}
	for g < len(glob) && glob[g] == '*' {
		g++
	}
	return g == len(glob)
}

// matchByte reports whether c matches the first element of a glob, which is not a star,
// and returns the length of that element.
func matchByte(glob string, c byte) (width int, ok bool) {
	switch {
	case glob == "":
		return 0, false
	case glob[0] == '?':
		return 1, true
	case glob[0] == '[':
		return matchClass(glob, c)
	case glob[0] == '\\' && len(glob) > 1:
		return 2, glob[1] == c
	default:
		return 1, glob[0] == c
	}
}

// matchClass is matchByte for an element in brackets. An unclosed bracket ends with the
// glob.
func matchClass(glob string, c byte) (width int, ok bool) {
	i := 1
	not := i < len(glob) && glob[i] == '^'
	if not {
		i++
	}
	for ; i < len(glob) && glob[i] != ']'; i++ {
		low := glob[i]
		if low == '\\' && i+1 < len(glob) {
			i++
			ok = ok || glob[i] == c
			continue
		}
		high := low
		if i+2 < len(glob) && glob[i+1] == '-' {
			high = glob[i+2]
			i += 2
		}
		ok = ok || min(low, high) <= c && c <= max(low, high)
	}
	return min(i+1, len(glob)), ok != not
}
