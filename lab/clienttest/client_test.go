//go:build unix

package clienttest

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
	"time"

	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen/external"
)

// testClient is a lock client in one of the styles in which people write them. It is sound
// but for one flaw.
type testClient struct {
	style, flaw string

	owner string
	ahead time.Duration // of the clock, for the flaw client-clock
	nodes []server.Client
	sha   string // of the release, for the flaw cached

	mu    sync.Mutex
	count int
	held  map[string]*testHold // by the token of the protocol

	waiting map[int64]chan struct{} // closed when the request is cancelled
}

// testHold is a lock that the client has, or asks for.
type testHold struct {
	key, token string // in Redis
	ttl        time.Duration
	read       bool
	permits    int
	fence      int64
	released   chan struct{} // ends the renewals
}

func (c *testClient) is(flaws ...string) bool { return slices.Contains(flaws, c.flaw) }

// run answers requests until bye.
func (c *testClient) run() error {
	c.held, c.waiting = make(map[string]*testHold), make(map[int64]chan struct{})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var r external.Request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		switch r.Op {
		case "hello":
			if err := c.hello(r); err != nil {
				return err
			}
		case "cancel":
			c.mu.Lock()
			if c.waiting[r.ID] != nil {
				close(c.waiting[r.ID])
				delete(c.waiting, r.ID)
			}
			c.mu.Unlock()
		case "bye":
			return nil
		default:
			c.mu.Lock()
			c.waiting[r.ID] = make(chan struct{})
			c.mu.Unlock()
			go func() {
				reply := c.answer(r)
				reply["id"] = r.ID
				c.say(reply)
			}()
		}
	}
	return nil
}

func (c *testClient) say(line map[string]any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(line)
}

func (c *testClient) hello(r external.Request) error {
	c.owner, c.ahead = fmt.Sprintf("%s-%d", r.Client, os.Getpid()), time.Duration(r.ClockOffset)*time.Millisecond
	for _, url := range r.URLs {
		o := server.ClientOptions{Timeout: time.Second, NoRetry: true}
		switch {
		case c.is("waits-for-all", "valid-from-reply"):
			o.Timeout = time.Minute
		case len(r.URLs) > 1:
			o.Timeout = 300 * time.Millisecond
		}
		c.nodes = append(c.nodes, server.NewClient(strings.TrimPrefix(url, "redis://"), o))
	}
	if c.is("cached") {
		c.sha = c.nodes[0].ScriptLoad(context.Background(), releaseScript).Val()
	}
	kinds := map[string][]string{"reentrant": {"reentrant"}, "rw": {"rw"}, "semaphore": {"mutex", "semaphore"}, "fenced": {"mutex"}, "watch": {"mutex"}, "signal": {"mutex"}, "recovers": {"mutex"}}[c.style]
	switch {
	case c.is("open"):
		kinds = []string{"mutex", "semaphore"}
	case kinds == nil:
		kinds = []string{"mutex", "redlock"}
	}
	if c.is("exclusive-reader") {
		kinds = append(kinds, "rw")
	}
	c.say(map[string]any{
		"ok": true, "name": "test client " + c.style + " " + c.flaw, "kinds": kinds, "fences": c.style == "fenced", "clock": c.is("client-clock"), "cancels": true,
		"renews": c.renews() || c.is("no-renewal"), "tells": c.style == "renewer" && !c.is("silent-renewer") || c.is("quiet"),
	})
	return nil
}

func (c *testClient) renews() bool { return c.style == "renewer" }

func (c *testClient) answer(r external.Request) map[string]any {
	if r.Op == "lock" {
		return c.lock(r)
	}
	c.mu.Lock()
	h := c.held[r.Token]
	if r.Op == "unlock" && h != nil {
		delete(c.held, r.Token)
		close(h.released)
	}
	c.mu.Unlock()
	if h == nil {
		return map[string]any{"ok": false, "lost": true}
	}
	if r.Op == "unlock" {
		agreed, err := c.each(func(node server.Client) (bool, error) { return c.release(node, h) })
		if c.is("unlock-always-ok") || c.is("rl-unlock-any") && agreed > 0 {
			return map[string]any{"ok": true}
		}
		reply := c.result(agreed, err)
		if c.is("patient") && reply["lost"] == true {
			time.Sleep(standardTTL + margin/2)
		}
		return reply
	}
	if c.renews() {
		return map[string]any{"ok": false, "error": "it renews by itself"}
	}
	asked := time.Now()
	agreed, err := c.each(func(node server.Client) (bool, error) { return c.extend(node, h) })
	reply := c.result(agreed, err)
	if c.is("extend-lies") || c.is("rl-extend-any") && agreed > 0 {
		reply = map[string]any{"ok": true}
	}
	if reply["ok"] == true {
		reply["valid_ms"] = c.valid(h, asked)
	}
	return reply
}

