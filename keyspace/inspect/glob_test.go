package inspect

import (
	"slices"
	"testing"

	"locktop/internal/check"
	"locktop/keyspace"
)

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
