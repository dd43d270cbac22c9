package keyspace

import (
	"regexp"
	"slices"
	"unicode"
)

var (
	uuidText = regexp.MustCompile(`[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`)
	longRuns = regexp.MustCompile(`[0-9A-Za-z+/]{16,}`)
)

// LooksRandom reports whether a token has a UUID in it, or at least 16 characters in which
// digits, small and capital letters change often, as in hex and Base64. Names of hosts and
// workers, numbers and words do not.
func LooksRandom(token string) bool {
	if uuidText.MatchString(token) {
		return true
	}
	return slices.ContainsFunc(longRuns.FindAllString(token, -1), func(run string) bool {
		changes := 0
		var last int
		for i, c := range run {
			class := 0
			switch {
			case unicode.IsDigit(c):
				class = 1
			case unicode.IsUpper(c):
				class = 2
			}
			if i > 0 && class != last {
				changes++
			}
			last = class
		}
		return changes >= 4
	})
}
