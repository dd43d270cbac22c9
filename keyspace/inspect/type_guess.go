package inspect

// typeGuesses maps the shape of a key name to a type. Keys with similar names mostly
// have the same type, so the type of most keys need not be requested, only checked.
// Wrong guesses cost time and nothing else.
type typeGuesses map[keyShape]string

// keyShape is a hash of a key name without its numbers and IDs.
type keyShape uint64

// maxShapes bounds the map: each name without numbers is a shape of its own.
const maxShapes = 1 << 14

// ambiguous is the type of a shape whose guess was wrong once.
const ambiguous = "mixed"

// guess returns the expected type of keys of a shape, "" if it is unknown.
func (g typeGuesses) guess(of keyShape) string {
	if typ := g[of]; typ != ambiguous {
		return typ
	}
	return ""
}

// learn records the type of a key of a shape.
func (g typeGuesses) learn(of keyShape, typ string) {
	known, ok := g[of]
	switch {
	case !ok && len(g) < maxShapes:
		g[of] = typ
	case ok && known != typ:
		g[of] = ambiguous
	}
}

// shapeOf hashes a name. All words that contain a digit, or that can be hexadecimal,
// count as the same word.
func shapeOf(key string) keyShape {
	h := uint64(fnvOffset)
	for i := 0; i < len(key); {
		if !wordByte(key[i]) {
			h = (h ^ uint64(key[i])) * fnvPrime
			i++
			continue
		}
		word, number, hex := uint64(fnvOffset), false, true
		from := i
		for ; i < len(key) && wordByte(key[i]); i++ {
			c := key[i]
			digit := '0' <= c && c <= '9'
			number = number || digit
			hex = hex && (digit || 'a' <= c|0x20 && c|0x20 <= 'f')
			word = (word ^ uint64(c)) * fnvPrime
		}
		if number || hex && i-from >= 4 {
			word = 0
		}
		h = (h ^ word) * fnvPrime
	}
	return keyShape(h)
}

// Parameters of the FNV-1a hash (Fowler, Noll, Vo).
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func wordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
