package loadgen

import (
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"
)

// TestAGroupRunsWhatItsScenarioIsComparedWith checks that the other runs have keys of their own,
// exist as long as the scenario, and start and stop with the first run.
func TestAGroupRunsWhatItsScenarioIsComparedWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := piped(t)
		compared := Scenario{
			Lock: Lock{Kind: Mutex, Wait: Wait{Poll: 20 * time.Millisecond}}, Versus: []Lock{{Kind: Mutex}, {Kind: Fair}},
			Keys: Keys{Pick: PickOne, N: 1}, Clients: 3, Hold: Const(8 * time.Millisecond), Think: Const(20 * time.Millisecond),
		}
		g := check.Must(NewGroup(Servers{Redis: rdb}, compared))(t)
		defer func() {
			check.ErrorIs(t, g.Close(), nil)
			checkNoKeys(t, rdb)
		}()
		check.NoError(t, g.Start())
		time.Sleep(200 * time.Millisecond)
		wantRunning := func(n int) {
			t.Helper()
			others := g.Beside()
			check.Require(t, len(others) == n, "%d runs beside the first, want %d", len(others), n)
			for _, c := range others {
				check.True(t, c.Metrics.Running && c.Metrics.Acquired != 0,
					"%s: running %v, %d acquired", c.Lock, c.Metrics.Running, c.Metrics.Acquired)
			}
		}
		wantRunning(2)
		check.Equal(t, g.Beside()[1].Lock.Kind, Fair, "the last is compared with")
		check.Equal(t, g.Metrics().Violations.Overlap.Count, 0, "the runs share their keys")
		alone := g.Scenario()
		alone.Versus = nil
		check.NoError(t, g.Apply(alone))
		time.Sleep(200 * time.Millisecond)
		wantRunning(0)
		check.NoError(t, g.Apply(compared))
		time.Sleep(200 * time.Millisecond)
		wantRunning(2)
		check.ErrorIs(t, g.Inject(Fault{Kind: Flush}), nil)
		check.NoError(t, g.Stop())
		for _, c := range g.Beside() {
			check.False(t, c.Metrics.Running, "%s goes on after Stop", c.Lock)
		}
	})
}
