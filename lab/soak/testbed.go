package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"locktop/internal/server"
	"locktop/loadgen"
)

// testbed is the set of servers of a lock.
type testbed struct {
	*server.Independent
	clients []loadgen.RedisClient
	stops   atomic.Int64
}

func openTestbed(ctx context.Context, servers int) (*testbed, error) {
	set, err := server.StartIndependent(ctx, servers, server.ChildOptions{})
	if err != nil {
		return nil, err
	}
	t := &testbed{Independent: set}
	for _, child := range set.Nodes() {
		t.clients = append(t.clients, server.NewClient(child.Addr(), server.ClientOptions{}))
	}
	return t, nil
}

// servers returns the servers for a load.
func (t *testbed) servers() loadgen.Servers {
	return loadgen.Servers{Redis: t.clients[0], Nodes: t.clients, Power: t}
}

func (t *testbed) close() error { return errors.Join(t.closeClients(), t.Stop()) }

// closeClients closes the testbed's own connections.
func (t *testbed) closeClients() error {
	var errs []error
	for _, rdb := range t.clients {
		errs = append(errs, rdb.Close())
	}
	t.clients = nil
	return errors.Join(errs...)
}

// Freeze stops a server. Every other time the server runs, and only its writes wait.
func (t *testbed) Freeze(node int) error {
	if t.stops.Add(1)%2 == 0 {
		return t.Independent.Freeze(node)
	}
	return t.clients[node-1].Do(context.Background(), "client", "pause", maxLength.Milliseconds(), "write").Err()
}

// Continue ends Freeze.
func (t *testbed) Continue(node int) error {
	return errors.Join(t.Independent.Continue(node), t.clients[node-1].ClientUnpause(context.Background()).Err())
}

// leftovers lists the keys, connections and channels on the servers after all clients
// have ended. The testbed must have closed its own connections.
func (t *testbed) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	for _, child := range t.Nodes() {
		there, err := leftoversOn(ctx, child.Addr())
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		left = append(left, there...)
	}
	return left, nil
}

func leftoversOn(ctx context.Context, addr string) (left []string, err error) {
	rdb := server.NewClient(addr, server.ClientOptions{})
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
