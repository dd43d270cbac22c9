package cli

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// freeIfMine releases a lock as most clients do.
var freeIfMine = redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)

// keysIn returns n keys in the slots below slots, one for each slot in turn.
func keysIn(t *testing.T, rdb *redis.ClusterClient, slots, n int) []string {
	t.Helper()
	var keys []string
	for from := 0; len(keys) < n; from += 10_000 {
		p := rdb.Pipeline()
		var all []*redis.IntCmd
		for i := range 10_000 {
			all = append(all, p.ClusterKeySlot(t.Context(), fmt.Sprint("lock:job:", from+i)))
		}
		check.Must(p.Exec(t.Context()))(t)
		for i, slot := range all {
			if slot.Val() < int64(slots) && len(keys) < n {
				keys = append(keys, fmt.Sprint("lock:job:", from+i))
			}
		}
	}
	return keys
}

// warmUp acquires and releases locks until the watch has learnt the prefix of
// the locks on every node.
func warmUp(t *testing.T, c troubled, w *running) {
	t.Helper()
	const locks = 30 // on all nodes
	for round := range 100 {
		key := func(i int) string { return fmt.Sprintf("lock:%c%d:%d", 'a'+i%26, round, i) }
		for i := range locks {
			c.lock(t, key(i))
		}
		time.Sleep(50 * time.Millisecond) // the hold
		for i := range locks {
			check.NoError(t, c.rdb.Del(t.Context(), key(i)).Err())
		}
		c.lock(t, "lock:after")
		time.Sleep(50 * time.Millisecond)
		said, all := w.out.String(), true
		for i := range locks {
			all = all && strings.Contains(said, `"acquired","key":"`+key(i)) && strings.Contains(said, `"released","key":"`+key(i))
		}
		if all {
			return
		}
	}
	t.Fatal("the watch does not see all locks")
}

// held is a hold as its client saw it.
type held struct {
	key, token string
}

// Slots move from one master to another while clients acquire and release locks
// in them. Each hold is reported exactly once, with its start and its end, and
// with the right reason for its end.
func TestHoldsAreSeenWhileSlotsAreMoved(t *testing.T) {
	testtier.Long(t, "it compares what is seen with what is held while slots move")
	t.Parallel()
	slots, holds := testtier.Size(100, 100, 1500), testtier.Size(100, 100, 1000)
	shortest := testtier.Size(0, 400, 50) // ms: a busy machine sees a shorter hold too late
	c := aClusterFor(t, server.ClusterOptions{}, 0, 0)
	keys := keysIn(t, c.rdb, slots, 40)
	for i := range 40 {
		keys = append(keys, fmt.Sprint("lock:other:", i))
	}
	w := startWatch(t, append([]string{"--json"}, c.flags...)...)
	warmUp(t, c, w)

	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		for slot := range slots {
			if err := moveSlot(ctx, c.Cluster, slot, c.Nodes()[2]); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	var mu sync.Mutex
	var done []held
	var failed atomic.Int64
	var clients sync.WaitGroup
	for n := range 8 {
		clients.Go(func() {
			for i := n; ctx.Err() == nil; i += 8 {
				mu.Lock()
				enough := len(done) >= holds
				mu.Unlock()
				select {
				case <-moved:
					if enough {
						return
					}
				default:
				}
				h := held{keys[i%len(keys)], uuid.NewString()}
				ok, err := c.rdb.SetNX(ctx, h.key, h.token, 30*time.Second).Result()
				if err != nil || !ok {
					failed.Add(1)
					continue
				}
				time.Sleep(time.Duration(shortest+rand.IntN(200)) * time.Millisecond)
				if n, err := freeIfMine.Run(ctx, c.rdb, []string{h.key}, h.token).Int(); err != nil || n != 1 {
					t.Errorf("release %s: %d, %v", h.key, n, err)
					continue
				}
				mu.Lock()
				done = append(done, h)
				mu.Unlock()
			}
		})
	}
	clients.Wait()
	c.lock(t, "lock:known:last")
	w.out.sees(t, `"key":"lock:known:last"`)
	told := func(h held) bool { return strings.Count(w.out.String(), h.token) > 1 }                          // its begin and its end
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) { // the last ends may come from another node
		if newest := done[max(0, len(done)-8):]; !slices.ContainsFunc(newest, func(h held) bool { return !told(h) }) {
			break
		}
	}
	w.stop()
	w.exits(t, exitInterrupted)

	check.False(t, strings.Contains(w.errors.String(), "lost"), "it says %s", w.errors)
	begun, ended, kinds := make(map[string]int), make(map[string]int), make(map[string]int)
	for line := range strings.Lines(w.out.String()) {
		e := decoded[render.Event](t, line)
		kinds[string(e.Event)]++
		switch {
		case e.Event == "acquired" || e.Event == "appeared":
			begun[e.Holder]++
		case e.Event.Ends():
			ended[e.Holder]++
		}
	}
	missed, twice := 0, 0
	for _, h := range done {
		if begun[h.token] == 0 || ended[h.token] == 0 {
			missed++
			if missed < 10 {
				t.Logf("of %s by %s: begun %d, ended %d", h.key, h.token, begun[h.token], ended[h.token])
			}
		}
		if begun[h.token] > 1 || ended[h.token] > 1 {
			twice++
			if twice < 10 {
				t.Logf("of %s by %s: begun %d, ended %d", h.key, h.token, begun[h.token], ended[h.token])
			}
		}
	}
	t.Logf("%d holds while %d slots were moved: %d missed, %d told twice; events %v; %d attempts failed; %s", len(done), slots, missed, twice, kinds, failed.Load(), w.errors)
	check.True(t, missed*100 <= len(done) && twice <= 0, "of %d holds %d were missed and %d told twice", len(done), missed, twice)
	for _, wrong := range []string{"gone", "expired", "stolen", "evicted", "flushed"} {
		check.True(t, kinds[wrong] <= 0, "%d were said to be %s", kinds[wrong], wrong)
	}
}