// valid returns the rest of a lease, with a margin for different clocks.
func (c *testClient) valid(h *testHold, asked time.Time) int64 {
	ttl := h.ttl
	switch {
	case c.is("seconds-ceil-valid"):
		ttl = (ttl + time.Second - 1).Truncate(time.Second)
	case c.is("valid-from-reply", "rl-noelapsed"):
		asked = time.Now()
	}
	return (ttl - time.Since(asked) - h.ttl/100).Milliseconds()
}

// result returns the reply to a release or an extension that so many nodes agreed to.
func (c *testClient) result(agreed int, err error) map[string]any {
	switch {
	case agreed >= c.quorum():
		return map[string]any{"ok": true}
	case err != nil:
		return map[string]any{"ok": false, "error": err.Error()}
	}
	return map[string]any{"ok": false, "lost": true}
}

func (c *testClient) quorum() int {
	switch c.flaw {
	case "all-nodes":
		return len(c.nodes)
	case "minority":
		return 1
	case "half":
		return max(len(c.nodes)/2, 1)
	}
	return len(c.nodes)/2 + 1
}

// each runs a command on all nodes, and returns how many agreed: at once, or one after the
// other.
func (c *testClient) each(command func(server.Client) (bool, error)) (agreed int, err error) {
	type reply struct {
		ok  bool
		err error
	}
	replies := make(chan reply, len(c.nodes))
	for _, node := range c.nodes {
		ask := func() {
			ok, err := command(node)
			replies <- reply{ok, err}
		}
		if c.style == "sequential" {
			ask()
		} else {
			go ask()
		}
	}
	for range c.nodes {
		r := <-replies
		if r.ok {
			agreed++
		}
		err = errors.Join(err, r.err)
	}
	return agreed, err
}

func (c *testClient) lock(r external.Request) map[string]any {
	c.mu.Lock()
	c.count++
	id := fmt.Sprintf("%s-%d", c.owner, c.count)
	h := &testHold{key: r.Key, token: id, ttl: time.Duration(r.TTL) * time.Millisecond, read: r.Mode == external.ModeRead, permits: max(r.Permits, 1), released: make(chan struct{})}
	again := c.is("remembers") && len(c.held) > 0
	cancelled := c.waiting[r.ID]
	c.mu.Unlock()
	switch c.flaw {
	case "token-reuse", "token-retry":
		h.token = fmt.Sprint(os.Getpid())
	case "token-name":
		h.token = c.owner[:strings.LastIndex(c.owner, "-")]
	case "token-same":
		h.token = "me"
	case "per-server":
		h.key += c.nodes[0].InfoMap(context.Background(), "server").Item("Server", "run_id")
	case "queue":
		c.nodes[0].RPush(context.Background(), h.key+":queue", id)
		defer c.nodes[0].LRem(context.Background(), h.key+":queue", 1, id)
	}
	began := time.Now()
	end := began.Add(time.Duration(*r.Wait) * time.Millisecond)
	if c.is("sem-off-by-one") {
		h.permits++
	}
	broke := false
	for tries := 0; ; tries++ {
		asked := time.Now()
		if c.is("since-asking") {
			asked = began.Add(-margin / 5) // in time for the end of the TTL of another client
		}
		agreed, err := c.each(func(node server.Client) (bool, error) { return c.acquire(node, h, tries > 0) })
		broke = broke || err != nil
		if c.style == "recovers" && broke && agreed == 0 {
			if left, mine := c.recover(h); mine {
				return c.granted(h, id, time.Now().Add(left-h.ttl))
			}
		}
		valid := c.valid(h, asked) > 0 || len(c.nodes) == 1 || c.is("rl-noelapsed")
		if agreed >= c.quorum() && valid || again || c.is("open") || c.is("fail-open") && err != nil {
			return c.granted(h, id, asked)
		}
		retries := (c.style == "reentrant" || c.is("persistent")) && err != nil // asks on after an error
		if !c.is("rl-minority") && c.style != "recovers" && !retries && (agreed > 0 || err != nil) {
			_, _ = c.each(func(node server.Client) (bool, error) { return c.release(node, h) })
		}
		if err != nil && len(c.nodes) == 1 && !retries && c.style != "recovers" {
			return map[string]any{"ok": false, "error": err.Error()}
		}
		select {
		case <-cancelled:
			end = time.Now()
		default:
		}
		if !time.Now().Before(end) && !c.is("impolite") { // it waits for longer than it may
			return c.refused(h, id)
		}
		c.wait(h, end, cancelled)
		if c.is("notify-only") && !time.Now().Before(end) {
			return c.refused(h, id)
		}
	}
}

