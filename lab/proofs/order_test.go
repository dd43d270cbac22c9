package proofs

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/keyspace"
	"locktop/keyspace/order"
)

// The graph of orders takes at most 2 % of a core and 20 MB for 2,000 holds a second of 10,000 classes, half of them
// nested.
func TestTheOrdersOfManyHoldsTakeLittle(t *testing.T) {
	testtier.Proof(t, "it measures the time and the memory of a graph")
	const rounds, classes = 200_000, 10_000
	thread := "8743c9c0-0795-4907-87fd-6c719a6b4586:1"
	at := time.Date(2026, 11, 28, 3, 0, 0, 0, time.UTC)
	names := make([]string, classes)
	for i := range names { // without digits: each is a class of its own
		names[i] = strings.Map(func(r rune) rune { return r + 'k' - '0' }, fmt.Sprintf("%05d:", i))
	}
	round := func(prefix string) (events []keyspace.Event) {
		for _, step := range []struct {
			owner, key string
			kind       keyspace.EventKind
		}{
			{thread, "cart:1", keyspace.Acquired}, {thread, "stock:5", keyspace.Acquired}, {thread, "stock:5", keyspace.Released}, {thread, "cart:1", keyspace.Released},
			{"web-1:77", "a", keyspace.Acquired}, {"web-1:77", "a", keyspace.Released}, {"web-2:78", "b", keyspace.Acquired}, {"web-2:78", "b", keyspace.Released},
		} {
			at = at.Add(10 * time.Millisecond)
			events = append(events, keyspace.Event{At: at, Kind: step.kind, Lock: keyspace.Lock{Key: prefix + step.key, Kind: keyspace.Mutex},
				Holder: keyspace.Holder{ID: step.owner, Expires: at.Add(time.Second)}})
		}
		return events
	}
	g, before, took := new(order.Graph), heap(), time.Duration(0)
	for i := range rounds {
		events := round(names[i%classes])
		began := time.Now()
		g.Learn(events, 0)
		took += time.Since(began)
	}
	memory := float64(int64(heap()-before)) / 1e6
	share := 100 * 2000 * took.Seconds() / (4 * rounds) // a round has four holds
	t.Logf("%.2f %% of a core, %.1f MB, %d orders", share, memory, len(g.Orders()))
	check.True(t, len(g.Orders()) >= 9_000, "it learned %d orders", len(g.Orders()))
	check.AtMost(t, share, 2, "percent of a core")
	check.AtMost(t, memory, 20, "MB")
}

// heap returns the bytes in use.
func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
