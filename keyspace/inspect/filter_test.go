package inspect

import (
	"fmt"
	"testing"

	"locktop/internal/check"
)

func TestNamesThatDifferInNumbersAndIDsHaveOneShape(t *testing.T) {
	alike := [][]string{
		{"user:1", "user:4711", "user:5f0c9a4e", "user:cafe"},
		{"user:1:name", "user:22:name"},
		{"session:da39a3ee5e6b4b0d", "session:ffffffff"},
		{"user"}, {"users:1"}, {"user.1"}, {"user:1:orders"}, {"user:bob"}, {""}, {":"},
	}
	of := make(map[keyShape]int)
	for i, names := range alike {
		for _, name := range names {
			if known, ok := of[shapeOf(name)]; ok && known != i {
				t.Errorf("%q has the shape of %q", name, alike[known][0])
			} else if !ok && name != names[0] {
				t.Errorf("%q has not the shape of %q", name, names[0])
			}
			of[shapeOf(name)] = i
		}
	}
}

func TestAGuessIsGivenUpOnceItWasWrong(t *testing.T) {
	s := make(typeGuesses)
	s.learn(shapeOf("user:1"), "hash")
	check.Equal(t, s.guess(shapeOf("user:2")), "hash", "guessed")
	s.learn(shapeOf("user:3"), "string")
	s.learn(shapeOf("user:4"), "hash")
	check.Equal(t, s.guess(shapeOf("user:2")), "", "a guess after a wrong one")
}

func TestTheMemoryForNamesIsBounded(t *testing.T) {
	s := make(typeGuesses)
	for i := range 3 * maxShapes {
		s.learn(shapeOf(fmt.Sprintf("%x:name", i)+string(rune('g'+i%20))+word(i)), "string")
	}
	check.True(t, len(s) <= maxShapes, "%d shapes are remembered", len(s))
}

// word returns a word without digits.
func word(i int) string {
	w := "z"
	for ; i > 0; i /= 20 {
		w += string(rune('g' + i%20))
	}
	return w
}
