package servertest

import (
	"context"
	"errors"
	"fmt"

	"locktop/internal/server"
)

// ReplicatedOptions configures a Replicated. The zero value has one replica.
type ReplicatedOptions struct {
	Replicas int      // default 1
	Args     []string // further arguments of each server
	Server   string   // as in [Program]
}

// Replicated is a master with replicas, all [server.Child] servers. It has no failover; see
// [SentinelGroup].
type Replicated struct {
	children children // the first is the master at the start
}

// StartReplicated starts a master with replicas and returns when they are in sync. ctx
// limits the start.
func StartReplicated(ctx context.Context, o ReplicatedOptions) (*Replicated, error) {
	r := &Replicated{}
	if err := r.start(ctx, o); err != nil {
		return nil, errors.Join(err, r.Stop())
	}
	return r, nil
}

func (r *Replicated) start(ctx context.Context, o ReplicatedOptions) error {
	args := append([]string{"--repl-diskless-sync-delay", "0"}, o.Args...)
	master, err := r.children.add(ctx, Program(o.Server, args...))
	if err != nil {
		return err
	}
	for range max(o.Replicas, 1) {
		replica, err := r.children.add(ctx, Program(o.Server, args...))
		if err != nil {
			return err
		}
		if err := r.Follow(ctx, replica, master); err != nil {
			return err
		}
	}
	return nil
}

// Stop ends all servers.
func (r *Replicated) Stop() error { return r.children.stop() }

// Nodes returns all servers, beginning with the master of the start.
func (r *Replicated) Nodes() []*server.Child { return r.children }

// Master returns the master of the start.
func (r *Replicated) Master() *server.Child { return r.children[0] }

// Replicas returns the replicas of the start.
func (r *Replicated) Replicas() []*server.Child { return r.children[1:] }

// Follow makes a server the replica of another one and returns when it is in sync.
func (r *Replicated) Follow(ctx context.Context, replica, master *server.Child) error {
	rdb, observed := dial(replica), dial(master)
	defer rdb.Close()
	defer observed.Close()
	if err := rdb.ReplicaOf(ctx, "127.0.0.1", portOf(master.Addr())).Err(); err != nil {
		return fmt.Errorf("make %s follow %s: %w", replica.Addr(), master.Addr(), err)
	}
	return await(ctx, "a replica to be in sync", func() (bool, error) { return inSync(ctx, rdb) })
}

// Promote makes a replica a master.
func (r *Replicated) Promote(ctx context.Context, replica *server.Child) error {
	rdb := dial(replica)
	defer rdb.Close()
	if err := rdb.ReplicaOf(ctx, "no", "one").Err(); err != nil {
		return fmt.Errorf("promote %s: %w", replica.Addr(), err)
	}
	return nil
}

// inSync reports whether a replica has all data of its master and receives further
// writes.
func inSync(ctx context.Context, replica server.Client) (bool, error) {
	info, err := replica.Info(ctx, "replication").Result()
	return hasLine(info, "master_link_status:up") && hasLine(info, "master_sync_in_progress:0"), err
}

// ReplicatedForTest starts a master and replicas that end with the test. Without
// redis-server it skips or fails the test, like [RedisForTest].
func ReplicatedForTest(t TB, o ReplicatedOptions) *Replicated {
	t.Helper()
	return forTest(t, func(ctx context.Context) (*Replicated, error) { return StartReplicated(ctx, o) }, (*Replicated).Stop)
}
