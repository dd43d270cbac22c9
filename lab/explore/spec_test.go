package explore

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lab/internal/lockspec"
)

// fixedLease is a lease that is valid until its end.
type fixedLease struct{ now, end time.Time }

func (l fixedLease) Valid() bool         { return l.now.Before(l.end) }
func (l fixedLease) Deadline() time.Time { return l.end }

func TestSpecNamesEachBrokenPromise(t *testing.T) {
	now := time.Unix(1000, 0)
	grant := func(owner string, fence int64, left time.Duration, keys ...string) *lockspec.Grant {
		return &lockspec.Grant{Lease: fixedLease{now, now.Add(left)}, Ended: func() bool { return false }, Owner: owner, Token: owner + "~1", Keys: keys, Fence: fence}
	}
	copies := func(left time.Duration, owners ...string) (all []lockspec.Copy) {
		for _, owner := range owners {
			all = append(all, lockspec.Copy{Token: owner + "~1", Left: left})
		}
		return all
	}
	look := func(s *lockspec.Spec, stored lockspec.Stored) []string {
		return s.Look(now, now.Add(-time.Minute), []lockspec.Stored{stored})
	}
	for want, broken := range map[string]func(*lockspec.Spec) []string{
		"": func(s *lockspec.Spec) []string {
			return append(s.Granted(grant("a", 1, time.Second, "k")), look(s, lockspec.Stored{"k": copies(time.Second, "a")})...)
		},
		"hold \"k\" together": func(s *lockspec.Spec) []string {
			return append(s.Granted(grant("a", 0, time.Second, "k")), s.Granted(grant("b", 0, time.Second, "k"))...)
		},
		"fence 1 after 1": func(s *lockspec.Spec) []string {
			first := grant("a", 1, time.Second, "k")
			s.Granted(first)
			s.Ended(first)
			return s.Granted(grant("b", 1, time.Second, "k"))
		},
		"its context has not ended": func(s *lockspec.Spec) []string {
			s.Granted(grant("a", 0, 0, "k"))
			return look(s, nil)
		},
		"kept by 0 servers": func(s *lockspec.Spec) []string {
			s.Granted(grant("a", 0, time.Second, "k"))
			return look(s, lockspec.Stored{"k": copies(time.Second-2*time.Millisecond, "a")})
		},
		"does not want it": func(s *lockspec.Spec) []string { return look(s, lockspec.Stored{"other": copies(time.Second, "a")}) },
		"never expires":    func(s *lockspec.Spec) []string { return look(s, lockspec.Stored{"k": copies(lockspec.Forever, "a")}) },
		"admits 1":         func(s *lockspec.Spec) []string { return look(s, lockspec.Stored{"k": copies(time.Second, "a", "b")}) },
		"half of a set":    func(s *lockspec.Spec) []string { return look(s, lockspec.Stored{"l": copies(time.Second, "set")}) },
		"an attempt that failed": func(s *lockspec.Spec) []string {
			s.Failed("a", now.Add(-4*time.Second))
			return look(s, lockspec.Stored{"k": copies(time.Second, "a")})
		},
		"which is free since": func(s *lockspec.Spec) []string {
			s.Waits(&lockspec.Wait{Keys: []string{"k"}, Since: now})
			look(s, nil)
			return s.Look(now.Add(2*time.Second), now.Add(-time.Minute), []lockspec.Stored{nil})
		},
	} {
		s := &lockspec.Spec{Settle: time.Second, Grace: 3 * time.Second, Bound: time.Second}
		for _, owner := range []string{"a", "b"} {
			s.Attempt(owner, lockspec.Attempted{Keys: []string{"k"}, TTL: time.Minute * 2, Limit: 1})
		}
		s.Attempt("set", lockspec.Attempted{Keys: []string{"l", "m"}})
		got := broken(s)
		check.True(t, (want == "") == (len(got) == 0) && strings.Contains(strings.Join(got, "\n"), want), "got %q, want %q", got, want)
	}
}
