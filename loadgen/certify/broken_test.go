//go:build unix

package certify

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/testtier"
	"locktop/loadgen"
	"locktop/loadgen/external"
)

// broken is a client with a lock of SET NX PX and a token, on one server or on a majority of
// several. It is sound but for one defect.
type broken struct {
	defect string
	nodes  []*redis.Client
	script string // SHA of the release, for the defect cached

	mu    sync.Mutex
	count int
	held  map[string]heldLock // by token
}

type heldLock struct {
	key  string
	stop context.CancelFunc // of the renewal
}

// defects has the tests that each defect must fail.
var defects = map[string][]string{
	"open":             {"hot-key", "permits"},          // grants every lock
	"forever":          {"crash", "lost-acquire"},       // sets no TTL
	"blind":            {"late-unlock", "flushall"},     // releases with DEL
	"quiet":            {"freeze"},                      // does not tell, although its hello says so
	"silent-renewer":   {"partition"},                   // renews and does not tell
	"remembers":        {"relock"},                      // does not ask the server for a lock that it had
	"repeats":          {"lost-release"},                // repeats DEL until it has a reply
	"queue":            {"waiter-killed"},               // waits behind a waiter that is dead
	"cached":           {"script-flush"},                // does not load its script again
	"fail-open":        {"nodes-3-down"},                // grants a lock if a server does not answer
	"per-server":       {"failover"},                    // its key has the run ID of the server
	"all-nodes":        {"nodes-2-down", "node-frozen"}, // needs every node
	"minority":         {"node-empty"},                  // needs one node
	"no-renewal":       {"renewal"},                     // does not renew, although its hello says so
	"recreates":        {"renewal-lost"},                // renews with SET
	"exclusive-reader": {"readers"},                     // knows no readers, although its hello says so
}

const (
	releaseScript = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`
	extendScript  = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end return 0`
)

// run answers requests until bye.
func (b *broken) run() error {
	b.held = make(map[string]heldLock)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r external.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		switch r.Op {
		case "hello":
			if err := b.hello(r); err != nil {
				return err
			}
		case "bye":
			return nil
		default:
			go func() {
				reply := b.answer(r)
				reply["id"] = r.ID
				b.say(reply)
			}()
		}
	}
	return nil
}

func (b *broken) say(line map[string]any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line)
}

func (b *broken) hello(r external.Request) error {
	for _, url := range r.URLs {
		o, err := redis.ParseURL(url)
		if err != nil {
			return err
		}
		o.ReadTimeout, o.DialTimeout, o.MaxRetries = 300*time.Millisecond, 300*time.Millisecond, -1
		b.nodes = append(b.nodes, redis.NewClient(o))
	}
	if b.defect == "cached" {
		b.script = b.nodes[0].ScriptLoad(context.Background(), releaseScript).Val()
	}
	kinds := []string{"mutex", "redlock"}
	switch b.defect {
	case "open":
		kinds = append(kinds, "semaphore")
	case "exclusive-reader":
		kinds = append(kinds, "rw")
	}
	b.say(map[string]any{
		"ok": true, "name": "broken " + b.defect, "kinds": kinds,
		"renews": slices.Contains([]string{"silent-renewer", "no-renewal"}, b.defect), "tells": b.defect == "quiet",
	})
	return nil
}

func (b *broken) answer(r external.Request) map[string]any {
	switch r.Op {
	case "lock":
		return b.lock(r)
	case "unlock":
		b.mu.Lock()
		h, known := b.held[r.Token]
		delete(b.held, r.Token)
		b.mu.Unlock()
		if !known {
			return map[string]any{"ok": false, "lost": true}
		}
		h.stop()
		reply := b.result(b.unlock(h.key, r.Token))
		if b.defect == "patient" && reply["lost"] == true {
			time.Sleep(ttl + margin/2)
		}
		return reply
	}
	b.mu.Lock()
	h := b.held[r.Token]
	b.mu.Unlock()
	reply := b.result(b.extend(h.key, r.Token, r.TTL))
	if reply["ok"] == true {
		reply["valid_ms"] = r.TTL
	}
	return reply
}

