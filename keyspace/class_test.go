package keyspace

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

// Keys whose parts differ in IDs, or in a name at the end, are of one class.
func TestAlikeKeysHaveOneClass(t *testing.T) {
	for key, want := range map[string]string{
		"order:4711": "order:*", "order:4711:processing": "order:*:processing",
		"session:3f2b8c6a-1d4e-4a7b-9c5d-8e0f2a4b6c8d": "session:*",
		"route:device:aabb":                            "route:device:*", "presence/alice": "presence/*",
		"nightly": "nightly", "": "", ":": ":*", "a:": "a:*",
	} {
		check.Equal(t, AlikeClass(key), want, "the class of %q is", key)
	}
	check.AtMost(t, len(AlikeClass(strings.Repeat("word:", 1000)+"x")), maxClassName+1, "bytes of a class")
}

func TestTheClassesThatAreNotShownAreNamed(t *testing.T) {
	check.Equal(t, AlikeProblem(nil), "", "without classes")
	got := AlikeProblem(map[string]int{"a:*": 300, "b:*": 2000, "c:*": 301, "d:*": 250, "e:*": 250})
	want := "3,101 keys may be locks, but too many are alike (b:*, c:*, a:*, 2 more)"
	check.True(t, strings.HasPrefix(got, want), "it is %q, want %q …", got, want)
}
