//go:build unix

// Package clients tests the clients of this directory: locktop load --exec runs each on a
// real server.
package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen"
	"locktop/server"
)

// client is a client, with what it cannot do.
type client struct {
	command string
	name    string // the beginning of the name that it must say

	quorum      bool // it locks on a majority of several servers
	fixed       bool // it can neither renew nor extend
	deletesAny  bool // its release deletes any lock
	mayNotTell  bool // an Unlock right after a freeze may not tell of the loss
	sinceAsking bool // its TTL begins with the wait, not with the acquire
}

// clients returns the clients that can run here.
func clients(t *testing.T) []client {
	t.Helper()
	bin := t.TempDir()
	build(t, ".", bin, "./redsync", "./redislock", "./rueidislock", "./redisson-form")
	build(t, "../..", bin, "locktop")
	here := func(name string) string { return filepath.Join(bin, name) }
	all := []client{
		{command: here("redsync"), name: "redsync ", quorum: true},
		{command: here("redislock"), name: "redislock "},
		{command: here("rueidislock"), name: "rueidislock ", mayNotTell: true},
		{command: here("redisson-form"), name: "redisson-form "},
		// The protocol itself, with locks whose promises have tests of their own.
		{command: here("locktop") + " load --as-client mutex", name: "locktop mutex"},
		{command: here("locktop") + " load --as-client fair", name: "locktop fair"},
		{command: here("locktop") + " load --as-client redlock", name: "locktop redlock", quorum: true},
	}
	if !missing(t, "redis-cli", "--version") {
		all = append(all, client{command: "sh shell/redis-cli.sh", name: "redis-cli ", fixed: true, deletesAny: true})
	}
	// The interpreter that has Debian's package.
	if !missing(t, "/usr/bin/python3", "-c", "import redis") {
		all = append(all,
			client{command: "/usr/bin/python3 python/set_nx.py", name: "SET NX with redis-py ", fixed: true},
			client{command: "/usr/bin/python3 python/redis_py.py", name: "redis-py "},
			client{command: "/usr/bin/python3 python/python_redis_lock_form.py", name: "python-redis-lock-form "},
		)
	}
	// node_modules is that of ../compat/node.
	if !missing(t, "node", "--input-type=module", "--eval", "import 'ioredis'") {
		all = append(all,
			client{command: "node node/set_nx.js", name: "SET NX with ioredis ", fixed: true},
			client{command: "node node/redlock.js", name: "redlock ", quorum: true, sinceAsking: true},
			client{command: "node node/redis-semaphore.js", name: "redis-semaphore "},
		)
	}
	return all
}

// build builds commands of the module of a directory into the directory bin.
func build(t *testing.T, module, bin string, packages ...string) {
	t.Helper()
	if out, err := exec.Command("go", append([]string{"build", "-C", module, "-o", bin}, packages...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// missing reports whether a command fails. With LOCKTOP_REQUIRE_PEERS=1, as in CI, that
// fails the test.
func missing(t *testing.T, command ...string) bool {
	t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = "node"
	err := cmd.Run()
	if err != nil && os.Getenv("LOCKTOP_REQUIRE_PEERS") == "1" {
		t.Fatalf("%s: %v", strings.Join(command, " "), err)
	}
	return err != nil
}

// load runs clients on servers of their own, and fails the test unless all of them work.
func load(t *testing.T, c client, nodes int, s loadgen.Scenario) loadgen.Metrics {
	t.Helper()
	on := server.IndependentForTest(t, nodes)
	servers := loadgen.Servers{Power: on}
	for _, node := range on.Nodes() {
		rdb := redis.NewClient(&redis.Options{Addr: node.Addr()})
		t.Cleanup(func() { _ = rdb.Close() })
		servers.Nodes = append(servers.Nodes, rdb)
	}
	servers.Redis = servers.Nodes[0]
	r, err := loadgen.New(servers, s.WithClient(c.command))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	<-r.Done()
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	m := r.Metrics()
	if version := strings.TrimPrefix(m.Library, c.name); version == m.Library || version == "" && !strings.HasPrefix(c.name, "locktop ") {
		t.Errorf("the client says that it is %q", m.Library)
	}
	if m.Errors > 0 || m.Unconfirmed > 0 {
		t.Errorf("%d errors, %d unconfirmed: %s", m.Errors, m.Unconfirmed, m.LastErr)
	}
	for i, rdb := range servers.Nodes {
		keys, err := rdb.Keys(t.Context(), "*").Result()
		if err != nil || len(keys) > 0 {
			t.Errorf("keys left on node %d: %q, %v", i+1, keys, err)
		}
	}
	return m
}

func TestClients(t *testing.T) {
	for _, c := range clients(t) {
		t.Run(strings.TrimSpace(c.name), func(t *testing.T) {
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

func (c client) testShare(t *testing.T, nodes int, faults ...loadgen.Fault) {
	m := load(t, c, nodes, loadgen.Scenario{
		Lock: loadgen.Lock{TTL: 2 * time.Second}, Clients: 4, Keys: loadgen.Keys{N: 1}, Duration: 2 * time.Second,
		Hold: loadgen.Const(2 * time.Millisecond), Think: loadgen.Const(5 * time.Millisecond), Faults: faults,
	})
	if m.Acquired < 5 || m.Released != m.Acquired {
		t.Errorf("%d acquired, %d released", m.Acquired, m.Released)
	}
	if m.Violations.Overlap.Count > 0 || m.Violations.ForeignUnlocks > 0 {
		t.Errorf("overlaps %+v, foreign unlocks %d", m.Violations.Overlap, m.Violations.ForeignUnlocks)
	}
}

func (c client) testLongHolds(t *testing.T) {
	m := load(t, c, 1, loadgen.Scenario{
		Lock: loadgen.Lock{TTL: time.Second}, Clients: 2, Keys: loadgen.Keys{N: 1}, Duration: 8 * time.Second,
		Hold: loadgen.Const(1500 * time.Millisecond), Think: loadgen.Const(time.Millisecond), Seed: 1,
		Faults: []loadgen.Fault{{At: 4500 * time.Millisecond, Kind: loadgen.Freeze, Clients: 2, For: 2500 * time.Millisecond}},
	})
	lost := m.Lost + m.Expired
	switch v := m.Violations; {
	case c.deletesAny != (v.Overlap.Count > 0) || c.deletesAny != (v.ForeignUnlocks > 0):
		t.Errorf("overlaps %+v, foreign unlocks %d", v.Overlap, v.ForeignUnlocks)
	case c.fixed:
		if lost < 3 {
			t.Errorf("%d lost or expired", lost)
		}
	case c.sinceAsking: // a client that waited longer than the TTL gets an expired lock
		if lost < 2 || m.Released < 1 {
			t.Errorf("%d released, %d lost or expired", m.Released, lost)
		}
	case m.Released < 2 || lost < 1 && !c.mayNotTell || lost > 2:
		t.Errorf("%d released, %d lost or expired", m.Released, lost)
	}
}

func TestTheDocumentationHasTheClient(t *testing.T) {
	code, err := os.ReadFile("python/set_nx.py")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/load.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "```python\n"+string(code)+"```\n") {
		t.Error("docs/load.md does not have python/set_nx.py as it is")
	}
}
