package recording

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// The next DirWriter of a directory knows the locks at the end of the recording by the
// tokens that they have now, although the recording has none.
func TestAPastKnowsTheSameHolders(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "box")
	end := begin.Add(time.Minute)
	lock := func(token, waiter string) keyspace.Lock {
		return keyspace.Lock{Key: "lock:a", Format: "set-nx", Node: "master:6379",
			Holders: []keyspace.Holder{{ID: token, Count: 1, Since: begin}}, Waiters: []keyspace.Waiter{{ID: waiter, Since: begin}}}
	}
	w, _ := newDirWriter(t, dir, DirOptions{})
	if _, known := w.Past().Lock(lock("one", "two"), end); known {
		t.Error("an empty directory has a past")
	}
	w.Add(keyspace.Snapshot{At: end, Locks: []*keyspace.Lock{new(lock("one", "two"))}})
	check.NoError(t, w.Close())
	info, err := os.Stat(filepath.Join(dir, saltName))
	check.True(t, err == nil && info.Mode().Perm()&0o077 == 0, "the salt: %v, %v", info, err)

	next, _ := newDirWriter(t, dir, DirOptions{})
	now := lock("one", "another")
	now.Node = "replica:6379"
	was, known := next.Past().Lock(now, end.Add(maxPastAge))
	h, same := was.Holder("one")
	check.True(t, known && same && h.Since.Equal(begin) && was.Node == now.Node, "known %v: %+v", known, was)
	id := was.Waiters[0].ID
	check.True(t, id != "two" && id != "another", "another waiter has the past of %q", id)
	was, _ = next.Past().Lock(lock("next", ""), end)
	_, same = was.Holder("next")
	check.True(t, !same, "the next holder has the past of the one before")
	for _, at := range []time.Time{end.Add(maxPastAge + 1), end.Add(-1)} {
		_, known := next.Past().Lock(now, at)
		check.True(t, !known, "a past of %v is known at %v", end, at)
	}
	next.Past().Forget()
	_, known = next.Past().Lock(now, end)
	check.True(t, !known, "a forgotten past is known")
}
