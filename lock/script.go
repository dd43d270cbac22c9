package lock

import (
	"context"
	"errors"

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
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.push(ctx, "eval", c.script.source)
		return nil
	}
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// wait implements [pending].
func (c *call) wait(ctx context.Context) (any, error) {
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	if err := c.reply.WaitContext(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return c.cmd.Val(), nil
}
