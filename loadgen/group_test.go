package loadgen

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAGroupRunsWhatItsScenarioIsComparedWith checks that the other runs have
// keys of their own, exist as long as the scenario, and start and stop with the
// first run.
func TestAGroupRunsWhatItsScenarioIsComparedWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		compared := Scenario{
			Lock: Lock{Kind: Mutex, Wait: Wait{Poll: 5 * time.Millisecond}}, Versus: []Lock{{Kind: Mutex}, {Kind: Fair}},
			Keys: Keys{Pick: PickOne, N: 1}, Clients: 3, Hold: Const(2 * time.Millisecond), Think: Const(5 * time.Millisecond),
		}
		g, err := NewGroup(Servers{Redis: rdb}, compared)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := g.Close(); err != nil {
				t.Error(err)
			}
			checkNoKeys(t, rdb)
		}()
		if err := g.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		wantRunning := func(n int) {
			t.Helper()
			others := g.Beside()
			if len(others) != n {
				t.Fatalf("%d runs beside the first, want %d", len(others), n)
			}
			for _, c := range others {
				if !c.Metrics.Running || c.Metrics.Acquired == 0 {
					t.Errorf("%s: running %v, %d acquired", c.Lock, c.Metrics.Running, c.Metrics.Acquired)
				}
			}
		}
		wantRunning(2)
		if got := g.Beside()[1].Lock.Kind; got != Fair {
			t.Errorf("the last is compared with %s, want fair", got)
		}
		if g.Metrics().Violations.Overlap.Count != 0 {
			t.Error("the runs share their keys")
		}
		alone := g.Scenario()
		alone.Versus = nil
		if err := g.Apply(alone); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		wantRunning(0)
		if err := g.Apply(compared); err != nil {
			t.Fatal(err)
		}
		time.Sleep(200 * time.Millisecond)
		wantRunning(2)
		if err := g.Inject(Fault{Kind: Flush}); err != nil {
			t.Error(err)
		}
		if err := g.Stop(); err != nil {
			t.Fatal(err)
		}
		for _, c := range g.Beside() {
			if c.Metrics.Running {
				t.Errorf("%s goes on after Stop", c.Lock)
			}
		}
	})
}
