package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// script is a Lua script, called by its hash.
type script struct{ source, sha string }

func newScript(source string) script {
	return script{source, redis.NewScript(source).Hash()}
}

// call is a script under way.
type call struct {
	wire   wire
	script script
	keys   []string
	args   []any
	cmd    *redis.Cmd
	reply  reply
}

// send puts a call of the script on its way.
func (s script) send(ctx context.Context, w wire, keys []string, args ...any) *call {
	c := &call{wire: w, script: s, keys: keys, args: args}
	c.push(ctx, "evalsha", s.sha)
	return c
}

func (c *call) push(ctx context.Context, verb, script string) {
	argv := make([]any, 0, 3+len(c.keys)+len(c.args))
	argv = append(argv, verb, script, len(c.keys))
	for _, key := range c.keys {
		argv = append(argv, key)
	}
	c.cmd = redis.NewCmd(ctx, append(argv, c.args...)...)
	c.reply = c.wire.send(ctx, c.cmd)
}

// settle implements [pending]. If the server does not know the script (after a
// start, a failover or SCRIPT FLUSH), it sends the call again, with the source.
func (c *call) settle(ctx context.Context) error {
	err := c.reply.WaitContext(ctx)
	if err == nil {
		return nil
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.push(ctx, "eval", c.script.source)
		return nil
	}
	if redis.HasErrorPrefix(err, "READONLY") {
		c.wire.redial()
	}
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "TRYAGAIN") {
		return nil
	}
	return err
}

// While a lock's keys move to another node of a cluster, a call is sent this
// often, for so long.
const (
	movePause = 2 * time.Millisecond
	moveLimit = 5 * time.Second
)

// wait implements [pending]. Half of a lock's keys may be on their way to another
// node: it sends the call again until they have arrived.
func (c *call) wait(ctx context.Context) (any, error) {
	began := time.Now()
	for {
		if err := c.settle(ctx); err != nil {
			return nil, err
		}
		err := c.reply.WaitContext(ctx)
		switch {
		case err == nil || errors.Is(err, redis.Nil):
			return c.cmd.Val(), nil
		case !redis.HasErrorPrefix(err, "TRYAGAIN") || time.Since(began) > moveLimit:
			return nil, err
		case !pauseFor(ctx, movePause):
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		c.push(ctx, "evalsha", c.script.sha)
	}
}
