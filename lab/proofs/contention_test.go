package proofs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lab/internal/labtest"
)

// blocked is a client that waits for a holder of a lock.
type blocked struct{ waiter, holder, key string }

// loadEvent is an event of a load that the test needs.
type loadEvent struct {
	At    time.Time
	Event string
	Key   string
	Owner string
}

// truthOf returns how long each client of a load waited for each holder, within a span. A hold is
// to blame up to the next one.
func truthOf(events []loadEvent, from, until time.Time) map[blocked]time.Duration {
	truth := make(map[blocked]time.Duration)
	holder := make(map[string]string)
	waits := make(map[string]map[string]time.Time) // since when, by key and client
	settle := func(key string, at time.Time) {
		for client, since := range waits[key] {
			begin, end := since, at
			if begin.Before(from) {
				begin = from
			}
			if end.After(until) {
				end = until
			}
			if end.After(begin) && holder[key] != "" && holder[key] != client { // its own release has left the lock free
				truth[blocked{client, holder[key], key}] += end.Sub(begin)
			}
			waits[key][client] = at
		}
	}
	for _, m := range events {
		switch m.Event {
		case "arrive":
			if waits[m.Key] == nil {
				waits[m.Key] = make(map[string]time.Time)
			}
			waits[m.Key][m.Owner] = m.At
		case "acquire":
			settle(m.Key, m.At)
			delete(waits[m.Key], m.Owner)
			holder[m.Key] = m.Owner
		case "timeout":
			settle(m.Key, m.At)
			delete(waits[m.Key], m.Owner)
		}
	}
	for key := range waits {
		settle(key, until)
	}
	return truth
}

// documentOf runs contention with --json, and returns its document and its span of MONITOR.
func documentOf(t *testing.T, args ...string) (d render.ContentionDocument, from, until time.Time) {
	t.Helper()
	d = labtest.Decoded[render.ContentionDocument](t, labtest.Printed(t, append([]string{"contention", "--json", "--classes", "100000"}, args...)...))
	check.Require(t, d.Monitored != nil, "MONITOR did not run: %+v", d)
	for text, at := range map[string]*time.Time{d.Monitored.From: &from, d.Monitored.Until: &until} {
		var err error
		*at, err = time.Parse(time.RFC3339, text)
		check.NoError(t, err)
	}
	return d, from, until
}

// compareWaits compares a document with the truth of a load: all waiting, and that of each
// waiter, holder and key. At the begin of the span each client may miss a pause between two
// attempts. Each waiter, holder and key counts for the proof, where the span is long (of thousands, a fifth may be wrong); else half of
// all waiting must be seen, and no more than half too much. name returns the client of the load behind a name.
func compareWaits(t *testing.T, d render.ContentionDocument, truth map[blocked]time.Duration, pause time.Duration, name func(string) string) {
	t.Helper()
	seen := make(map[blocked]time.Duration)
	for _, b := range d.BlockedBy {
		for _, w := range b.Waiters {
			seen[blocked{name(w.Label), name(b.Holder.Label), b.Key}] += time.Duration(*w.WaitedMS) * time.Millisecond
		}
	}
	var all, sum, wrong time.Duration
	bad := 0
	clients := make(map[string]bool)
	keys := slices.Collect(maps.Keys(truth))
	for b := range seen {
		if _, known := truth[b]; !known {
			keys = append(keys, b)
		}
	}
	slices.SortFunc(keys, func(a, b blocked) int {
		return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.holder, b.holder), strings.Compare(a.waiter, b.waiter))
	})
	for _, b := range keys {
		clients[b.waiter] = true
		all, sum = all+truth[b], sum+seen[b]
		wrong += (truth[b] - seen[b]).Abs()
		if (truth[b] - seen[b]).Abs() > truth[b]/10+2*pause {
			bad++
			t.Logf("%+v: %v are seen, want %v", b, seen[b], truth[b])
		}
	}
	t.Logf("%v of %v are seen, %v are wrong, in %d of waiter, holder and key", sum, all, wrong, len(keys))
	tolerance := all/10 + time.Duration(len(clients))*pause
	if !testtier.Proving() { // a busy machine reads some holds late, and the span is short
		bad, tolerance = 0, all/2
	}
	check.True(t, all != 0 && (sum-all).Abs() <= tolerance && bad <= len(keys)/100*20,
		"%v of %v are seen, %d of %d of waiter, holder and key are wrong", sum, all, bad, len(keys))
}

