//go:build unix

package proofs

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/scenarios"
)

// asClient is the environment variable that makes this test binary a client process with
// locks of a kind.
const asClient = "LOCKTOP_TEST_CLIENT"

func init() {
	kind := loadgen.Kind(os.Getenv(asClient))
	if kind == "" {
		return
	}
	l := loadgen.Lock{Kind: kind}
	if kind == "classic/counted" {
		l.Renew.Max = 2 // as in its scenario
	}
	if err := loadgen.ServeClient(context.Background(), l, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// asProcesses returns s with client processes of its kind, which must show the same.
func asProcesses(s loadgen.Scenario) loadgen.Scenario {
	with := s.WithClient(fmt.Sprintf("%s=%s exec '%s'", asClient, s.Lock.Kind, os.Args[0]))
	with.Expect = s.Expect
	return with
}

// besideOthers lets a part of a test run beside the others, unless it has a quorum: a client takes
// a node that does not answer within 12 ms for one that is down. The test itself must not be parallel.
func besideOthers(t *testing.T, kind loadgen.Kind) {
	t.Helper()
	if !kind.Quorum() {
		t.Parallel()
	}
}

// five starts five independent servers that the run can stop and start.
func five(t *testing.T) loadgen.Servers {
	t.Helper()
	set := servertest.IndependentForTest(t, 5)
	on := loadgen.Servers{Power: set}
	for _, child := range set.Nodes() {
		on.Nodes = append(on.Nodes, servertest.ClientForTest(t, child.Addr(), nil))
	}
	on.Redis = on.Nodes[0]
	return on
}

// runUntilShown runs a scenario until it has shown what is expected of it, or to its end if nothing
// is. It fails the test if keys are left.
func runUntilShown(t *testing.T, on loadgen.Servers, s loadgen.Scenario) loadgen.Metrics {
	t.Helper()
	r, err := loadgen.New(on, s)
	if err == nil {
		err = r.Start()
	}
	check.NoError(t, err)
	shown := func() bool { return len(s.Expect) > 0 && len(loadgen.Missed(s.Expect, r.Metrics())) == 0 }
	for done := r.Done(); done != nil && !shown(); {
		select {
		case <-done:
			done = nil
		case <-time.After(10 * time.Millisecond):
		}
	}
	_ = r.Close() // a client that was frozen may be unable to release
	return r.Metrics()
}

// The flaw that each historic form has, and the scenario that shows it.
var flaws = []struct {
	kind loadgen.Kind
	name string
}{
	{"classic/setnx-expire", "setnx-crash"},
	{"classic/exists-set", "exists-set"},
	{"classic/getset", "getset-skew"},
	{"classic/blind-delete", "blind-delete"},
	{"classic/get-then-del", "get-then-del"},
	{"classic/counted", "counted"},
	{"classic/two-key-rw", "two-key-rw"},
	{"classic/stamp-rw", "stamp-rw"},
	{"classic/quorum-semaphore", "quorum-semaphore"},
}

func TestTheFlawOfEachHistoricFormIsFoundInClientProcesses(t *testing.T) {
	testtier.Long(t, "it runs broken locks until they are found")
	found := make(map[loadgen.Kind]bool)
	for _, f := range flaws {
		found[f.kind] = true
	}
	for _, kind := range loadgen.Kinds() {
		check.True(t, kind.Sound() || found[kind], "%s is not in the table", kind)
	}
	for _, f := range flaws {
		for n := range testtier.Size(1, 1, 10) {
			t.Run(fmt.Sprint(f.name, n), func(t *testing.T) {
				besideOthers(t, f.kind)
				s, known := scenarios.Find(f.name)
				check.Require(t, known && s.Lock.Kind == f.kind, "%s is a scenario of %s", f.name, s.Lock.Kind)
				on := loadgen.Servers{Redis: servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)}
				if f.kind.Quorum() {
					on = five(t)
				}
				s = asProcesses(s)
				m := runUntilShown(t, on, s)
				for range 2 { // the flaw shows by chance
					if len(loadgen.Missed(s.Expect, m)) > 0 {
						m = runUntilShown(t, on, s)
					}
				}
				for _, missed := range loadgen.Missed(s.Expect, m) {
					t.Errorf("expected %s, got %s; faults %s, newest error %q", missed, missed.Measured(m), m.Faults, m.LastErr)
				}
				check.Equal(t, m.Library, "locktop "+string(f.kind), "the library")
				t.Logf("shown after %s and %d holds", m.Elapsed.Round(time.Millisecond), m.Acquired)
			})
		}
	}
}

// underFaults returns a scenario of a sound kind with every fault of a client process, and
// with a freeze and a crash between two commands.
func underFaults(kind loadgen.Kind) loadgen.Scenario {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	s := loadgen.Scenario{
		Lock: loadgen.Lock{Kind: kind, TTL: ms(600)}, Keys: loadgen.Keys{N: 1}, Clients: 6,
		Hold: loadgen.Exp(ms(5)), Think: loadgen.Exp(ms(5)), Duration: 6 * time.Second,
		Faults: []loadgen.Fault{
			{At: ms(300), Kind: loadgen.Crash, Clients: 1, For: ms(300)},
			{At: ms(800), Kind: loadgen.Freeze, Before: "EVAL", Clients: 2, For: ms(900)},
			{At: ms(1900), Kind: loadgen.Freeze, Clients: 1, For: ms(900)},
			{At: ms(2200), Kind: loadgen.Crash, Before: "EVAL", Clients: 1, For: ms(300)},
			{At: ms(2900), Kind: loadgen.Partition, Clients: 1, For: ms(900)},
			{At: ms(3200), Kind: loadgen.Slow, Clients: 2, Delay: ms(20), Jitter: ms(10), For: ms(1000)},
			{At: ms(4200), Kind: loadgen.DropReplies, Clients: 1, For: ms(900)},
		},
	}
	switch kind {
	case loadgen.RW:
		s.Reads = 0.5
		s.Duration += time.Second // the claim of a dead writer may keep all others out for 0.75 s
	case loadgen.Reentrant:
		s.Depth = 2
	case loadgen.Semaphore:
		s.Lock.Permits = 2
	case loadgen.All:
		s.Keys.N = 3
	case loadgen.Redlock:
		s.Faults = append(s.Faults, loadgen.Fault{At: ms(5200), Kind: loadgen.Partition, Node: 2, Clients: 4, For: ms(700)})
	}
	return s
}

func TestSoundKindsHaveNoOverlapInClientProcesses(t *testing.T) {
	testtier.Long(t, "it runs a load of every kind")
	for _, kind := range loadgen.Kinds() {
		for n := range testtier.Size(1, 1, 10) {
			if !kind.Sound() || kind == loadgen.Nested { // it deadlocks
				continue
			}
			t.Run(fmt.Sprint(kind, n), func(t *testing.T) {
				besideOthers(t, kind)
				on := loadgen.Servers{Redis: servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)}
				if kind.Quorum() {
					on = five(t)
				}
				m := runUntilShown(t, on, asProcesses(underFaults(kind)))
				m.Violations.Evidence = m.Violations.Evidence[:min(len(m.Violations.Evidence), 3)]
				check.True(t, m.Violations.Overlap.Count == 0 && m.Violations.ForeignUnlock.Count == 0 && m.Violations.Broken() == 0,
					"violations: %+v", m.Violations)
				check.AtLeast(t, m.Acquired, 10, "holds, newest error %q", m.LastErr)
				missed := 0
				for _, f := range m.Faults {
					check.True(t, f.Struck > 0 || f.Fault.Before != "", "%s", f) // a cut client may come too late to its moment
					if f.Struck == 0 {
						missed++
					}
				}
				check.AtMost(t, missed, 1, "faults that did not strike: %s", m.Faults)
				t.Logf("%d holds, %d faults missed", m.Acquired, missed)
			})
		}
	}
}
