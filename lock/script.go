package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock/internal/transport"
)

// script is a Lua script, called by its SHA-1 hash.
type script struct{ source, sha string }

func newScript(source string) *script {
	return &script{source, redis.NewScript(source).Hash()}
}

// call is a command in progress, either a script or a plain command.
type call struct {
	transport transport.Transport
	script    *script // nil = a plain command
	cmd       *transport.Command
	reply     transport.Reply
	first     transport.Command          // spares an allocation: most calls send one command
	fallback  func() (*script, []string) // what to send after a nil reply; nil = nothing
}

// inlineCall is a call with space for the usual number of arguments.
type inlineCall struct {
	call
	args [6]string
}

// send sends a call of the script. Arguments are strings and integers.
func (s *script) send(ctx context.Context, t transport.Transport, keys []string, args ...any) *call {
	c := &inlineCall{call: call{transport: t, script: s}}
	c.send(ctx, &c.first, appendArgs(s.argv(c.args[:0], keys), args))
	return &c.call
}

// argv appends the beginning of a call to args.
func (s *script) argv(args, keys []string) []string {
	args = append(args, "evalsha", s.sha, strconv.Itoa(len(keys)))
	return append(args, keys...)
}

// sendPlain sends a command that is not a script.
func sendPlain(ctx context.Context, t transport.Transport, args ...any) *call {
	c := &inlineCall{call: call{transport: t}}
	c.send(ctx, &c.first, appendArgs(c.args[:0], args))
	return &c.call
}

// appendArgs appends args as strings.
func appendArgs(argv []string, args []any) []string {
	for _, arg := range args {
		switch arg := arg.(type) {
		case string:
			argv = append(argv, arg)
		case int64:
			argv = append(argv, strconv.FormatInt(arg, 10))
		default:
			argv = append(argv, strconv.Itoa(arg.(int)))
		}
	}
	return argv
}

func (c *call) send(ctx context.Context, cmd *transport.Command, args []string) {
	cmd.Args = args
	c.cmd, c.reply = cmd, c.transport.Send(ctx, cmd)
}

// resend sends the script again.
func (c *call) resend(ctx context.Context, verb, script string) {
	args := slices.Clone(c.cmd.Args)
	args[0], args[1] = verb, script
	c.send(ctx, new(transport.Command), args)
}

// resendIfNeeded implements [resender]. If the server does not know the script (after
// a start, a failover or SCRIPT FLUSH), it sends the call again with the source.
func (c *call) resendIfNeeded(ctx context.Context) error {
	err := c.reply.Wait(ctx)
	if err == nil {
		return nil
	}
	if redis.HasErrorPrefix(err, "NOSCRIPT") && c.script != nil {
		c.resend(ctx, "eval", c.script.source)
		return nil
	}
	if errors.Is(sentinelOf(err), ErrReadOnly) {
		c.transport.DropStale()
	}
	if errors.Is(err, redis.Nil) || redis.HasErrorPrefix(err, "TRYAGAIN") && c.script != nil {
		return nil
	}
	return err
}

// waitLast waits for the reply to the command that was sent last.
func (c *call) waitLast(ctx context.Context) { _ = c.reply.Wait(ctx) }

// writtenAt returns when the answered command was written; zero = not known. Call it
// after wait.
func (c *call) writtenAt() time.Time { return c.cmd.Written }

// While the keys of a lock move to another cluster node, a call is sent again after
// every tryAgainInterval, for at most tryAgainLimit.
const (
	tryAgainInterval = 2 * time.Millisecond
	tryAgainLimit    = 5 * time.Second
)

// wait implements [future]. After a nil reply it sends the fallback, if there is one.
// If only some of the lock's keys have moved to another cluster node, it sends the call
// again until all have.
func (c *call) wait(ctx context.Context) (any, error) {
	var began time.Time
	for {
		if err := c.resendIfNeeded(ctx); err != nil {
			return nil, err
		}
		err := c.reply.Wait(ctx)
		if errors.Is(err, redis.Nil) && c.fallback != nil {
			script, argv := c.fallback()
			c.script, c.fallback = script, nil
			c.send(ctx, new(transport.Command), argv)
			continue
		}
		if err == nil || errors.Is(err, redis.Nil) {
			return c.cmd.Value, nil
		}
		if began.IsZero() {
			began = time.Now()
		}
		switch {
		case !redis.HasErrorPrefix(err, "TRYAGAIN") || time.Since(began) > tryAgainLimit:
			return nil, err
		case !sleep(ctx, tryAgainInterval):
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
		c.resend(ctx, "evalsha", c.script.sha)
	}
}
