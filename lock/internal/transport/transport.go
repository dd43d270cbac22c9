// Package transport sends commands to a Redis server, or to the nodes of a cluster, in
// the order of the calls: those of many callers on one connection per node. The order
// makes it safe to give up on a command: one that undoes it arrives behind it.
package transport

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Transport sends commands in the order of the calls. It never sends a command again:
// after a lost reply, the caller could not tell whether the first one was executed.
type Transport interface {
	// Send queues cmd and returns. It waits only if too many commands are in flight,
	// and at most until ctx ends.
	Send(ctx context.Context, cmd *Command) Reply
	// ExecWithWait executes cmd, which has key, on a connection that no other command
	// uses meanwhile, with WAIT right behind it. It returns how many replicas
	// confirmed the write within timeout.
	ExecWithWait(ctx context.Context, key string, cmd *Command, replicas int, timeout time.Duration) (acks int64, err error)
	// DropStale closes connections to servers that may not be the master any more.
	DropStale()
	// Clustered reports whether keys are distributed over nodes. The keys of one
	// command must then share a slot.
	Clustered() bool
	// Subscribe opens the connection that receives messages.
	Subscribe(ctx context.Context) *redis.PubSub
	// Close closes the transport. Commands in flight fail.
	Close() error
}

// Command is a command in progress and its outcome.
type Command struct {
	Args  []string
	Value any // of the reply: a string, an int64, nil, or a []any of these; set before the end of Wait

	// Callback receives the outcome; nil = the caller waits for it. A cluster does not
	// support callbacks.
	Callback Callback
	// Written is a time before the write; zero = not known.
	Written time.Time

	// Used by pipe.
	done        chan struct{} // closed when Value or err is set; nil with a callback
	err         error
	soloConn    *conn // on which it was written while no other command was in flight; else nil
	callerReads bool  // the caller reads the reply; guarded by soloConn.mu
}

// Callback receives the outcome of a command.
type Callback interface {
	// Done is called once, when the command has its value, or with its error. With an
	// error, it may be called during Send and must not wait for the sender.
	Done(err error)
}

// Reply is the reply to a command in progress.
type Reply interface {
	// Wait waits for the reply and returns its error. If that is nil or [redis.Nil],
	// the command has its value. If ctx ends first, the server may still execute the
	// command, which must then not be accessed.
	Wait(ctx context.Context) error
}

// cmd returns the command as a go-redis command.
func (c *Command) cmd(ctx context.Context) *redis.Cmd {
	args := make([]any, len(c.Args))
	for i, arg := range c.Args {
		args[i] = arg
	}
	return redis.NewCmd(ctx, args...)
}

// complete sets the outcome of the command and informs its caller or its callback.
func (c *Command) complete(value any, err error) {
	switch failure, failed := value.(serverError); {
	case err != nil:
		c.err = err
	case failed:
		c.err = failure
	case value == nil:
		c.err = redis.Nil
	default:
		c.Value = value
	}
	if c.Callback != nil {
		c.Callback.Done(c.err)
		return
	}
	close(c.done)
}

// Wait implements [Reply]. For a command with a callback, call it after Done.
func (c *Command) Wait(ctx context.Context) error {
	if c.Callback != nil {
		return c.err
	}
	if conn := c.soloConn; conn != nil && !c.finished() {
		c.soloConn = nil // a second call of Wait leaves the reading to readLoop
		conn.readFor(ctx, c)
	}
	if c.finished() {
		return c.err
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Command) finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// waitSlack is the time for the network, in addition to the timeout of WAIT.
const waitSlack = time.Second

// execWithWait executes a command and WAIT on a connection to node. asking is for a key
// that is being moved to the node.
func execWithWait(ctx context.Context, node *redis.Client, asking bool, cmd *Command, replicas int, timeout time.Duration) (acks int64, err error) {
	pipe := node.WithTimeout(timeout + waitSlack).Pipeline()
	if asking {
		_ = pipe.Process(ctx, redis.NewStatusCmd(ctx, "asking"))
	}
	sent := cmd.cmd(ctx)
	_ = pipe.Process(ctx, sent)
	wait := redis.NewIntCmd(ctx, "wait", replicas, timeout.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, err = pipe.Exec(ctx)
	cmd.Value = sent.Val()
	return wait.Val(), err
}

// CloneOptions returns options for another client like rdb, without the parts that
// serve one client only. A client stores 0 for a value that was switched off by −1. In
// new options 0 means the default, so CloneOptions restores a negative value.
func CloneOptions(rdb *redis.Client) redis.Options {
	o := *rdb.Options()
	for _, limit := range []*time.Duration{&o.ReadTimeout, &o.WriteTimeout, &o.MinRetryBackoff, &o.MaxRetryBackoff} {
		if *limit <= 0 {
			*limit--
		}
	}
	if o.MaxRetries == 0 {
		o.MaxRetries = -1
	}
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = noMaintNotifications()
	return o
}

// noMaintNotifications returns a configuration without maintenance notifications,
// which only go-redis itself could handle. Each client needs its own value, because
// go-redis writes to it while it connects.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
