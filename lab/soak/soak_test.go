package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/oracle"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis would log every connection that a fault closes
	os.Exit(servertest.Tests{M: m, Parallel: 4}.Run())
}

// Scenarios 7, 36, 52, 54, 61, 94, 95, 109 and 111, on servers that are killed, stopped and paused.
//
// Promises P1 and P2.
func TestAShortSoakOfAllSoundKindsIsClean(t *testing.T) {
	testtier.Long(t, "it is a soak")
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	var out, progress bytes.Buffer
	sum := check.Must(soak(t.Context(), allKinds(), 1, 12*time.Second, &out, &progress))(t)
	check.True(t, sum.sound(), "%s%s", &progress, &out)
	check.True(t, len(sum.faults) >= 8 && sum.holds >= 500 && sum.proofs == 9, "it shows little: %s", &out)
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "seed 1: ") || !strings.Contains(out.String(), " 0 overlaps") {
		t.Errorf("the line of figures is %q", &out)
	}
}

func TestASoakOfABrokenLockIsNotSound(t *testing.T) {
	testtier.Long(t, "it is a soak")
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	var out, progress bytes.Buffer
	broken := []loadgen.Scenario{{
		Lock: loadgen.Lock{Kind: "classic/blind-delete", TTL: 100 * time.Millisecond},
		Hold: loadgen.Bimodal(30*time.Millisecond, 150*time.Millisecond, 0.3),
	}}
	sum := check.Must(soak(t.Context(), broken, 1, 4*time.Second, &out, &progress))(t)
	if sum.sound() || sum.violations.Overlap.Count == 0 || sum.unproved == 0 || !strings.Contains(progress.String(), "Violation:overlap") {
		t.Errorf("not seen: %s%s", &progress, &out)
	}
}

func TestTheSameSeedPlansTheSameFaults(t *testing.T) {
	const length = time.Minute
	for _, l := range []loadgen.Lock{{Kind: loadgen.Mutex, Fence: true}, {Kind: loadgen.Redlock}} {
		a, b := faults(7, length, l), faults(7, length, l)
		check.True(t, reflect.DeepEqual(a, b), "%v\n%v", a, b)
		if reflect.DeepEqual(serverFaults(7, length, 5), serverFaults(8, length, 5)) || reflect.DeepEqual(clientFaults(7, length, l), clientFaults(8, length, l)) {
			t.Error("another seed changes nothing")
		}
	}
}

// What a round leaves behind is checked after all faults have ended.
func TestEveryFaultIsOverBeforeItsRoundIs(t *testing.T) {
	for seed := range uint64(200) {
		seen := map[loadgen.FaultKind]bool{}
		var before loadgen.Fault
		nodes := 0 // with the same fault
		for _, f := range serverFaults(seed, time.Minute, 5) {
			if nodes++; f.At != before.At {
				nodes = 1
			}
			if together := f.At == before.At && f.Kind == before.Kind; !together && f.At < before.At+before.For || nodes > 3 || f.Kind != loadgen.ScriptFlush && f.Node == 0 {
				t.Fatalf("seed %d: %+v, after %+v", seed, f, before)
			}
			before = f
		}
		for _, f := range faults(seed, time.Minute, loadgen.Lock{Kind: loadgen.Redlock}) {
			check.Require(t, f.At+f.For <= time.Minute-recoveryTime, "seed %d: %+v", seed, f)
			seen[f.Kind] = true
		}
		// A holder that freezes can corrupt data that has no fence.
		check.Require(t, len(seen) == 4+5 && !seen[loadgen.Freeze], "seed %d: only %v", seed, seen)
	}
}

