package inspect

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/keyspace"
)

// Two watchers read a lock while its slot moves. They report its end once, whichever of
// them reads first that the lock is gone.
func TestTheEndOfALockThatMovesIsReportedOnce(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	began := time.Now()
	for name, end := range map[string]func(from, to *Watcher, reads func(*Watcher, bool)){
		"the old master's watcher reads last": func(from, to *Watcher, reads func(*Watcher, bool)) {
			reads(to, true)
			reads(from, false)
			reads(to, false)
		},
		"it reads last, and the other one has ended": func(from, to *Watcher, reads func(*Watcher, bool)) {
			reads(to, true)
			reads(to, false)
			reads(from, false)
		},
		"it reads first, and the other read began before": func(from, to *Watcher, reads func(*Watcher, bool)) {
			to.times.readStart = began
			reads(from, false)
			reads(to, true)
		},
	} {
		c := NewCluster(nil)
		from, to := NewWatcher(NewScanner(rdb, ScanOptions{Cluster: c})), NewWatcher(NewScanner(rdb, ScanOptions{Cluster: c}))
		reads := func(w *Watcher, exists bool) {
			held := found(keyspace.Lock{Key: "lock:a", Node: w.reader.node, Holders: []keyspace.Holder{{ID: "token"}}})
			d := w.newDiffer()
			was, known := w.locks.known.get(held.lock.Key)
			if ours := true; !known && exists {
				if was, known, ours = w.adopt(held); !ours {
					return
				}
			}
			switch {
			case exists:
				w.updateLock(was, held, known, &d)
			case known:
				w.times.readEnd = time.Now()
				w.removeLock(was, &d)
			}
		}
		reads(from, true)
		from.unreported.events = nil
		end(from, to, reads)
		var ends int
		for _, w := range []*Watcher{from, to} {
			for _, e := range w.unreported.events {
				check.True(t, e.Kind.Ends(), "%s: it is also %s", name, e.Kind)
				ends++
			}
			_, known := w.locks.known.get("lock:a")
			check.True(t, !known, "%s: a watcher still has the lock", name)
		}
		check.True(t, ends == 1, "%s: %d ends", name, ends)
		to.times.readStart = time.Now()
		reads(to, true)
		check.True(t, len(to.unreported.events) > 0, "%s: the next hold is not reported", name)
	}
}
