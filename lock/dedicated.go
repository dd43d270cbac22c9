package lock

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// maxHops is the number of redirections to other cluster nodes that are followed.
const maxHops = 3

// execOnMaster implements [transport.pipelineOn].
func execOnMaster(ctx context.Context, client redis.UniversalClient, key string, timeout time.Duration, cmds []redis.Cmder) error {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return execPipeline(ctx, client.(*redis.Client).WithTimeout(timeout), false, cmds)
	}
	node, err := cluster.MasterForKey(ctx, key)
	for hop, asking := 0, false; err == nil; hop++ {
		err = execPipeline(ctx, node.WithTimeout(timeout), asking, cmds)
		var addr string
		if addr, asking = redirected(err); addr == "" || hop == maxHops {
			break
		}
		node, err = masterAt(ctx, cluster, addr)
	}
	return err
}

// execPipeline sends commands to a node in one pipeline and returns the first error.
func execPipeline(ctx context.Context, node *redis.Client, asking bool, cmds []redis.Cmder) error {
	pipe := node.Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
	}
	for _, cmd := range cmds {
		_ = pipe.Process(ctx, cmd)
	}
	_, err := pipe.Exec(ctx)
	return err
}

// redirected returns the address to which an error redirects; empty = none. ask means
// that the slot itself has not moved yet.
func redirected(err error) (addr string, ask bool) {
	ask = redis.HasErrorPrefix(err, "ASK ")
	if !ask && !redis.HasErrorPrefix(err, "MOVED ") {
		return "", false
	}
	words := strings.Fields(err.Error())
	return words[len(words)-1], ask
}

// masterAt returns the cluster's master with that address.
func masterAt(ctx context.Context, cluster *redis.ClusterClient, addr string) (*redis.Client, error) {
	found := make(chan *redis.Client, 1)
	err := cluster.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == addr {
			found <- node
		}
		return nil
	})
	select {
	case node := <-found:
		return node, nil
	default:
		return nil, fmt.Errorf("find cluster node %s: %w", addr, err)
	}
}
