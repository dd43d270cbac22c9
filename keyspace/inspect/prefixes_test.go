package inspect

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestThePatternOfANameIsItsFixedParts(t *testing.T) {
	for key, want := range map[string]string{
		"k3f9a:lock":           "*lock",
		"acme:order:4711:lock": "*order:*:lock",
		"acme.eu-2.mutex":      "*eu-*.mutex",
		"lock:users:88":        "*users:*",
		"lock:88":              "",
		"8743c9c0-0795":        "",
		"nightly":              "",
		"":                     "",
		":":                    "",
		"{user-1}:lock":        "**}:lock",
		"a:b7:c:":              "**:c:",
		"{a}":                  "",
		"7f:lock:é":            "*lock:é",
		"\xff\x00:lock":        "*lock",
	} {
		check.Equal(t, patternOf(key), want, "%q has the shape", key)
	}
}

// A pattern replaces the prefixes from which it was learnt, until there are
// more writes than the limit.
func TestAPatternReplacesPrefixes(t *testing.T) {
	tr := newCoverage()
	known := make(lockSet)
	learn := func(key string) {
		d := found(keyspace.Lock{Key: key})
		known.put(d)
		tr.learn(&d)
	}
	learn("orders:1:lock")
	for i := range 100 {
		learn(fmt.Sprintf("r%d:lock", i))
	}
	now := time.Now()
	tr.updateAllKeys(known, now)
	check.True(t, tr.allKeys && tr.stale && len(tr.prefixes) == 1 && len(tr.uncovered) == 0 && tr.covers("new:lock") && !tr.covers("new:cache"),
		"all: %v, prefixes %v, %d strays", tr.allKeys, tr.prefixes, len(tr.uncovered))
	tr.rateCount = maxAllKeysRate
	tr.updateAllKeys(known, now.Add(2*time.Second))
	check.True(t, tr.allKeys, "half of what it may hear is too much")
	tr.rateCount = 10 * maxAllKeysRate
	tr.updateAllKeys(known, now.Add(4*time.Second))
	check.True(t, !tr.allKeys && len(tr.uncovered) == 100 && !tr.covers("new:lock"),
		"it listens to all of a busy server, with %d strays", len(tr.uncovered))
	tr.updateAllKeys(known, now.Add(4*time.Second+allKeysPause+time.Second))
	check.True(t, tr.allKeys, "it does not try again")
}

func TestGlobsAreThoseOfRedis(t *testing.T) {
	rdb := realServer(t)
	names := []string{
		"a", "b", "ab", "abc", "myapp:mutex:1", "myapp:mutex:", "myapp:lock", "x*y", "x?y", "xay", "x[y", "x]y", "x\\y", "x-y", "x^y",
		"aaab", "\xff\x00", "héllo", "a.b", "ba", "[abc]", "z",
	}
	for _, name := range names {
		check.NoError(t, rdb.Set(t.Context(), name, "", 0).Err())
	}
	for _, glob := range []string{
		"*", "a", "a*", "*a", "*b", "*a*b*", "?", "??", "myapp:mutex:*", "myapp:*", "x[*]y", "x\\*y", "x[?]y", "x?y", "x[a-c]y", "x[c-a]y",
		"x[^a]y", "x[\\]]y", "[abc]", "[^abc]", "[a", "x[a-", "x\\", "x[^", "a**b", "*c*", "a.b", "x[a\\-z]y", "h*o", "**", "[z-a]", "x[]y", "x[^]y",
	} {
		want := check.Must(rdb.Keys(t.Context(), glob).Result())(t)
		for _, name := range names {
			check.Equal(t, keyspace.MatchGlob(glob, name), slices.Contains(want, name), "%q is like %q", name, glob)
		}
	}
}
