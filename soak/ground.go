package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/loadgen"
	"locktop/server"
)

// ground are the servers that some kinds of locks stand on, and what strikes
// them.
type ground struct {
	set     *server.Independent
	clients []*redis.Client

	striking atomic.Bool // a blow has fallen, and is not healed yet
}

func openGround(ctx context.Context, servers int) (*ground, error) {
	set, err := server.StartIndependent(ctx, servers)
	if err != nil {
		return nil, err
	}
	g := &ground{set: set}
	for _, child := range set.Nodes() {
		g.clients = append(g.clients, redis.NewClient(&redis.Options{Addr: child.Addr(), DisableIdentity: true}))
	}
	return g, nil
}

// servers are the ground as a load takes it.
func (g *ground) servers() loadgen.Servers {
	return loadgen.Servers{Redis: g.clients[0], Nodes: g.clients}
}

func (g *ground) close() error { return errors.Join(g.hangUp(), g.set.Stop()) }

// hangUp closes the ground's own connections.
func (g *ground) hangUp() error {
	var errs []error
	for _, rdb := range g.clients {
		errs = append(errs, rdb.Close())
	}
	g.clients = nil
	return errors.Join(errs...)
}

// strike lets all blows fall on the servers, one after the other. What is struck
// is in good health again when it returns, also if ctx ends before.
func (g *ground) strike(ctx context.Context, all []blow, ledgers []*ledger) error {
	began := time.Now()
	for _, b := range all {
		sleep(ctx, time.Until(began.Add(b.at)))
		if ctx.Err() != nil {
			return nil
		}
		var over []func()
		for _, l := range ledgers {
			over = append(over, l.strike(string(b.kind), len(b.nodes)))
		}
		err := g.fall(ctx, b)
		for _, end := range over {
			end()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.kind, err)
		}
	}
	return nil
}

// fall lets one blow fall, and heals it.
func (g *ground) fall(ctx context.Context, b blow) error {
	g.striking.Store(true)
	defer g.striking.Store(false)
	begin, heal := g.powers(b)
	for _, n := range b.nodes {
		if err := begin(n); err != nil {
			return errors.Join(err, g.each(b.nodes, heal))
		}
	}
	sleep(ctx, b.lasts)
	return g.each(b.nodes, heal)
}

func (g *ground) each(nodes []int, do func(node int) error) error {
	var errs []error
	for _, n := range nodes {
		errs = append(errs, do(n))
	}
	return errors.Join(errs...)
}

// healWithin bounds what it takes to bring a server back, or to command it.
const healWithin = 20 * time.Second

// powers returns what begins a blow on a server, and what ends it. Either is at
// home with a server that was not struck.
func (g *ground) powers(b blow) (begin, heal func(node int) error) {
	nothing := func(int) error { return nil }
	order := func(args ...any) func(int) error {
		return func(n int) error {
			ctx, cancel := context.WithTimeout(context.Background(), healWithin)
			defer cancel()
			return g.clients[n].Do(ctx, args...).Err()
		}
	}
	switch b.kind {
	case kill:
		return func(n int) error { return g.set.Down(n + 1) }, func(n int) error {
			ctx, cancel := context.WithTimeout(context.Background(), healWithin)
			defer cancel()
			return g.set.Up(ctx, n+1, false)
		}
	case stop:
		return func(n int) error { return g.set.Nodes()[n].Freeze() }, func(n int) error { return g.set.Nodes()[n].Continue() }
	case pause:
		return order("client", "pause", b.lasts.Milliseconds(), "all"), nothing
	case pauseWrites:
		return order("client", "pause", b.lasts.Milliseconds(), "write"), nothing
	}
	return order("script", "flush"), nothing
}

// leftovers returns what is on the servers though nobody uses them any more:
// keys, connections, channels that are listened to. Its own connections are
// closed by then.
func (g *ground) leftovers(ctx context.Context) ([]string, error) {
	var left []string
	for _, child := range g.set.Nodes() {
		there, err := leftOn(ctx, child.Addr())
		if err != nil {
			return nil, fmt.Errorf("look for leftovers: %w", err)
		}
		left = append(left, there...)
	}
	return left, nil
}

func leftOn(ctx context.Context, addr string) (left []string, err error) {
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
	asking := true
	for line := range strings.Lines(clients.Val()) {
		if asking && strings.Contains(line, "cmd=client|list") {
			asking = false
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
