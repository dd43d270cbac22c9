package inspect

import (
	"testing"

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
		if got := x.bestProbe(key, "string", "", keyspace.Certain); got != want {
			t.Errorf("%q promises %v, want %v", key, got, want)
		}
		if looked := x.needOf(key, "string") == needProbe; looked != (want == keyspace.Certain) {
			t.Errorf("%q is looked at: %v", key, looked)
		}
	}
}
