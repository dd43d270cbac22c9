package lock

import (
	"context"
	_ "embed"

	"github.com/redis/go-redis/v9"
)

var (
	//go:embed mutex_acquire.lua
	mutexAcquireSource string
	//go:embed mutex_release.lua
	mutexReleaseSource string
	//go:embed mutex_extend.lua
	mutexExtendSource string

	mutexAcquire = newScript(mutexAcquireSource)
	mutexRelease = newScript(mutexReleaseSource)
	mutexExtend  = newScript(mutexExtendSource)
)

// script is a Lua script on one key, called by its hash.
type script struct{ source, sha string }

func newScript(source string) script {
	return script{source, redis.NewScript(source).Hash()}
}

// call is a script on its way to the server.
type call struct {
	script script
	key    string
	args   []any
	cmd    *redis.Cmd
	reply  reply
}

// send puts a call of the script on its way. It goes by hash: a server that
// does not know it says so.
func (s script) send(ctx context.Context, w wire, key string, args ...any) *call {
	c := &call{script: s, key: key, args: args}
	c.cmd = redis.NewCmd(ctx, append([]any{"evalsha", s.sha, 1, key}, args...)...)
	c.reply = w.send(ctx, c.cmd)
	return c
}

// settle waits for the reply. If the server does not know the script (after a
// start, a failover or SCRIPT FLUSH), it sends the call again, with the source,
// and returns nil: there is a second reply to wait for.
func (c *call) settle(ctx context.Context, w wire) error {
	err := c.reply.WaitContext(ctx)
	if redis.HasErrorPrefix(err, "NOSCRIPT") {
		c.cmd = redis.NewCmd(ctx, append([]any{"eval", c.script.source, 1, c.key}, c.args...)...)
		c.reply = w.send(ctx, c.cmd)
		return nil
	}
	return err
}

// wait returns what the script returned. After an error the command may still
// be in flight.
func (c *call) wait(ctx context.Context, w wire) (any, error) {
	if err := c.settle(ctx, w); err != nil {
		return nil, err
	}
	if err := c.reply.WaitContext(ctx); err != nil {
		return nil, err
	}
	return c.cmd.Val(), nil
}

// run calls the script and waits for what it returns.
func (s script) run(ctx context.Context, w wire, key string, args ...any) (any, error) {
	return s.send(ctx, w, key, args...).wait(ctx, w)
}
