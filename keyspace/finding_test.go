package keyspace_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/keyspace"
)

// Each finding stands beside the nearest thing that is no reason to worry.
func TestFindings(t *testing.T) {
	const hour = 3_600_000
	typical := func(l keyspace.Lock, d time.Duration) keyspace.Lock {
		l.Typical = d
		return l
	}
	for _, c := range []struct {
		name string
		lock keyspace.Lock
		at   int // ms after the hold began
		want string
		says string
	}{
		{"no deadline", mutex(holder("a", 0)), 2000, "never-expires", "for 2s without a deadline"},
		{"no deadline, begin unknown", mutex(keyspace.Holder{ID: "a"}), 2000, "never-expires", "Held without a deadline"},
		{"a far deadline", mutex(holder("a", hour)), 2000, "", ""},
		{"no deadline, but nobody holds it", waitedFor(mutex(), "w"), 2000, "", ""},
		{"held for more than ten minutes", mutex(holder("a", hour)), 601_000, "overdue", "Held for 10m1s."},
		{"held for almost ten minutes", mutex(holder("a", hour)), 599_000, "", ""},
		{"held for ten minutes, begin unknown", mutex(keyspace.Holder{ID: "a", Expires: at(hour)}), 601_000, "", ""},
		{"one of the readers has been there for long", mutex(keyspace.Holder{ID: "b", Since: at(600_000), Expires: at(hour)}, holder("a", hour)), 601_000, "overdue", "10m1s"},
		{"much longer than usual", typical(mutex(holder("a", hour)), 2*time.Second), 41_000, "overdue", "half of its holds are over in 2s"},
		{"somewhat longer than usual", typical(mutex(holder("a", hour)), 2*time.Second), 39_000, "", ""},
		{"much longer than usual, but short", typical(mutex(holder("a", hour)), 100*time.Millisecond), 29_000, "", ""},
		{"long and without a deadline", mutex(holder("a", 0)), 601_000, "never-expires overdue", "10m1s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := keyspace.Snapshot{At: at(c.at), Locks: []keyspace.Lock{mutex(), c.lock}}
			var ids []string
			for _, f := range keyspace.Findings(s) {
				ids = append(ids, f.ID)
				if f.Lock != c.lock.ID() || f.Remedy == "" || f.Severity == keyspace.Info {
					t.Errorf("got %+v", f)
				}
				if !strings.Contains(f.Text, c.says) {
					t.Errorf("it says %q, not %q", f.Text, c.says)
				}
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}

func TestDamageOrdersBySeverityThenByWhatWaitingCosts(t *testing.T) {
	const hour = 3_600_000
	named := func(key string, l keyspace.Lock) keyspace.Lock {
		l.Key = key
		return l
	}
	s := keyspace.Snapshot{At: at(700_000), Locks: []keyspace.Lock{
		named("a quiet", mutex(keyspace.Holder{ID: "x", Since: at(699_000), Expires: at(hour)})),
		named("b one waits", waitedFor(mutex(keyspace.Holder{ID: "x", Since: at(600_000), Expires: at(hour)}), "w")),
		named("c two wait", waitedFor(mutex(keyspace.Holder{ID: "x", Since: at(600_000), Expires: at(hour)}), "v", "w")),
		named("d overdue", mutex(holder("x", hour))),
		named("e stuck", mutex(keyspace.Holder{ID: "x"})),
		named("f quiet, too", mutex(keyspace.Holder{ID: "x", Since: at(600_000), Expires: at(hour)})),
	}}
	var got []string
	for _, l := range keyspace.ByDamage(s, keyspace.Findings(s)) {
		got = append(got, l.Key)
	}
	want := []string{"e stuck", "d overdue", "c two wait", "b one waits", "a quiet", "f quiet, too"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if s.Locks[0].Key != "a quiet" {
		t.Error("the snapshot was changed")
	}
}
