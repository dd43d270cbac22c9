package keyspace

import (
	"testing"
	"time"
)

// To steal a lock is one change. Where there were two, somebody let go in
// between, whatever the deadlines say.
func TestALockThatWasToldOfTwiceWasNotStolen(t *testing.T) {
	until := time.UnixMilli(1_763_683_200_000)
	held := func(id string) Lock {
		return Lock{Key: "a", Expires: until, Holders: []Holder{{ID: id, Count: 1, Expires: until}}}
	}
	for _, c := range []struct {
		told []string // keys, in two messages
		want EventKind
	}{
		{[]string{"a"}, Stolen},
		{[]string{"a", "b"}, Stolen},
		{[]string{"a", "b", "a"}, Released},
	} {
		var once, kept tracker
		for _, key := range c.told {
			once.kept.note(key, until)
		}
		kept.put(once.news()) // as what was heard is, where a look has failed
		d := diff{at: until.Add(-time.Minute), blur: exactJitter, moved: kept.news().again["a"]}
		d.change(held("first"), held("next"))
		if got := d.events[0].Kind; got != c.want {
			t.Errorf("told of %q: %s, want %s", c.told, got, c.want)
		}
	}
}

// Nor was one whose release was announced, however it was learnt that it changed.
func TestALockWhoseReleaseWasAnnouncedWasNotStolen(t *testing.T) {
	until := time.UnixMilli(1_763_683_200_000)
	held := func(id string) Lock {
		return Lock{Key: "a", Expires: until, Holders: []Holder{{ID: id, Count: 1, Expires: until}}}
	}
	for _, c := range []struct{ witness, want EventKind }{{"", Stolen}, {Released, Released}} {
		d := diff{at: until.Add(-time.Minute), blur: exactJitter, witness: c.witness}
		d.change(held("first"), held("next"))
		if got := d.events[0].Kind; got != c.want {
			t.Errorf("with %q known it is %s, want %s", c.witness, got, c.want)
		}
	}
}
