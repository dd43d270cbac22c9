package cli

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/tui"
)

// commandStats counts the commands of a client. It is safe for concurrent use.
type commandStats struct {
	mu     sync.Mutex
	counts map[string]tui.CommandStat
}

// newCommandStats returns the counts of the commands that clients send from now on.
// onOpen calls its argument for each client.
func newCommandStats(onOpen func(func(*redis.Client))) *commandStats {
	l := &commandStats{counts: make(map[string]tui.CommandStat)}
	onOpen(func(rdb *redis.Client) { rdb.AddHook(l) })
	return l
}

// Commands returns the counts so far.
func (l *commandStats) Commands() []tui.CommandStat {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Values(l.counts))
}

// DialHook implements redis.Hook.
func (l *commandStats) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

// ProcessHook implements redis.Hook.
func (l *commandStats) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		begin := time.Now()
		err := next(ctx, cmd)
		l.record(begin, cmd)
		return err
	}
}

// ProcessPipelineHook implements redis.Hook.
func (l *commandStats) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		begin := time.Now()
		err := next(ctx, cmds)
		l.record(begin, cmds...)
		return err
	}
}

// record counts commands of one round trip.
func (l *commandStats) record(begin time.Time, cmds ...redis.Cmder) {
	now := time.Now()
	each := now.Sub(begin) / time.Duration(max(1, len(cmds)))
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cmd := range cmds {
		name := cmd.FullName()
		c := l.counts[name]
		c.Name, c.Last = name, now
		c.Count++
		c.Took += each
		if err := cmd.Err(); err != nil && err != redis.Nil {
			c.Errors++
		}
		l.counts[name] = c
	}
}
