package inspect

import (
	"testing"

	"locktop/internal/check"
	"locktop/keyspace"
)

func TestAFormatIsFoundByEachOfItsBeginningsAndByNoOther(t *testing.T) {
	x := newFormatIndex([]keyspace.Format{{
		Type:     "string",
		Prefixes: []string{"lock:", "{lock}:", "mutex:"},
		Probe:    func(string, string) keyspace.Confidence { return keyspace.Certain },
	}})
	for key, want := range map[string]keyspace.Confidence{
		"lock:a": keyspace.Certain, "{lock}:a": keyspace.Certain, "mutex:a": keyspace.Certain,
		"lock:": keyspace.No, "locks:a": keyspace.No, "a": keyspace.No, "": keyspace.No,
	} {
		check.Equal(t, x.bestProbe(key, "string", "", keyspace.Certain), want, "%q promises", key)
		check.Equal(t, x.needOf(key, "string") == needProbe, (want == keyspace.Certain), "%q is looked at", key)
	}
}
