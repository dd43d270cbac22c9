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

// client is a client with the beginning of the name that it must say.
type client struct{ command, name string }

// clients returns the clients that can run here.
func clients(t *testing.T) []client {
	t.Helper()
	var all []client
	bin := t.TempDir()
	for _, name := range []string{"redsync", "redislock", "rueidislock"} {
		if out, err := exec.Command("go", "build", "-o", bin, "./"+name).CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", name, err, out)
		}
		all = append(all, client{filepath.Join(bin, name), name + " "})
	}
	// The interpreter that has Debian's package.
	if !missing(t, "/usr/bin/python3", "-c", "import redis") {
		all = append(all,
			client{"/usr/bin/python3 python/set_nx.py", "SET NX with redis-py "},
			client{"/usr/bin/python3 python/redis_py.py", "redis-py "},
		)
	}
	// node_modules is that of ../compat/node.
	if !missing(t, "node", "--input-type=module", "--eval", "import 'ioredis'") {
		all = append(all,
			client{"node node/redlock.js", "redlock "},
			client{"node node/redis-semaphore.js", "redis-semaphore "},
		)
	}
	return all
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

// load runs clients on a server of their own, and fails the test unless all of them work.
func load(t *testing.T, c client, s loadgen.Scenario) loadgen.Metrics {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(t).Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
	r, err := loadgen.New(loadgen.Servers{Redis: rdb}, s.WithClient(c.command))
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
	if version := strings.TrimPrefix(m.Library, c.name); version == m.Library || version == "" {
		t.Errorf("the client says that it is %q", m.Library)
	}
	if m.Errors > 0 || m.Unconfirmed > 0 {
		t.Errorf("%d errors, %d unconfirmed: %s", m.Errors, m.Unconfirmed, m.LastErr)
	}
	if m.Violations.Overlap.Count > 0 || m.Violations.ForeignUnlocks > 0 {
		t.Errorf("violations: %+v", m.Violations)
	}
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) > 0 {
		t.Errorf("keys left: %q, %v", keys, err)
	}
	return m
}

func TestClientsShareALock(t *testing.T) {
	for _, c := range clients(t) {
		t.Run(strings.TrimSpace(c.name), func(t *testing.T) {
			m := load(t, c, loadgen.Scenario{
				Lock: loadgen.Lock{TTL: 2 * time.Second}, Clients: 4, Keys: loadgen.Keys{N: 1}, Duration: 2 * time.Second,
				Hold: loadgen.Const(2 * time.Millisecond), Think: loadgen.Const(5 * time.Millisecond),
			})
			if m.Acquired < 5 || m.Released != m.Acquired {
				t.Errorf("%d acquired, %d released", m.Acquired, m.Released)
			}
		})
	}
}

func TestClientsKeepALockLongerThanItsTTLAndLoseItInAFreeze(t *testing.T) {
	for _, c := range clients(t) {
		t.Run(strings.TrimSpace(c.name), func(t *testing.T) {
			s := loadgen.Scenario{
				Lock: loadgen.Lock{TTL: time.Second}, Clients: 2, Keys: loadgen.Keys{N: 1}, Duration: 8 * time.Second,
				Hold: loadgen.Const(1500 * time.Millisecond), Think: loadgen.Const(time.Millisecond), Seed: 1,
				Faults: []loadgen.Fault{{At: 4500 * time.Millisecond, Kind: loadgen.Freeze, Clients: 2, For: 2500 * time.Millisecond}},
			}
			m := load(t, c, s)
			lost := m.Lost + m.Expired
			if c.name == "redlock " { // its leases begin with the wait: one that waited longer than the TTL has an expired lock
				if lost < 2 || m.Released < 1 {
					t.Errorf("%d acquired, %d released, %d lost or expired", m.Acquired, m.Released, lost)
				}
				return
			}
			if strings.HasPrefix(c.name, "SET NX") { // it cannot extend
				if lost < 3 {
					t.Errorf("%d lost of %d", lost, m.Acquired)
				}
				return
			}
			// An Unlock of rueidislock that comes right after the freeze does not tell of the loss.
			if m.Released < 2 || lost < 1 && !strings.HasPrefix(c.name, "rueidislock") || lost > 2 {
				t.Errorf("%d acquired, %d released, %d lost or expired", m.Acquired, m.Released, lost)
			}
		})
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