// loadUntil runs a load in the background, and returns a function that ends it and returns its events.
func loadUntil(t *testing.T, addr string, args ...string) (end func() []loadEvent) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "events")
	load := labtest.Start(t, append([]string{"load", "-u", "redis://" + addr, "--duration", "0", "--events", file, "--threshold", "outage.longest < 1m"}, args...)...)
	return func() []loadEvent {
		load.Signal(os.Interrupt)
		load.Exits(exitInterrupted)
		all := labtest.DecodedLines[loadEvent](t, string(check.Must(os.ReadFile(file))(t)))
		slices.SortStableFunc(all, func(a, b loadEvent) int { return a.At.Compare(b.At) })
		return all
	}
}

// On a cluster, MONITOR runs on each master.
func TestContentionSeesTheWaitsOfALoadOnACluster(t *testing.T) {
	testtier.Long(t, "it starts several servers")
	t.Parallel()
	rig := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	addr := rig.Addrs()[0]
	const pause = 20 * time.Millisecond
	end := loadUntil(t, addr, "--cluster", "--prefix", "job:", "--clients", "12", "--keys", "6", "--wait", fmt.Sprintf("{poll: %v, jitter: 0.2}", pause), "--hold", "exp:50ms", "--think", "50ms")
	d, from, until := documentOf(t, "-u", "redis://"+addr, "--cluster", "--monitor", "--for", (time.Duration(testtier.Size(2, 4, 20)) * time.Second).String())
	truth := truthOf(end(), from, until)
	compareWaits(t, d, truth, pause, func(name string) string { return name })
	rdb, masters := labtest.Client(t, addr, server.ClientOptions{}), make(map[string]bool)
	for b := range truth {
		slot := int(rdb.ClusterKeySlot(t.Context(), b.key).Val())
		owner := check.Must(rig.Owner(t.Context(), slot))(t)
		masters[owner.Addr()] = true
	}
	check.True(t, len(masters) == len(rig.Nodes()), "there are waits on the masters %v only", masters)
}

// The waits of real libraries are seen within 10 %, for each waiter, holder and key. Libraries that
// cannot run here are skipped.
func TestContentionSeesTheWaitsOfLibraries(t *testing.T) {
	testtier.Proof(t, "it takes minutes, and programs of other libraries")
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin+"/", "../clients/redsync", "../clients/redislock").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	peers, err := filepath.Abs("../clients")
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
					t.Skipf("a library is missing: install python3-redis and Node.js, and run npm ci --prefix lab/compat/node; %v: %s", err, out)
				}
			}
			addr := servertest.RedisForTest(t).Addr()
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
				addr := servertest.RedisForTest(t).Addr()
				load := []string{"--clients", fmt.Sprint(waiters + 1), "--keys", "1", "--wait", fmt.Sprintf("{poll: %v, jitter: 0.2}", poll)}
				end := loadUntil(t, addr, append(load, "--hold", "exp:15ms", "--think", "1ms")...)
				d, from, until := documentOf(t, "-u", "redis://"+addr, "--monitor", "--force", "--for", "10s")
				compareWaits(t, d, truthOf(end(), from, until), poll, func(name string) string { return name })

				end = loadUntil(t, addr, append(load, "--hold", "20s", "--ttl", "1m", "--renew", "off")...)
				labtest.Within(t, labtest.LongestWait, func() bool { return strings.Contains(labtest.Locktop(t, "list", "-u", "redis://"+addr).Out, "load:") })
				got := labtest.Locktop(t, "list", "-u", "redis://"+addr, "--for", "3s", "--json")
				check.True(t, strings.Contains(got.Out, `"asked_ago_ms"`), "the lock does not count as asked for: %s%s", got.Out, got.Errors)
				end()
			})
		}
	}
}

// owners returns a function that returns the client of a load for a name in a document: of all assignments, the one
// that fits the truth best. An assignment that fits by chance would have to fit each pair of clients.
func owners(t *testing.T, d render.ContentionDocument, truth map[blocked]time.Duration) func(string) string {
	t.Helper()
	names, clients := make(map[string]bool), make(map[string]bool)
	for _, b := range d.BlockedBy {
		names[b.Holder.Label] = true
		for _, w := range b.Waiters {
			names[w.Label] = true
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
				wrong += (truth[blocked{of(w.Label), of(b.Holder.Label), b.Key}] - time.Duration(*w.WaitedMS)*time.Millisecond).Abs()
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
