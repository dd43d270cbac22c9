package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
	"locktop/loadgen"
)

// testbed is the set of servers of some locks, and injects their faults.
type testbed struct {
	set     *server.Independent
	clients []*redis.Client

	faultActive atomic.Bool // a server fault is active
}

func openTestbed(ctx context.Context, servers int) (*testbed, error) {
	set, err := server.StartIndependent(ctx, servers)
	if err != nil {
		return nil, err
	}
	t := &testbed{set: set}
	for _, child := range set.Nodes() {
		t.clients = append(t.clients, redis.NewClient(&redis.Options{Addr: child.Addr(), DisableIdentity: true}))
	}
	return t, nil
}

// servers returns the servers for a load.
func (t *testbed) servers() loadgen.Servers {
	return loadgen.Servers{Redis: t.clients[0], Nodes: t.clients}
}

func (t *testbed) close() error { return errors.Join(t.closeClients(), t.set.Stop()) }

// closeClients closes the testbed's own connections.
func (t *testbed) closeClients() error {
	var errs []error
	for _, rdb := range t.clients {
		errs = append(errs, rdb.Close())
	}
	t.clients = nil
	return errors.Join(errs...)
}

// injectAll injects the faults one after the other. When it returns, all servers work
// again, even if ctx ends early.
func (t *testbed) injectAll(ctx context.Context, faults []serverFault, logs []*incidentLog) error {
	began := time.Now()
	for _, f := range faults {
		sleep(ctx, time.Until(began.Add(f.at)))
		if ctx.Err() != nil {
			return nil
		}
		var over []func()
		for _, l := range logs {
			over = append(over, l.serverFault(string(f.kind), len(f.nodes)))
		}
		err := t.inject(ctx, f)
		for _, end := range over {
			end()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.kind, err)
		}
	}
	return nil
}

// inject begins one fault, waits for its duration, and ends it.
func (t *testbed) inject(ctx context.Context, f serverFault) error {
	t.faultActive.Store(true)
	defer t.faultActive.Store(false)
	begin, heal := t.faultActions(f)
	for _, n := range f.nodes {
		if err := begin(n); err != nil {
			return errors.Join(err, t.forEach(f.nodes, heal))
		}
	}
	sleep(ctx, f.duration)
	return t.forEach(f.nodes, heal)
}

func (t *testbed) forEach(nodes []int, do func(node int) error) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}

// healTimeout bounds the end of a fault, and each command to a server.
const healTimeout = 20 * time.Second

// faultActions returns the functions that begin and end a fault on a server. Heal may
// also be called for a server without a fault.
func (t *testbed) faultActions(f serverFault) (begin, heal func(node int) error) {
	nothing := func(int) error { return nil }
	command := func(args ...any) func(int) error {
		return func(n int) error {
			ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
			defer cancel()
			return t.clients[n].Do(ctx, args...).Err()
		}
	}
	switch f.kind {
	case kill:
		return func(n int) error { return t.set.Down(n + 1) }, func(n int) error {
			ctx, cancel := context.WithTimeout(context.Background(), healTimeout)
			defer cancel()
			return t.set.Up(ctx, n+1, false)
		}
	case stop:
		return func(n int) error { return t.set.Nodes()[n].Freeze() }, func(n int) error { return t.set.Nodes()[n].Continue() }
	case pause:
		return command("client", "pause", f.duration.Milliseconds(), "all"), nothing
	case pauseWrites:
		return command("client", "pause", f.duration.Milliseconds(), "write"), nothing
	}
	return command("script", "flush"), nothing
}

// leftovers lists the keys, connections and channels on the servers after all clients
// have ended. The testbed must have closed its own connections.
func (t *testbed) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	for _, child := range t.set.Nodes() {
		there, err := leftoversOn(ctx, child.Addr())
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		left = append(left, there...)
	}
	return left, nil
}

func leftoversOn(ctx context.Context, addr string) (left []string, err error) {
	rdb := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
	defer func() { err = errors.Join(err, rdb.Close()) }()
	pipe := rdb.Pipeline()
	keys, channels, clients := pipe.Keys(ctx, "*"), pipe.PubSubChannels(ctx, "*"), pipe.ClientList(ctx)
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, err
	}
	for _, key := range keys.Val() {
		left = append(left, "key "+key)
	}
	for _, channel := range channels.Val() {
		left = append(left, "channel "+channel)
	}
	ownFound := true
	for line := range strings.Lines(clients.Val()) {
		if ownFound && strings.Contains(line, "cmd=client|list") {
			ownFound = false
			continue
		}
		left = append(left, "connection "+strings.TrimSpace(line))
	}
	return left, nil
}

func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
