package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"locktop/internal/server"
	"locktop/internal/testtier"
	"locktop/loadgen"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis would log every connection that a fault closes
	os.Exit(server.Tests{M: m, Parallel: 4}.Run())
}

// Scenarios 7, 36, 52, 54, 61, 94, 95, 109 and 111, on servers that are killed,
// stopped and paused.
//
// Promises P1 and P2.
func TestAShortSoakOfAllSoundKindsIsClean(t *testing.T) {
	testtier.Long(t, "it is a soak")
	t.Parallel()
	server.ForTest(t) // skips where there is no redis-server
	var out, progress bytes.Buffer
	sum, err := soak(t.Context(), allKinds(), 1, 12*time.Second, &out, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if !sum.sound() {
		t.Errorf("%s%s", &progress, &out)
	}
	if len(sum.faults) < 8 || sum.holds < 500 || sum.proofs != 9 {
		t.Errorf("it shows little: %s", &out)
	}
	if strings.Count(out.String(), "\n") != 1 || !strings.Contains(out.String(), "seed 1: ") || !strings.Contains(out.String(), " 0 overlaps") {
		t.Errorf("the line of figures is %q", &out)
	}
}

func TestASoakOfABrokenLockIsNotSound(t *testing.T) {
	testtier.Long(t, "it is a soak")
	t.Parallel()
	server.ForTest(t) // skips where there is no redis-server
	var out, progress bytes.Buffer
	broken := kindSet{
		oneServer: []loadgen.Lock{{Kind: "classic/blind-delete", TTL: 100 * time.Millisecond}},
		hold:      loadgen.Bimodal(30*time.Millisecond, 150*time.Millisecond, 0.3),
	}
	sum, err := soak(t.Context(), broken, 1, 4*time.Second, &out, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if sum.sound() || sum.violations.overlaps == 0 || sum.unproved == 0 || !strings.Contains(progress.String(), "Violation:overlap") {
		t.Errorf("not seen: %s%s", &progress, &out)
	}
}

func TestTheSameSeedPlansTheSameFaults(t *testing.T) {
	const length = time.Minute
	fenced := loadgen.Lock{Kind: loadgen.Mutex, Fence: true}
	if a, b := serverFaults(7, length, 5), serverFaults(7, length, 5); !reflect.DeepEqual(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
	if a, b := clientFaults(7, length, fenced), clientFaults(7, length, fenced); !reflect.DeepEqual(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
	if reflect.DeepEqual(serverFaults(7, length, 5), serverFaults(8, length, 5)) || reflect.DeepEqual(clientFaults(7, length, fenced), clientFaults(8, length, fenced)) {
		t.Error("another seed changes nothing")
	}
}

// What a round leaves behind is checked after all faults have ended.
func TestEveryFaultIsOverBeforeItsRoundIs(t *testing.T) {
	for seed := range uint64(200) {
		seen := map[string]bool{}
		end := time.Duration(0)
		for _, b := range serverFaults(seed, time.Minute, 5) {
			if b.at < end || b.at+b.duration > time.Minute-recoveryTime || len(b.nodes) < 1 || len(b.nodes) > 3 {
				t.Fatalf("seed %d: %+v, after %s", seed, b, end)
			}
			end = b.at + b.duration
			seen[string(b.kind)] = true
		}
		for _, f := range clientFaults(seed, time.Minute, loadgen.Lock{}) {
			if f.At+f.For > time.Minute-recoveryTime {
				t.Fatalf("seed %d: %+v", seed, f)
			}
			seen[string(f.Kind)] = true
		}
		// A holder that freezes can corrupt data that has no fence.
		if len(seen) != len(serverFaultKinds())+5 || seen[string(loadgen.Freeze)] {
			t.Fatalf("seed %d: only %v", seed, seen)
		}
	}
}

// at returns a time of a history, in seconds.
func at(seconds float64) time.Time {
	return time.Unix(0, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func TestALostLeaseIsExplainedByAFaultOfItsOwnTimeAlone(t *testing.T) {
	faultOf := func(client int, from, to float64) func(*incidentLog) {
		return func(l *incidentLog) {
			l.onEvent(loadgen.Event{Kind: loadgen.FaultBegan, Fault: loadgen.Partition, Client: client, At: at(from)})
			l.onEvent(loadgen.Event{Kind: loadgen.FaultEnded, Fault: loadgen.Partition, Client: client, At: at(to)})
		}
	}
	down := func(nodes int, from, to float64) func(*incidentLog) {
		return func(l *incidentLog) {
			l.begin(faultWindow{kind: "kill", from: at(from), to: at(to), nodes: nodes})
		}
	}
	// Client 1 had a lease from 10 s to 12 s.
	for _, c := range []struct {
		name      string
		servers   int
		faults    []func(*incidentLog)
		explained bool
	}{
		{"no fault", 1, nil, false},
		{"its own", 1, []func(*incidentLog){faultOf(1, 11, 11.5)}, true},
		{"one that lasts", 1, []func(*incidentLog){faultOf(1, 5, 20)}, true},
		{"another client's", 1, []func(*incidentLog){faultOf(2, 11, 11.5)}, false},
		{"a later one", 1, []func(*incidentLog){faultOf(1, 12.1, 13)}, false},
		{"one that was over long before", 1, []func(*incidentLog){faultOf(1, 1, 10-faultEffect.Seconds()-0.1)}, false},
		{"one that was over just before", 1, []func(*incidentLog){faultOf(1, 1, 9)}, true},
		{"the server's", 1, []func(*incidentLog){down(1, 11, 11.5)}, true},
		{"two of five servers", 5, []func(*incidentLog){down(2, 11, 11.5)}, false},
		{"three of five servers", 5, []func(*incidentLog){down(3, 11, 11.5)}, true},
		{"two of five servers, and another", 5, []func(*incidentLog){down(2, 8, 9), down(1, 11, 11.5)}, true},
	} {
		l := newIncidentLog(c.servers)
		for _, inject := range c.faults {
			inject(l)
		}
		l.onEvent(loadgen.Event{Kind: loadgen.Acquired, Client: 1, At: at(10)})
		l.onEvent(loadgen.Event{Kind: loadgen.Lost, Client: 1, At: at(12)})
		a := l.summarize()
		if explained := a.lost == 1; explained != c.explained || a.lost+len(a.unexplained) != 1 {
			t.Errorf("%s: %d explained, %d not", c.name, a.lost, len(a.unexplained))
		}
	}
}

func TestALeaseThatIsLostToAStallIsNotCountedAsAFaults(t *testing.T) {
	l := newIncidentLog(1)
	l.stall(at(11), at(14), 1)
	l.onEvent(loadgen.Event{Kind: loadgen.Acquired, Client: 1, At: at(10)})
	l.onEvent(loadgen.Event{Kind: loadgen.Lost, Client: 1, At: at(14)})
	l.onEvent(loadgen.Event{Kind: loadgen.Arrived, Client: 2, At: at(30)})
	l.onEvent(loadgen.Event{Kind: loadgen.Failed, Client: 2, At: at(31)})
	if a := l.summarize(); a.stalled != 1 || a.lost != 0 || a.failed != 1 || a.unexplainedFailures != 1 || len(a.unexplained) > 0 {
		t.Errorf("%+v", a)
	}
}

// The crash of a client does not explain a violation of the client that
// replaces it.
func TestACrashDoesNotExplainALossOfTheNextClient(t *testing.T) {
	l := newIncidentLog(1)
	l.onEvent(loadgen.Event{Kind: loadgen.FaultBegan, Fault: loadgen.Crash, Client: 1, At: at(1)})
	l.onEvent(loadgen.Event{Kind: loadgen.Arrived, Client: 1, At: at(5)})
	l.onEvent(loadgen.Event{Kind: loadgen.Acquired, Client: 1, At: at(20)})
	l.onEvent(loadgen.Event{Kind: loadgen.Expired, Client: 1, At: at(25)})
	if a := l.summarize(); a.lost != 0 || len(a.unexplained) != 1 {
		t.Errorf("%+v", a)
	}
}

func TestFaultFreeTimeIsWhatNoServerFaultExplains(t *testing.T) {
	l := newIncidentLog(1)
	l.begin(faultWindow{kind: "kill", from: at(10), to: at(12), nodes: 1})
	l.begin(faultWindow{kind: "stop", from: at(13), to: at(15), nodes: 1}) // within faultEffect of the other fault
	l.begin(faultWindow{kind: "cut", from: at(30), to: at(40), client: 1})
	if got, want := l.faultFree(at(0), at(100)), 100*time.Second-5*time.Second-faultEffect; got != want {
		t.Errorf("free of faults for %s, want %s", got, want)
	}
}

func TestLeftoversOnAServerAreFound(t *testing.T) {
	server.ForTest(t) // skips where there is no redis-server
	g, err := openTestbed(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer g.close()
	addr := g.set.Nodes()[0].Addr()
	if left, err := leftoversOn(t.Context(), addr); err != nil || len(left) > 0 {
		t.Fatalf("on a fresh server: %q, %v", left, err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "orphan", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	heard := rdb.Subscribe(t.Context(), "news")
	defer heard.Close()
	if _, err := heard.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := leftoversOn(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	for _, what := range left {
		kind, _, _ := strings.Cut(what, " ")
		kinds[kind]++
	}
	if fmt.Sprint(kinds) != "map[channel:1 connection:2 key:1]" || !slices.Contains(left, "key orphan") {
		t.Errorf("%v: %q", kinds, left)
	}
}

func TestAViolationIsNotSound(t *testing.T) {
	if sum := newTally(io.Discard); !sum.sound() {
		t.Error("nothing happened, and it is not sound")
	}
	for name, happen := range map[string]func(*tally){
		"an overlap":                func(t *tally) { t.violations.overlaps = 1 },
		"a foreign unlock":          func(t *tally) { t.violations.foreign = 1 },
		"a stale write":             func(t *tally) { t.violations.stale = 1 },
		"a loss without a reason":   func(t *tally) { t.leases.unexplained = 1 },
		"a history of no lock":      func(t *tally) { t.unproved = 1 },
		"a leak":                    func(t *tally) { t.leaks = 1 },
		"memory that was not freed": func(t *tally) { t.heap = []uint64{1 << 20, 64 << 20} },
	} {
		sum := newTally(io.Discard)
		happen(sum)
		if sum.sound() {
			t.Errorf("%s counts as sound", name)
		}
	}
}

func TestMemoryThatGrowsWithTheRoundsIsALeak(t *testing.T) {
	sum := newTally(&bytes.Buffer{})
	sum.heap = []uint64{3 << 20, 6 << 20, 10 << 20, 13 << 20}
	if !sum.sound() {
		t.Error("some room is given")
	}
	sum.heap[3] = 15 << 20
	if sum.sound() {
		t.Error("9 MB more than in the first half, and nothing is said")
	}
}
