package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/server"
)

// SentinelOptions configures a [SentinelGroup]. The zero value has a master, two
// replicas and three Sentinels.
type SentinelOptions struct {
	Replicas int      // default 2
	Args     []string // further arguments of each server, but not of the Sentinels
}

// SentinelGroup is a master and its replicas, with three Sentinels that promote a
// replica when the master fails.
type SentinelGroup struct {
	*Replicated
	sentinels children
}

const (
	// SentinelMaster is the name under which the Sentinels monitor the master.
	SentinelMaster = "locktop"
	sentinelCount  = 3
	majority       = sentinelCount/2 + 1
	downAfter      = time.Second     // silence after which a server counts as down
	failoverTime   = 3 * time.Second // time until another Sentinel may try
)

// StartSentinelGroup starts the servers and the Sentinels. It returns when the
// Sentinels know all servers and each other. ctx limits the start.
func StartSentinelGroup(ctx context.Context, o SentinelOptions) (*SentinelGroup, error) {
	o.Replicas = cmp.Or(o.Replicas, 2)
	r, err := StartReplicated(ctx, ReplicatedOptions{Replicas: o.Replicas, Args: o.Args})
	if err != nil {
		return nil, err
	}
	g := &SentinelGroup{Replicated: r}
	if err := g.startSentinels(ctx, o); err != nil {
		return nil, errors.Join(err, g.Stop())
	}
	return g, nil
}

func (g *SentinelGroup) startSentinels(ctx context.Context, o SentinelOptions) error {
	config := strings.Join([]string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d", SentinelMaster, portOf(g.Master().Addr()), majority),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", SentinelMaster, downAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", SentinelMaster, failoverTime.Milliseconds()),
		fmt.Sprintf("sentinel parallel-syncs %s %d", SentinelMaster, o.Replicas),
		"",
	}, "\n")
	for range sentinelCount {
		if _, err := g.sentinels.add(ctx, WithConfig(config, "--sentinel")); err != nil {
			return err
		}
	}
	for _, s := range g.sentinels {
		if err := awaitDiscovery(ctx, s, o.Replicas); err != nil {
			return err
		}
	}
	return nil
}

// awaitDiscovery waits until a Sentinel knows the replicas and the other Sentinels.
func awaitDiscovery(ctx context.Context, sentinel *server.Child, replicas int) error {
	rdb := dial(sentinel)
	defer rdb.Close()
	return await(ctx, "the sentinels to know each other", func() (bool, error) {
		answer := redis.NewMapStringStringCmd(ctx, "sentinel", "master", SentinelMaster)
		err := rdb.Process(ctx, answer)
		m := answer.Val()
		return m["num-slaves"] == fmt.Sprint(replicas) && m["num-other-sentinels"] == fmt.Sprint(sentinelCount-1), err
	})
}

// Stop ends the Sentinels and the servers.
func (g *SentinelGroup) Stop() error { return errors.Join(g.sentinels.stop(), g.Replicated.Stop()) }

// Sentinels returns the addresses of the Sentinels.
func (g *SentinelGroup) Sentinels() []string { return g.sentinels.addrs() }

// SentinelGroupForTest starts servers and Sentinels that end with the test. Without
// redis-server it skips or fails the test, like [RedisForTest].
func SentinelGroupForTest(t TB, o SentinelOptions) *SentinelGroup {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*SentinelGroup, error) { return StartSentinelGroup(ctx, o) }, (*SentinelGroup).Stop)
}