// refused ends the request of a waiter that gives up.
func (c *testClient) refused(h *testHold, id string) map[string]any {
	switch c.flaw {
	case "orphan":
		go func() { // its attempt goes on
			for got := false; !got; time.Sleep(20 * time.Millisecond) {
				got, _ = c.acquire(c.nodes[0], h, true)
			}
		}()
	case "cleanup-deletes":
		c.nodes[0].Del(context.Background(), h.key)
	}
	return map[string]any{"ok": false, "held": true}
}

// wait waits until it is worth to ask again.
func (c *testClient) wait(h *testHold, end time.Time, cancelled <-chan struct{}) {
	const poll = 20 * time.Millisecond
	if c.style != "signal" {
		time.Sleep(poll)
		return
	}
	left := time.Until(end)
	if ttl := c.nodes[0].PTTL(context.Background(), h.key).Val(); ttl > 0 && !c.is("notify-only") {
		left = min(left, ttl)
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(left, time.Millisecond))
	defer cancel()
	s := servertest.Subscribe(ctx, c.nodes[0], h.key+":released")
	defer s.Close()
	if _, err := s.Receive(ctx); err != nil || c.nodes[0].Exists(ctx, h.key).Val() == 0 && !c.is("notify-only") {
		return
	}
	received := make(chan struct{})
	go func() {
		defer close(received)
		_, _ = s.ReceiveMessage(ctx)
	}()
	select {
	case <-received:
	case <-cancelled:
	case <-ctx.Done():
	}
}

// recover looks, after an error, for a lock that the server has granted.
func (c *testClient) recover(h *testHold) (left time.Duration, mine bool) {
	ctx := context.Background()
	if token, err := c.nodes[0].Get(ctx, h.key).Result(); err != nil || token != h.token {
		return 0, false
	}
	if c.is("retry-acquire-get") {
		return h.ttl, true
	}
	left, err := c.nodes[0].PTTL(ctx, h.key).Result()
	return left, err == nil && left > 0
}

func (c *testClient) granted(h *testHold, id string, asked time.Time) map[string]any {
	c.mu.Lock()
	c.held[id] = h
	c.mu.Unlock()
	if c.renews() {
		go c.renew(h, id, asked)
	}
	return map[string]any{"ok": true, "token": id, "valid_ms": c.valid(h, asked), "fence": h.fence}
}

// renew renews a lock until its release, or until it is lost: also if a renewal has no
// answer, and the lease ends meanwhile.
func (c *testClient) renew(h *testHold, id string, asked time.Time) {
	lost := sync.OnceFunc(func() {
		select {
		case <-h.released:
		default:
			if !c.is("silent-renewer", "renew-blind") {
				c.say(map[string]any{"event": "lost", "token": id})
			}
		}
	})
	ended := time.AfterFunc(time.Until(asked.Add(h.ttl)), lost)
	defer ended.Stop()
	every := h.ttl / 3
	if c.is("renews-each-second") {
		every = time.Second
	}
	for tick := time.Tick(every); ; {
		select {
		case <-tick:
		case <-h.released:
			if !c.is("renew-after-unlock") {
				return
			}
			<-tick
		}
		asked = time.Now()
		agreed, err := c.each(func(node server.Client) (bool, error) { return c.extend(node, h) })
		switch {
		case agreed >= c.quorum():
			if !ended.Reset(time.Until(asked.Add(h.ttl))) && !c.is("silent-renewer", "renew-blind") {
				return // it has told the loss
			}
			c.say(map[string]any{"event": "renewed", "token": id, "valid_ms": c.valid(h, asked)})
		case err == nil:
			lost()
			return
		}
	}
}

// styles are the styles of test clients without a flaw.
var styles = []string{"set", "sequential", "renewer", "watch", "signal", "recovers", "fenced", "reentrant", "rw", "semaphore"}
