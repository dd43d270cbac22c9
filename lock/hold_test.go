package lock

import (
	"testing"
	"time"
	"unsafe"

	"locktop/internal/check"
)

// Scenario 58.
func TestOfTwoClocksTheOneThatHasAdvancedFurtherDecides(t *testing.T) {
	sent := time.Now()
	for name, c := range map[string]struct {
		wall, monotonic time.Duration // since the request was sent
		over            bool
	}{
		"neither":                     {9 * time.Second, 9 * time.Second, false},
		"both":                        {10 * time.Second, 10 * time.Second, true},
		"the machine was asleep":      {10 * time.Second, 9 * time.Second, true},
		"the wall clock was set back": {9 * time.Second, 10 * time.Second, true},
	} {
		now := sent.Add(c.wall)
		moveMonotonic(&now, c.monotonic-c.wall)
		check.Require(t, now.Sub(sent) == c.monotonic && now.Round(0).Sub(sent.Round(0)) == c.wall,
			"%s: the clocks show %v and %v", name, now.Round(0).Sub(sent.Round(0)), now.Sub(sent))
		h := &hold{base: &base{}, sent: sent, ttl: 10 * time.Second}
		check.Equal(t, h.pastDeadline(now), c.over, "%s: over", name)
	}
}

// moveMonotonic changes only the monotonic reading of a time. Package time has no
// function for it, so the callers check that it still works.
func moveMonotonic(t *time.Time, by time.Duration) {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(t)).ext += int64(by)
}