// result returns the reply to a release or an extension that so many nodes agreed to.
func (b *broken) result(agreed int, err error) map[string]any {
	switch {
	case agreed >= b.quorum():
		return map[string]any{"ok": true}
	case err != nil:
		return map[string]any{"ok": false, "error": err.Error()}
	}
	return map[string]any{"ok": false, "lost": true}
}

func (b *broken) quorum() int {
	switch b.defect {
	case "all-nodes":
		return len(b.nodes)
	case "minority":
		return 1
	}
	return len(b.nodes)/2 + 1
}

// each runs a command on all nodes at once, and returns how many agreed.
func (b *broken) each(command func(context.Context, *redis.Client) (bool, error)) (agreed int, err error) {
	type reply struct {
		ok  bool
		err error
	}
	replies := make(chan reply, len(b.nodes))
	for _, node := range b.nodes {
		go func() {
			ok, err := command(context.Background(), node)
			replies <- reply{ok, err}
		}()
	}
	for range b.nodes {
		r := <-replies
		if r.ok {
			agreed++
		}
		err = errors.Join(err, r.err)
	}
	return agreed, err
}

func (b *broken) lock(r external.Request) map[string]any {
	b.mu.Lock()
	b.count++
	token := fmt.Sprintf("%d-%d", os.Getpid(), b.count)
	again := b.defect == "remembers" && len(b.held) > 0
	b.mu.Unlock()
	ttl := time.Duration(r.TTL) * time.Millisecond
	if b.defect == "forever" {
		ttl = 0
	}
	if b.defect == "per-server" {
		r.Key += b.nodes[0].InfoMap(context.Background(), "server").Item("Server", "run_id")
	}
	if b.defect == "queue" {
		b.nodes[0].RPush(context.Background(), r.Key+":queue", token)
		defer b.nodes[0].LRem(context.Background(), r.Key+":queue", 1, token)
	}
	began := time.Now()
	for end := began.Add(time.Duration(*r.Wait) * time.Millisecond); ; time.Sleep(20 * time.Millisecond) {
		asked := time.Now()
		agreed, err := b.each(func(ctx context.Context, node *redis.Client) (bool, error) {
			if b.defect == "queue" && node.LIndex(ctx, r.Key+":queue", 0).Val() != token {
				return false, nil
			}
			return node.SetNX(ctx, r.Key, token, ttl).Result()
		})
		if b.defect == "since-asking" {
			asked = began.Add(-margin / 5) // in time for the end of the TTL of another client
		}
		if agreed >= b.quorum() || again || b.defect == "open" || b.defect == "fail-open" && err != nil {
			return b.granted(r, token, asked)
		}
		_, _ = b.unlock(r.Key, token)
		if err != nil && len(b.nodes) == 1 {
			return map[string]any{"ok": false, "error": err.Error()}
		}
		if !time.Now().Before(end) {
			return map[string]any{"ok": false, "held": true}
		}
	}
}

func (b *broken) granted(r external.Request, token string, asked time.Time) map[string]any {
	ctx, stop := context.WithCancel(context.Background())
	b.mu.Lock()
	b.held[token] = heldLock{r.Key, stop}
	b.mu.Unlock()
	if b.defect == "silent-renewer" {
		go func() {
			for ctx.Err() == nil {
				_, _ = b.extend(r.Key, token, r.TTL)
				time.Sleep(time.Duration(r.TTL) * time.Millisecond / 3)
			}
		}()
	}
	return map[string]any{"ok": true, "token": token, "valid_ms": r.TTL - time.Since(asked).Milliseconds()}
}

func (b *broken) unlock(key, token string) (agreed int, err error) {
	return b.each(func(ctx context.Context, node *redis.Client) (bool, error) {
		switch b.defect {
		case "blind":
			return true, node.Del(ctx, key).Err()
		case "repeats":
			held, err := node.Eval(ctx, releaseScript, []string{key}, token).Bool()
			for again := err; again != nil; again = node.Del(ctx, key).Err() {
				time.Sleep(50 * time.Millisecond) // meanwhile the next client acquires the lock
			}
			return held || err != nil, nil
		case "cached":
			return node.EvalSha(ctx, b.script, []string{key}, token).Bool()
		}
		return node.Eval(ctx, releaseScript, []string{key}, token).Bool()
	})
}

