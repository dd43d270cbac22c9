//go:build unix

package clients

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/loadgen"
)

func TestMain(m *testing.M) { os.Exit(servertest.Tests{M: m, Parallel: 8}.Run()) }

// clients returns the clients that can run here. With LOCKTOP_REQUIRE_PEERS=1, as in CI, a
// client that cannot run fails the test.
func clients(t *testing.T) []Client {
	t.Helper()
	all, missing, err := Build(t.Context(), ".", t.TempDir())
	check.NoError(t, err)
	check.Require(t, os.Getenv("LOCKTOP_REQUIRE_PEERS") != "1" || len(missing) == 0, "%v", strings.Join(missing, "\n"))
	return all
}

// load runs clients on servers of their own for s.Duration, and then for up to a minute until
// shown is true: on a busy machine they do less in a second. It fails the test unless all of them
// work, and show it.
func load(t *testing.T, c Client, nodes int, s loadgen.Scenario, shown func(loadgen.Metrics) bool) loadgen.Metrics {
	t.Helper()
	on := servertest.IndependentForTest(t, nodes)
	servers := loadgen.Servers{Power: on}
	for _, node := range on.Nodes() {
		rdb := redis.NewClient(&redis.Options{Addr: node.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		servers.Nodes = append(servers.Nodes, rdb)
	}
	servers.Redis = servers.Nodes[0]
	least := s.Duration
	s.Duration += time.Minute
	r := check.Must(loadgen.New(servers, s.WithClient(c.Command)))(t)
	check.NoError(t, r.Start())
	for m := r.Metrics(); m.Running && (m.Elapsed < least || !shown(m)); m = r.Metrics() {
		time.Sleep(10 * time.Millisecond)
	}
	err := r.Stop()
	check.ErrorIs(t, r.Close(), nil)
	m := r.Metrics()
	version := strings.TrimPrefix(m.Library, c.Name)
	check.True(t, version != m.Library && (version != "" || strings.HasPrefix(c.Name, "locktop ")), "the client says that it is %q", m.Library)
	// A Redlock takes an answer after a few ms for none, which happens on a busy machine.
	check.True(t, c.quorum || err == nil && m.Errors+m.Unconfirmed == 0, "%v; %d errors, %d unconfirmed: %s", err, m.Errors, m.Unconfirmed, m.LastErr)
	for i, rdb := range servers.Nodes {
		keys, err := rdb.Keys(t.Context(), "*").Result()
		check.True(t, err == nil && len(keys) == 0, "keys left on node %d: %q, %v", i+1, keys, err)
	}
	check.True(t, shown(m), "%+v, %+v", m.Counts, m.Violations)
	return m
}

func TestClients(t *testing.T) {
	t.Parallel()
	for _, c := range clients(t) {
		t.Run(strings.TrimSpace(c.Name), func(t *testing.T) {
			t.Parallel()
			t.Run("share a lock", func(t *testing.T) { c.testShare(t, 1) })
			if c.quorum {
				t.Run("share a lock on three nodes, of which one stops", func(t *testing.T) {
					c.testShare(t, 3, loadgen.Fault{At: 800 * time.Millisecond, Kind: loadgen.NodeDown, Node: 2, For: 700 * time.Millisecond})
				})
			}
			t.Run("keep a lock longer than its TTL, and lose it in a freeze", c.testLongHolds)
		})
	}
}

func (c Client) testShare(t *testing.T, nodes int, faults ...loadgen.Fault) {
	m := load(t, c, nodes, loadgen.Scenario{
		Lock: loadgen.Lock{TTL: 2 * time.Second}, Clients: 4, Keys: loadgen.Keys{N: 1}, Duration: 2 * time.Second,
		Hold: loadgen.Const(2 * time.Millisecond), Think: loadgen.Const(5 * time.Millisecond), Faults: faults,
	}, func(m loadgen.Metrics) bool { return m.Released >= 5 })
	// A Redlock may miss an answer, and a node that stops loses its part of a lock: then no majority may be left to release.
	ended := m.Acquired == m.Released || c.quorum && m.Acquired == m.Released+m.Lost+m.Expired+m.Unconfirmed
	check.True(t, ended, "%d acquired, %d released, %d lost, %d expired, %d unconfirmed, %d errors: %s",
		m.Acquired, m.Released, m.Lost, m.Expired, m.Unconfirmed, m.Errors, m.LastErr)
	check.True(t, m.Violations.Overlap.Count <= 0 && m.Violations.ForeignUnlock.Count <= 0,
		"overlaps %+v, foreign unlocks %d", m.Violations.Overlap, m.Violations.ForeignUnlock.Count)
}

func (c Client) testLongHolds(t *testing.T) {
	m := load(t, c, 1, loadgen.Scenario{
		Lock: loadgen.Lock{TTL: time.Second}, Clients: 2, Keys: loadgen.Keys{N: 1}, Duration: 8 * time.Second,
		Hold: loadgen.Const(1500 * time.Millisecond), Think: loadgen.Const(time.Millisecond), Seed: 1,
		Faults: []loadgen.Fault{{At: 4500 * time.Millisecond, Kind: loadgen.Freeze, Clients: 2, For: 2500 * time.Millisecond}},
	}, func(m loadgen.Metrics) bool {
		lost, v := m.Lost+m.Expired, m.Violations
		switch {
		case c.deletesAny:
			return lost >= 3 && v.Overlap.Count > 0 && v.ForeignUnlock.Count > 0
		case c.fixed:
			return lost >= 3
		case c.sinceAsking: // a client that waited longer than the TTL gets an expired lock
			return lost >= 2 && m.Released >= 1
		}
		return m.Released >= 2 && (lost >= 1 || c.mayNotTell)
	})
	v := m.Violations
	check.True(t, c.deletesAny || v.Overlap.Count <= 0 && (v.ForeignUnlock.Count <= 0 || c.mayNotTell),
		"overlaps %+v, foreign unlocks %d", v.Overlap, v.ForeignUnlock.Count)
}

func TestTheDocumentationNamesTheClient(t *testing.T) {
	_, err := os.Stat("python/set_nx.py")
	check.NoError(t, err)
	check.Contains(t, string(check.Must(os.ReadFile("../../docs/load.md"))(t)), "`lab/clients/python/set_nx.py`", "docs/load.md does not name the client")
}
