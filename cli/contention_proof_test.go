package cli

import (
	"fmt"
	"maps"
	"math"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// The waits of real libraries are seen within 10 %, for each waiter, holder and key. Libraries that
// cannot run here are skipped.
func TestContentionSeesTheWaitsOfLibraries(t *testing.T) {
	testtier.Proof(t, "it takes minutes, and programs of other libraries")
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-C", "../peers", "-o", bin+"/", "./clients/redsync", "./clients/redislock").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	peers, err := filepath.Abs("../peers/clients")
	check.NoError(t, err)
	for name, library := range map[string]struct {
		needs   []string // a command that fails if it cannot run
		command string
		pause   time.Duration // the longest between two attempts
	}{
		"redsync":   {nil, filepath.Join(bin, "redsync"), 250 * time.Millisecond},
		"redislock": {nil, filepath.Join(bin, "redislock"), 10 * time.Millisecond},
		"redis-py":  {[]string{"/usr/bin/python3", "-c", "import redis"}, "/usr/bin/python3 " + peers + "/python/redis_py.py", 100 * time.Millisecond},
		"SET NX":    {[]string{"/usr/bin/python3", "-c", "import redis"}, "/usr/bin/python3 " + peers + "/python/set_nx.py", 10 * time.Millisecond},
		"redlock":   {[]string{"node", "--input-type=module", "--eval", "import '" + peers + "/node/node_modules/ioredis/built/index.js'"}, "node " + peers + "/node/redlock.js", 400 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			if len(library.needs) > 0 {
				if out, err := exec.Command(library.needs[0], library.needs[1:]...).CombinedOutput(); err != nil {
					t.Skipf("%v: %s", err, out)
				}
			}
			addr := server.ForTest(t).Addr()
			end := loadUntil(t, addr, "--clients", "4", "--keys", "1", "--renew", "off", "--hold", "exp:60ms", "--think", "exp:40ms", "--exec", library.command)
			d, from, until := documentOf(t, "-u", "redis://"+addr, "--monitor", "--for", "20s")
			truth := truthOf(end(), from, until)
			compareWaits(t, d, truth, library.pause, owners(t, d, truth))
		})
	}
}

// Whatever the number of waiters and their poll, the waits of a load are seen within 10 %, and its
// lock counts as asked for: the first look is 1 to 2 s after the first read.
func TestContentionSeesTheWaitsOfAnyPoll(t *testing.T) {
	testtier.Proof(t, "it takes minutes")
	for _, poll := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond} {
		for _, waiters := range []int{2, 8, 64} {
			t.Run(fmt.Sprintf("%d every %v", waiters, poll), func(t *testing.T) {
				addr := server.ForTest(t).Addr()
				load := []string{"--clients", fmt.Sprint(waiters + 1), "--keys", "1", "--wait", fmt.Sprintf("{poll: %v, jitter: 0.2}", poll)}
				end := loadUntil(t, addr, append(load, "--hold", "exp:15ms", "--think", "1ms")...)
				d, from, until := documentOf(t, "-u", "redis://"+addr, "--monitor", "--force", "--for", "10s")
				compareWaits(t, d, truthOf(end(), from, until), poll, func(name string) string { return name })

				end = loadUntil(t, addr, append(load, "--hold", "20s", "--ttl", "1m", "--renew", "off")...)
				eventually(t, func() bool { return strings.Contains(locktop(t, "list", "-u", "redis://"+addr).out, "load:") })
				got := locktop(t, "list", "-u", "redis://"+addr, "--for", "3s", "--json")
				check.True(t, strings.Contains(got.out, `"asked_ago"`), "the lock does not count as asked for: %s%s", got.out, got.errors)
				end()
			})
		}
	}
}

// owners returns a function that returns the client of a load for a name in a document: of all
// assignments, the one that fits the truth best. An assignment that fits by chance would have to
// fit each pair of clients.
func owners(t *testing.T, d render.ContentionDocument, truth map[blocked]time.Duration) func(string) string {
	t.Helper()
	names, clients := make(map[string]bool), make(map[string]bool)
	for _, b := range d.BlockedBy {
		names[b.Holder] = true
		for _, w := range b.Waiters {
			names[w.Waiter] = true
		}
	}
	for b := range truth {
		clients[b.waiter], clients[b.holder] = true, true
	}
	from, to := slices.Sorted(maps.Keys(names)), slices.Sorted(maps.Keys(clients))
	if len(from) != len(to) {
		t.Errorf("there are the names %q for the clients %q", from, to)
		return strings.Clone
	}
	var best []string
	least := time.Duration(math.MaxInt64)
	permutations(to, func(order []string) {
		of := func(name string) string { return order[slices.Index(from, name)] }
		wrong := time.Duration(0)
		for _, b := range d.BlockedBy {
			for _, w := range b.Waiters {
				wrong += (truth[blocked{of(w.Waiter), of(b.Holder), b.Key}] - time.Duration(w.WaitedMS)*time.Millisecond).Abs()
			}
		}
		if wrong < least {
			least, best = wrong, slices.Clone(order)
		}
	})
	return func(name string) string { return best[slices.Index(from, name)] }
}

// permutations calls f with each order of all.
func permutations(all []string, f func([]string)) {
	var swap func(n int)
	swap = func(n int) {
		if n == len(all) {
			f(all)
			return
		}
		for i := n; i < len(all); i++ {
			all[n], all[i] = all[i], all[n]
			swap(n + 1)
			all[n], all[i] = all[i], all[n]
		}
	}
	swap(0)
}
