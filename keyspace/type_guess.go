package keyspace

// typeGuesses remembers of which type the keys of a shape of name were. What is
// called alike is mostly of one type: of a key like thousands before it the type
// need not be asked, only checked. They are guesses; nothing depends on them but
// speed.
type typeGuesses map[keyShape]string

// keyShape is what remains of a name when its numbers and ids are left out.
type keyShape uint64

// maxShapes bounds what is remembered: names without any numbers in them are
// all shapes of their own.
const maxShapes = 1 << 14

// ambiguous stands for the type of a shape that has been wrong once.
const ambiguous = "mixed"

// guess returns the type that a key of this shape should have, "" if there is no
// telling.
func (g typeGuesses) guess(of keyShape) string {
	if typ := g[of]; typ != ambiguous {
		return typ
	}
	return ""
}

// learn takes in what type a key of this shape had.
func (g typeGuesses) learn(of keyShape, typ string) {
	known, ok := g[of]
	switch {
	case !ok && len(g) < maxShapes:
		g[of] = typ
	case ok && known != typ:
		g[of] = ambiguous
	}
}

// shapeOf hashes a name, with every word that has a digit in it, or could be
// hexadecimal, counted as the same word.
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

// Of the hash of Fowler, Noll and Vo.
const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func wordByte(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
