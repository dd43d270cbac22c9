package inspect

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/keyspace"
)

// Over a slow network, a changed key is read with the next trip of any other request: the hold may have ended before
// the running look does.
func TestAHoldThatEndsDuringALookOverASlowNetworkIsTold(t *testing.T) {
	rdb := realServer(t)
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 60_000)
	w := watch(t, rdb, justTokens())
	await(t, w, func() bool { return pushes(w.Known()) && w.locks.known["lock:a"] != nil })
	reported := func(key string) { // waits for the report of a change
		for n := 0; n == 0; time.Sleep(time.Millisecond) {
			w.tracking.conn.mu.Lock()
			n = w.tracking.conn.changes.reports(key)
			w.tracking.conn.mu.Unlock()
		}
	}
	for _, c := range []struct {
		name, key string
		strings   bool // the last lock with such a name was a string
		network   time.Duration
		trips     int
		want      string
	}{
		{"like a known string, in one trip", "lock:1", true, 50 * time.Millisecond, 1, "[acquired token:2 released token:2]"},
		{"of a new name, in two trips", "lock:2", false, 50 * time.Millisecond, 2, "[acquired token:2 released token:2]"},
		{"of a new name, in one trip", "lock:3", false, 50 * time.Millisecond, 1, "[]"},
		{"without a slow network", "lock:4", true, 0, 2, "[]"},
		{"that follows another", "lock:a", true, 50 * time.Millisecond, 1, "[stolen token:1 acquired token:2 released token:2]"},
	} {
		w.locks.strings[keyspace.AlikeClass(c.key)] = c.strings
		w.scan.pass.networkTime = c.network
		ends := []any{"PX", 60_000}
		if w.locks.known[c.key] != nil {
			ends = []any{"KEEPTTL"}
		}
		do(t, rdb, append([]any{"SET", c.key, "token:2"}, ends...)...)
		reported(c.key)
		for range c.trips {
			check.NoError(t, w.reader.conn.pipelined(t.Context(), "another request", func(redis.Pipeliner) {}))
		}
		do(t, rdb, "DEL", c.key)
		reported(c.key)
		w.unreported.take()
		for n := 0; n < 2 || len(w.endings.pending) > 0; n++ {
			check.NoError(t, w.refresh(t.Context(), false))
		}
		var got []string
		for _, e := range w.unreported.events {
			got = append(got, fmt.Sprint(e.Kind, " ", e.Holder.ID))
		}
		check.Equal(t, fmt.Sprint(got), c.want, "a hold %s", c.name)
		check.Equal(t, len(w.ahead.keys), 0, "keys that are left after a hold %s", c.name)
	}
}

// A change of a key whose end is not judged yet is not read ahead: the judgement needs all reports of the key.
func TestAKeyThatIsBeingJudgedIsNotReadAhead(t *testing.T) {
	w := NewWatcher(NewScanner(nil, justTokens()))
	check.True(t, w.mayReadAhead("lock:a"), "a new key is read ahead")
	w.endings.pending["lock:a"] = pendingReason{}
	check.False(t, w.mayReadAhead("lock:a"), "a key that is being judged is read ahead")
	w.locks.companions["lock:b"] = "lock:a"
	check.False(t, w.mayReadAhead("lock:b"), "a companion is read ahead")
	w.ahead.add("lock:c", change{ahead: new(candidate)})
	check.False(t, w.mayReadAhead("lock:c"), "a key is read ahead twice")
}

// What was read ahead of an emptied database, or before a report was lost, is read again.
func TestAReadAheadIsDroppedIfAReportMayBeMissing(t *testing.T) {
	rdb := realServer(t)
	w := watch(t, rdb, justTokens())
	do(t, rdb, "SET", "lock:b", "token:1", "PX", 60_000)
	await(t, w, func() bool { return pushes(w.Known()) && !w.tracking.resync && w.locks.known["lock:b"] != nil })
	do(t, rdb, "SET", "lock:a", "token:1", "PX", 60_000)
	read := check.Must(w.reader.gather(t.Context(), []candidate{{name: "lock:a", typ: "string"}}))(t)[0]
	do(t, rdb, "DEL", "lock:a")
	for _, lost := range []bool{false, true} {
		w.ahead.add("lock:a", change{since: time.Now(), ahead: &read})
		w.tracking.pending.flushed = lost
		check.NoError(t, w.refresh(context.Background(), false))
		_, known := w.locks.known["lock:a"]
		check.Equal(t, known, !lost, "a lock that was read ahead is known, with a missing report: %v", lost)
		w.locks.remove("lock:a")
	}
}