// Of two stops, one stops the server and one only its writes.
func TestAStopEndsTheWritesOfAServer(t *testing.T) {
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	g := check.Must(openTestbed(t.Context(), 1))(t)
	defer g.close()
	addr := g.Nodes()[0].Addr()
	probe := server.NewClient(addr, server.ClientOptions{NoRetry: true, Timeout: 300 * time.Millisecond})
	defer probe.Close()
	writer := server.NewClient(addr, server.ClientOptions{NoRetry: true, Timeout: 30 * time.Millisecond})
	defer writer.Close()
	reads := 0
	for range 2 {
		check.NoError(t, g.Freeze(1))
		check.True(t, writer.Set(t.Context(), "key", 1, 0).Err() != nil, "a stopped server writes")
		if probe.Get(t.Context(), "key").Err() == redis.Nil {
			reads++
		}
		check.NoError(t, g.Continue(1))
		check.ErrorIs(t, probe.Del(t.Context(), "key").Err(), nil, "after the stop")
	}
	check.Equal(t, reads, 1, "stops of 2 in which it answered reads")
}

func TestLeftoversOnAServerAreFound(t *testing.T) {
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	g := check.Must(openTestbed(t.Context(), 1))(t)
	defer g.close()
	addr := g.Nodes()[0].Addr()
	if left, err := leftoversOn(t.Context(), addr); err != nil || len(left) > 0 {
		t.Fatalf("on a fresh server: %q, %v", left, err)
	}
	rdb := server.NewClient(addr, server.ClientOptions{})
	defer rdb.Close()
	check.NoError(t, rdb.Set(t.Context(), "orphan", "x", 0).Err())
	heard := check.Must(net.Dial("tcp", addr))(t)
	defer heard.Close()
	check.Must(io.WriteString(heard, "SUBSCRIBE news\r\n"))(t)
	check.Must(heard.Read(make([]byte, 1)))(t)
	left := check.Must(leftoversOn(context.Background(), addr))(t)
	kinds := map[string]int{}
	for _, what := range left {
		kind, _, _ := strings.Cut(what, " ")
		kinds[kind]++
	}
	check.True(t, fmt.Sprint(kinds) == "map[channel:1 connection:2 key:1]" && slices.Contains(left, "key orphan"), "%v: %q", kinds, left)
}

func TestAViolationIsNotSound(t *testing.T) {
	check.True(t, newTally(io.Discard).sound(), "nothing happened, and it is not sound")
	for name, happen := range map[string]func(*tally){
		"an overlap":                func(t *tally) { t.violations.Overlap.Count = 1 },
		"an excused overlap":        func(t *tally) { t.violations.Overlap = oracle.Tally{Count: 1, Excused: 1} },
		"a foreign unlock":          func(t *tally) { t.violations.ForeignUnlock.Count = 1 },
		"a stale write":             func(t *tally) { t.stale = 1 },
		"a loss without a reason":   func(t *tally) { t.violations.UnexplainedLoss.Count = 1 },
		"a stuck key":               func(t *tally) { t.violations.StuckKey.Count = 1 },
		"a holder that is not told": func(t *tally) { t.violations.Unnotified.Count = 1 },
		"a history of no lock":      func(t *tally) { t.unproved = 1 },
		"a leak":                    func(t *tally) { t.leaks = 1 },
		"memory that was not freed": func(t *tally) { t.heap = []uint64{1 << 20, 64 << 20} },
	} {
		sum := newTally(io.Discard)
		happen(sum)
		check.False(t, sum.sound(), "%s counts as sound", name)
	}
}

func TestMemoryThatGrowsWithTheRoundsIsALeak(t *testing.T) {
	sum := newTally(&bytes.Buffer{})
	sum.heap = []uint64{3 << 20, 6 << 20, 10 << 20, 13 << 20}
	check.True(t, sum.sound(), "some room is given")
	sum.heap[3] = 15 << 20
	check.False(t, sum.sound(), "9 MB more than in the first half, and nothing is said")
}

func TestALeaseThatIsLostToAStallIsNotCountedAsAFaults(t *testing.T) {
	sum := newTally(io.Discard)
	sum.violations.Explained = []oracle.Explained{
		{Violation: oracle.UnexplainedLoss, Cause: oracle.Unanswered, Count: 2}, {Violation: oracle.UnexplainedLoss, Cause: oracle.Stalled, Count: 1},
		{Violation: oracle.UnexplainedLoss, Cause: "cut", Count: 4}, {Violation: oracle.Overtaken, Cause: "cut", Count: 8},
	}
	fault, machine := sum.lost()
	check.True(t, fault == 4 && machine == 3, "%d to a fault, %d to a stall", fault, machine)
}