func (b *broken) extend(key, token string, ttl int64) (agreed int, err error) {
	return b.each(func(ctx context.Context, node *redis.Client) (bool, error) {
		if b.defect == "recreates" {
			return true, node.Set(ctx, key, token, time.Duration(ttl)*time.Millisecond).Err()
		}
		return node.Eval(ctx, extendScript, []string{key}, token, ttl).Bool()
	})
}

func TestEveryJudgeFindsTheDefectThatItLooksFor(t *testing.T) {
	testtier.Long(t, "it runs a test for each defect")
	t.Parallel()
	for defect, tests := range defects {
		t.Run(defect, func(t *testing.T) {
			t.Parallel()
			for _, v := range run(t, "broken/"+defect, tests...).Verdicts {
				if v.Outcome != Fail {
					t.Errorf("passes %s: %s", v.Test, v.Evidence)
				}
			}
		})
	}
}

// redlock 5 counts the TTL from the begin of the wait.
func TestAWaiterWhoseLeaseHasEndedBeforeItGotTheLockLocksAgain(t *testing.T) {
	t.Parallel()
	for _, v := range run(t, "broken/since-asking", "late-unlock", "relock", "lost-release").Verdicts {
		ended := strings.Contains(v.Evidence, "client-2 got a lease that had ended")
		if v.Outcome != Pass || ended != (v.Test != "lost-release") {
			t.Errorf("%s: %s %s", v.Test, v.Outcome, v.Evidence)
		}
	}
}

// A refused release of redlock 5 tries again for 2 s.
func TestALateReleaseThatTakesLongerThanTheLeaseOfTheNextHolder(t *testing.T) {
	t.Parallel()
	if v := run(t, "broken/patient", "late-unlock").Verdicts[0]; v.Outcome != Pass {
		t.Errorf("%s %s", v.Outcome, v.Evidence)
	}
}

func TestTheClientWithoutADefectPasses(t *testing.T) {
	testtier.Long(t, "it runs all tests on a client")
	t.Parallel()
	for _, v := range run(t, "broken/none", slices.DeleteFunc(testNames(), func(name string) bool { return name == "waiters" })...).Verdicts {
		if v.Outcome == Fail || v.Outcome == Inconclusive {
			t.Errorf("%s: %s: %s", v.Test, v.Outcome, v.Evidence)
		}
	}
}

// testNames returns the names of all tests.
func testNames() []string {
	var all []string
	for _, test := range Tests() {
		all = append(all, test.Name)
	}
	return all
}

// Every test that can fail has a client that fails it.
func TestEveryTestHasAClientThatFailsIt(t *testing.T) {
	known := []string{"failover-behind", "waiters"} // observations; see TestAWaiterThatStarvesIsAFailure
	for _, all := range []map[string][]string{flaws, defects} {
		for _, tests := range all {
			known = append(known, tests...)
		}
	}
	for _, name := range testNames() {
		if !slices.Contains(known, name) {
			t.Errorf("no client fails %s", name)
		}
	}
}

func TestAWaiterThatStarvesIsAFailure(t *testing.T) {
	events := []loadgen.Event{{Kind: loadgen.Arrived, Client: 3}}
	for n := range 60 {
		client := n%2 + 1
		events = append(events, loadgen.Event{Kind: loadgen.Arrived, Client: client}, loadgen.Event{Kind: loadgen.Acquired, Client: client})
	}
	least, most, passed := fairness(events, 3)
	if least != 0 || most != 30 || passed != 60 {
		t.Errorf("%d to %d holds, passed over %d times", least, most, passed)
	}
	m := loadgen.Metrics{}
	m.Acquired = 60
	if v := new(rig).judgeWaiters(m, events, 3); v.Outcome != Fail {
		t.Errorf("%s: %s", v.Outcome, v.Evidence)
	}
	if v := new(rig).judgeWaiters(m, append(events, loadgen.Event{Kind: loadgen.Acquired, Client: 3}), 3); v.Outcome != Observed {
		t.Errorf("%s: %s", v.Outcome, v.Evidence)
	}
}
