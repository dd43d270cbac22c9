package cli

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/keyspace"
	"locktop/keyspace/formats"
	"locktop/keyspace/inspect"
	"locktop/lock"
)

func TestTheInspectorReadsWhatTheLocksWrite(t *testing.T) {
	t.Parallel()
	rdb := clientTo(t, server.ForTest(t).Addr())
	client := newLockClient(t, rdb, "billing-7")
	o := lock.Options{TTL: time.Minute, Fence: true}
	reentrant := client.Reentrant("twice", o)
	take(t, client.Mutex("once", o))
	take(t, client.Fair("{queue}:fair", o))
	take(t, reentrant)
	take(t, reentrant)

	snap := check.Must(inspect.NewScanner(rdb, inspect.ScanOptions{Formats: formats.All()}).Scan(t.Context()))(t)
	found := make(map[string]keyspace.Lock)
	for _, l := range snap.Locks {
		found[l.Key] = *l
	}
	for key, count := range map[string]int{"once": 1, "{queue}:fair": 1, "twice": 2} {
		l := found[key]
		if l.Confidence != keyspace.Certain || l.Count() != count || l.Fence != 1 || len(l.Holders) != 1 || l.Holders[0].Label != "billing-7" {
			t.Errorf("%s is read as %+v", key, l)
		}
		left, ok := l.TTL(snap.At)
		check.True(t, ok && left >= 55*time.Second && left <= time.Minute+time.Second, "%s has %v left, want a minute", key, left)
	}
	check.True(t, len(found) == 3, "%d locks found, want the three, and none of their companions", len(found))
}

func take(t *testing.T, l lock.Locker) {
	t.Helper()
	check.Must(l.Lock(t.Context()))(t)
}
