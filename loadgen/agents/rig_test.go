package agents

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/loadgen"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs every connection that it cannot open
	servertest.Tests{M: m, Parallel: 8}.Run()
}

// rig is agents in this process, with the servers of their runs.
type rig struct {
	t       *testing.T
	control server.Client
	targets []string // addresses
	on      loadgen.Servers

	mu    sync.Mutex
	notes []string // of all
}

// newRig starts agents on the control server, each with a clock that is off by one of shifts.
// They end with the test.
func newRig(t *testing.T, control string, targets []string, shifts ...time.Duration) *rig {
	t.Helper()
	r := &rig{t: t, control: servertest.ClientForTest(t, control, nil), targets: targets}
	r.on = r.open()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i, shift := range shifts {
		a := Agent{
			Control: servertest.ClientForTest(t, control, nil),
			Open:    func(context.Context, Target) (loadgen.Servers, func(), error) { return r.open(), func() {}, nil },
			Note:    func(text string) { r.note(fmt.Sprintf("agent %d: %s", i+1, text)) },
			Now:     func() time.Time { return time.Now().Add(shift) },
		}
		all.Go(func() {
			if err := a.Serve(ctx, false); err != nil {
				r.note(fmt.Sprintf("agent %d ended: %v", i+1, err))
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		all.Wait()
		if t.Failed() {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, note := range r.notes {
				t.Log(note)
			}
		}
	})
	return r
}

// open returns clients of the targets.
func (r *rig) open() loadgen.Servers {
	var on loadgen.Servers
	for _, addr := range r.targets {
		on.Nodes = append(on.Nodes, servertest.ClientForTest(r.t, addr, nil))
	}
	on.Redis = on.Nodes[0]
	if len(on.Nodes) == 1 {
		on.Nodes = nil
	}
	return on
}

func (r *rig) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, text)
}

// start starts a load by n agents.
func (r *rig) start(n int, s loadgen.Scenario) *Load {
	r.t.Helper()
	l, err := New(Config{
		Control: r.control, Servers: r.on, Target: Target{Addresses: r.targets}, Scenario: s, Agents: n,
		Patience: 30 * time.Second, Note: r.note,
	})
	check.NoError(r.t, err)
	r.t.Cleanup(func() { _ = l.Close() })
	check.NoError(r.t, l.Start())
	return l
}

// until polls a load until its figures meet a condition.
func (r *rig) until(l *Load, wanted string, ok func(loadgen.Metrics) bool) loadgen.Metrics {
	r.t.Helper()
	for range 6000 {
		if m := l.Metrics(); ok(m) {
			return m
		}
		time.Sleep(10 * time.Millisecond)
	}
	r.t.Fatalf("never saw %s; last: %+v", wanted, l.Metrics().Counts)
	return loadgen.Metrics{}
}

// checkNoKeys fails the test if a run has left keys on the servers.
func (r *rig) checkNoKeys() {
	r.t.Helper()
	for _, rdb := range append([]loadgen.RedisClient{r.control, r.on.Redis}, r.on.Nodes...) {
		keys, err := rdb.Keys(context.Background(), "*").Result()
		check.True(r.t, err == nil && len(keys) == 0, "keys left behind at %v: %q %v", rdb, keys, err)
	}
}