// While three slots move, each of two masters has some of their locks. Every command that reads locks runs on the
// cluster, again and again: no server crashes, each lock is shown once, on the node that has it, and is released there.
func TestEverythingLooksAtAClusterWhoseSlotsAreHalfMoved(t *testing.T) {
	testtier.Long(t, "every command reads a cluster")
	t.Parallel()
	rounds := testtier.Size(2, 2, 100)
	const each, others = 10, 30
	c := aClusterFor(t, server.ClusterOptions{}, 0, others)
	var moving []string
	for n, slot := range []int{100, 6000, 12000} {
		tag := tagOf(t, c.rdb, int64(slot))
		for i := range each {
			key := fmt.Sprintf("lock:{%s}:%d", tag, i)
			c.lock(t, key)
			moving = append(moving, key)
		}
		c.HalfMigrationForTest(t, slot, c.Nodes()[(n+1)%3], each/2)
	}
	want := 3*each + others
	doc, got := c.list(t)
	check.True(t, len(doc.Locks) == want && doc.Server.Mode == "cluster" && len(strings.Fields(nodesUp(doc))) == 3 && got.errors == "",
		"%d locks in a %s, up: %s; %s", len(doc.Locks), doc.Server.Mode, nodesUp(doc), got.errors)
	for i := range others {
		lockNamed(t, doc, fmt.Sprint("lock:", i))
	}
	at := make(map[string]int)
	for i, key := range moving {
		node := lockNamed(t, doc, key).Node
		at[fmt.Sprint(i/each, " on ", node)]++
		seen := documentIn[jsonInspection](t, c.run(t, "inspect", "--json", key))
		check.True(t, len(seen.Holders) == 1 && seen.Holders[0].ID == token && seen.Node == node && len(seen.Raw) == 1, "inspect shows %+v, list had it on %s", seen, node)
	}
	for n := range 3 {
		old, next := at[fmt.Sprint(n, " on ", c.Addrs()[n])], at[fmt.Sprint(n, " on ", c.Addrs()[(n+1)%3])]
		check.True(t, old == each/2 && next == each/2, "of slot %d %d locks are on the old master and %d on the new one", n, old, next)
	}
	var pids []int
	for _, node := range c.Nodes() {
		pids = append(pids, node.PID())
	}
	for round := range rounds {
		doc, got := c.list(t)
		check.True(t, len(doc.Locks) == want && doc.Complete && got.code == exitFine,
			"list: %d locks, complete %v, exit code %d, %s", len(doc.Locks), doc.Complete, got.code, got.errors)
		for _, key := range []string{moving[round%len(moving)], moving[(round*7+3)%len(moving)], "lock:0"} {
			c.run(t, "inspect", key).prints(t, exitFine, token)
		}
		d := documentIn[jsonDiagnosis](t, c.run(t, "doctor", "--json", "--for", "100ms"))
		check.True(t, d.Locks == want && d.Complete, "doctor: %d locks, complete %v", d.Locks, d.Complete)
		w := startWatch(t, append([]string{"--json"}, c.flags...)...)
		for i, key := range moving {
			w.out.sees(t, fmt.Sprintf(`"appeared","key":"%s"`, key))
			if i == 0 {
				w.out.sees(t, `"appeared","key":"lock:0"`)
			}
		}
		w.stop()
		w.exits(t, exitInterrupted)
		if said := w.out.String(); strings.Count(said, `"appeared"`) > want || strings.Contains(said, "released") || strings.Contains(said, "gone") {
			t.Errorf("watch: %s", said)
		}
		// A lock with companions has to wait: a node does not create a second
		// key in a slot that is moving to it (TRYAGAIN).
		prefix := strings.TrimSuffix(moving[round*each%len(moving)], "0") + "load:"
		load := []string{"load", "--kind", "mutex", "--prefix", prefix, "--duration", "1s", "--keys", "5", "--clients", "5"}
		got = c.run(t, load...)
		check.True(t, got.code == exitFine, "load: exit code %d, %s", got.code, got.errors)
		term := openTerminal(t, 140, 40, c.flags...)
		term.want(fmt.Sprintf("%d locks", want))
		term.quit()
	}
	for i, node := range c.Nodes() {
		check.True(t, node.PID() == pids[i], "%s has crashed", node.Addr())
	}
	for i, key := range moving[:each] {
		c.run(t, "release", key, "--write", "--yes").says(t, exitFine)
		doc, _ := c.list(t)
		check.True(t, len(doc.Locks) == want-1-i, "%d locks are left, want %d", len(doc.Locks), want-1-i)
	}
	t.Logf("%d rounds, %d locks", rounds, want)
}
