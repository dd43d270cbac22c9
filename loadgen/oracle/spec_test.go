package oracle_test

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/loadgen/oracle"
)

// fixedLease is a lease that is valid until its end.
type fixedLease struct{ now, end time.Time }

func (l fixedLease) Valid() bool         { return l.now.Before(l.end) }
func (l fixedLease) Deadline() time.Time { return l.end }

func TestSpecNamesEachBrokenPromise(t *testing.T) {
	now := time.Unix(1000, 0)
	grant := func(owner string, fence int64, left time.Duration, keys ...string) *oracle.Grant {
		return &oracle.Grant{Lease: fixedLease{now, now.Add(left)}, Ended: func() bool { return false }, Owner: owner, Token: owner + "~1", Keys: keys, Fence: fence}
	}
	copies := func(left time.Duration, owners ...string) (all []oracle.Copy) {
		for _, owner := range owners {
			all = append(all, oracle.Copy{Token: owner + "~1", Left: left})
		}
		return all
	}
	look := func(s *oracle.Spec, stored oracle.Stored) []string {
		return s.Look(now, now.Add(-time.Minute), []oracle.Stored{stored})
	}
	for want, broken := range map[string]func(*oracle.Spec) []string{
		"": func(s *oracle.Spec) []string {
			return append(s.Granted(grant("a", 1, time.Second, "k")), look(s, oracle.Stored{"k": copies(time.Second, "a")})...)
		},
		"hold \"k\" together": func(s *oracle.Spec) []string {
			return append(s.Granted(grant("a", 0, time.Second, "k")), s.Granted(grant("b", 0, time.Second, "k"))...)
		},
		"fence 1 after 1": func(s *oracle.Spec) []string {
			first := grant("a", 1, time.Second, "k")
			s.Granted(first)
			s.Ended(first)
			return s.Granted(grant("b", 1, time.Second, "k"))
		},
		"its context has not ended": func(s *oracle.Spec) []string {
			s.Granted(grant("a", 0, 0, "k"))
			return look(s, nil)
		},
		"kept by 0 servers": func(s *oracle.Spec) []string {
			s.Granted(grant("a", 0, time.Second, "k"))
			return look(s, oracle.Stored{"k": copies(time.Second-2*time.Millisecond, "a")})
		},
		"does not want it": func(s *oracle.Spec) []string { return look(s, oracle.Stored{"other": copies(time.Second, "a")}) },
		"never expires":    func(s *oracle.Spec) []string { return look(s, oracle.Stored{"k": copies(oracle.Forever, "a")}) },
		"admits 1":         func(s *oracle.Spec) []string { return look(s, oracle.Stored{"k": copies(time.Second, "a", "b")}) },
		"half of a set":    func(s *oracle.Spec) []string { return look(s, oracle.Stored{"l": copies(time.Second, "set")}) },
		"an attempt that failed": func(s *oracle.Spec) []string {
			s.Failed("a", now.Add(-4*time.Second))
			return look(s, oracle.Stored{"k": copies(time.Second, "a")})
		},
		"which is free since": func(s *oracle.Spec) []string {
			s.Waits(&oracle.Wait{Keys: []string{"k"}, Since: now})
			look(s, nil)
			return s.Look(now.Add(2*time.Second), now.Add(-time.Minute), []oracle.Stored{nil})
		},
	} {
		s := &oracle.Spec{Settle: time.Second, Grace: 3 * time.Second, Bound: time.Second}
		for _, owner := range []string{"a", "b"} {
			s.Attempt(owner, oracle.Attempted{Keys: []string{"k"}, TTL: time.Minute * 2, Limit: 1})
		}
		s.Attempt("set", oracle.Attempted{Keys: []string{"l", "m"}})
		got := broken(s)
		check.True(t, (want == "") == (len(got) == 0) && strings.Contains(strings.Join(got, "\n"), want), "got %q, want %q", got, want)
	}
}
