package keyspace

import "testing"

func TestAFormatIsFoundByEachOfItsBeginningsAndByNoOther(t *testing.T) {
	x := newFormatIndex([]Format{{
		Type:     "string",
		Prefixes: []string{"lock:", "{lock}:", "mutex:"},
		Probe:    func(string, string) Confidence { return Certain },
	}})
	for key, want := range map[string]Confidence{
		"lock:a": Certain, "{lock}:a": Certain, "mutex:a": Certain,
		"lock:": No, "locks:a": No, "a": No, "": No,
	} {
		if got := x.bestProbe(key, "string", "", Certain); got != want {
			t.Errorf("%q promises %v, want %v", key, got, want)
		}
		if looked := x.needOf(key, "string") == needProbe; looked != (want == Certain) {
			t.Errorf("%q is looked at: %v", key, looked)
		}
	}
}
