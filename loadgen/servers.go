package loadgen

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// RedisClient is a [redis.Client] or a [redis.ClusterClient]. A package that mentions one of
// their types compiles all of their methods again, which takes more than a second.
type RedisClient interface {
	redis.Cmdable
	Do(ctx context.Context, args ...any) *redis.Cmd
	Close() error
}

// Servers are the servers of a run.
type Servers struct {
	// Redis is the server of all kinds without a quorum: a single server, a Sentinel
	// master or a cluster. The caller closes it.
	Redis RedisClient
	// Nodes are the independent servers of a quorum, each a [redis.Client]. If it is empty,
	// Redis is the only node. Client processes use all nodes if Redis is the first of them,
	// and otherwise only Redis. The caller closes them.
	Nodes []RedisClient
	// Power stops and starts nodes. If it is nil, the faults that need it are errors.
	Power NodeController
	// Failover makes a replica replace its master. Nil = impossible.
	Failover func(context.Context) error
}

// NodeController stops and starts the servers of a run, which count from 1.
type NodeController interface {
	// Down ends a server like a crash.
	Down(node int) error
	// Up starts it again at the same address, with its data or empty.
	Up(ctx context.Context, node int, empty bool) error
	// Freeze stops a server temporarily, as with SIGSTOP.
	Freeze(node int) error
	// Continue ends Freeze.
	Continue(node int) error
}

// all returns the servers of locks of kind k.
func (sv Servers) all(k Kind) []RedisClient {
	if !k.nodes() || len(sv.Nodes) == 0 || k == Exec && sv.Redis != sv.Nodes[0] {
		return []RedisClient{sv.Redis}
	}
	return sv.Nodes
}

// prepare returns s with all defaults. It returns an error if s is invalid, or about its
// first fault that these servers do not support.
func (sv Servers) prepare(s Scenario) (Scenario, error) {
	if err := s.Validate(); err != nil {
		return s, fmt.Errorf("scenario: %w", err)
	}
	s = s.WithDefaults()
	for i, f := range s.Faults {
		if err := sv.canApply(f, s); err != nil {
			return s, fmt.Errorf("scenario: fault %d: %w", i+1, err)
		}
	}
	return s, nil
}

// Supports returns an error if s is invalid, or has a fault or a kind of lock that these servers do not support.
func (sv Servers) Supports(s Scenario) error {
	if _, err := sv.prepare(s); err != nil {
		return err
	}
	if s.Lock.Kind.Quorum() && len(sv.Nodes) < 2 {
		return fmt.Errorf("a %s needs independent servers: --redlock names them, locktop demo has five", s.Lock.Kind)
	}
	return nil
}

func (sv Servers) canApply(f Fault, s Scenario) error {
	servers := len(sv.all(s.Lock.Kind))
	switch {
	case f.Kind == Stop && sv.Power == nil:
		return fmt.Errorf("%s needs servers of our own; --demo starts some", f.Kind)
	case f.Kind == Failover && sv.Failover == nil:
		return fmt.Errorf("%s needs --sentinel, or --cluster with replicas", f.Kind)
	case f.Node > servers:
		return fmt.Errorf("there is no node %d; there are %d", f.Node, servers)
	case f.Kind.onNode() && sv.Power == nil:
		return fmt.Errorf("%s needs servers that can be switched off; --demo starts some", f.Kind)
	}
	return nil
}

// Occupied returns an existing key with this prefix, "" if there is none. It scans the
// whole database until it finds one.
func (sv Servers) Occupied(ctx context.Context, prefix string) (string, error) {
	for _, rdb := range append(sv.all(Mutex), sv.all(Redlock)...) {
		if rdb == nil {
			continue
		}
		var found atomic.Pointer[string] // concurrent over the nodes of a cluster
		err := onEach(ctx, rdb, func(ctx context.Context, node redis.Cmdable) error {
			for cursor := uint64(0); found.Load() == nil; {
				keys, next, err := node.Scan(ctx, cursor, glob(prefix)+"*", 1000).Result()
				if err != nil {
					return err
				}
				if len(keys) > 0 {
					found.Store(&keys[0])
				}
				if cursor = next; cursor == 0 {
					break
				}
			}
			return nil
		})
		if key := found.Load(); key != nil {
			return *key, nil
		}
		if err != nil {
			return "", fmt.Errorf("look for keys under %q: %w", prefix, err)
		}
	}
	return "", nil
}

// onEach calls f for a server, or for each master of a cluster, concurrently.
func onEach(ctx context.Context, rdb RedisClient, f func(context.Context, redis.Cmdable) error) error {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		return cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error { return f(ctx, node) })
	}
	return f(ctx, rdb)
}

// glob escapes a text for use in a pattern.
func glob(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// cpu returns the CPU time that the servers have used since their start. A server that
// does not report it within 1 s counts as 0.
func cpu(ctx context.Context, servers []RedisClient) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var sum atomic.Int64
	for _, rdb := range servers {
		_ = onEach(ctx, rdb, func(ctx context.Context, node redis.Cmdable) error {
			info, err := node.Info(ctx, "cpu").Result()
			for line := range strings.Lines(info) {
				name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
				if name != "used_cpu_user" && name != "used_cpu_sys" {
					continue
				}
				if seconds, err := strconv.ParseFloat(value, 64); err == nil {
					sum.Add(int64(seconds * float64(time.Second)))
				}
			}
			return err
		})
	}
	return time.Duration(sum.Load())
}
