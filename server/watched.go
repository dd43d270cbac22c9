package server

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// WatchedOptions say what a set of servers watched by Sentinels is like. The
// zero value is a master, two replicas and three Sentinels.
type WatchedOptions struct {
	Replicas  int           // default 2
	DownAfter time.Duration // silence after which a server counts as down; default 1 s
	Args      []string      // further arguments of each server, not of the Sentinels
}

// Watched is a master and its replicas, with three Sentinels that put a replica
// in the master's place when it fails.
type Watched struct {
	*Replicated
	sentinels fleet
}

const (
	// WatchedName is the name by which Sentinels know the master.
	WatchedName  = "locktop"
	sentinels    = 3
	majority     = sentinels/2 + 1
	failoverTime = 3 * time.Second // before another Sentinel may try
)

// StartWatched starts the servers and the Sentinels, and returns when these know
// all servers and each other. ctx bounds the start.
func StartWatched(ctx context.Context, o WatchedOptions) (*Watched, error) {
	if o.Replicas == 0 {
		o.Replicas = 2
	}
	if o.DownAfter == 0 {
		o.DownAfter = time.Second
	}
	r, err := StartReplicated(ctx, ReplicatedOptions{Replicas: o.Replicas, Args: o.Args})
	if err != nil {
		return nil, err
	}
	w := &Watched{Replicated: r}
	if err := w.watch(ctx, o); err != nil {
		return nil, errors.Join(err, w.Stop())
	}
	return w, nil
}

func (w *Watched) watch(ctx context.Context, o WatchedOptions) error {
	config := strings.Join([]string{
		fmt.Sprintf("sentinel monitor %s 127.0.0.1 %s %d", WatchedName, portOf(w.Master().Addr()), majority),
		fmt.Sprintf("sentinel down-after-milliseconds %s %d", WatchedName, o.DownAfter.Milliseconds()),
		fmt.Sprintf("sentinel failover-timeout %s %d", WatchedName, failoverTime.Milliseconds()),
		fmt.Sprintf("sentinel parallel-syncs %s %d", WatchedName, o.Replicas),
		"",
	}, "\n")
	for range sentinels {
		if _, err := w.sentinels.add(ctx, ChildOptions{Args: []string{"--sentinel"}, Config: config}); err != nil {
			return err
		}
	}
	for _, s := range w.sentinels {
		if err := awaitOversight(ctx, s, o.Replicas); err != nil {
			return err
		}
	}
	return nil
}

// awaitOversight waits until a Sentinel knows the replicas and its colleagues.
func awaitOversight(ctx context.Context, sentinel *Child, replicas int) error {
	rdb := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr(), MaxRetries: -1, DisableIdentity: true})
	defer rdb.Close()
	return await(ctx, "the sentinels to know each other", func() (bool, error) {
		m, err := rdb.Master(ctx, WatchedName).Result()
		return m["num-slaves"] == fmt.Sprint(replicas) && m["num-other-sentinels"] == fmt.Sprint(sentinels-1), err
	})
}

// Stop ends Sentinels and servers.
func (w *Watched) Stop() error { return errors.Join(w.sentinels.stop(), w.Replicated.Stop()) }

// Sentinels returns where the Sentinels listen.
func (w *Watched) Sentinels() []string { return w.sentinels.addrs() }

// WatchedForTest starts servers and Sentinels that end with the test. Where
// redis-server is missing it does what [ForTest] does.
func WatchedForTest(t TB, o WatchedOptions) *Watched {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Watched, error) { return StartWatched(ctx, o) }, (*Watched).Stop)
}
