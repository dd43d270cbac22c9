package lock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// transport sends commands to the server in the order of the calls, those of many
// callers on one connection per node. The order makes it safe to give up on an
// acquire: its undo arrives behind it.
type transport interface {
	// send queues cmd and returns. It waits only if too many commands are in flight,
	// and at most until ctx ends.
	send(ctx context.Context, cmd *command) reply
	// pipelineOn sends commands in one pipeline to the node that has key, on a
	// connection that no other command uses meanwhile. It waits for each reply for at
	// most timeout and returns the first error.
	pipelineOn(ctx context.Context, key string, timeout time.Duration, cmds ...redis.Cmder) error
	// dropStale closes connections to servers that may not be the master any more.
	dropStale()
	// clustered reports whether keys are distributed over nodes. The keys of one
	// command must then share a slot.
	clustered() bool
	// subscribe opens the connection that receives messages.
	subscribe(ctx context.Context) *redis.PubSub
	// close closes the transport. Commands in flight fail.
	close() error
}

// command is a command in progress and its outcome.
type command struct {
	args  []string
	value any // of the reply: a string, an int64, nil, or a []any of these

	// callback receives the outcome; nil = the caller waits for it. Only pipe supports
	// callbacks.
	callback callback

	// Used by pipe.
	written     time.Time     // before the write; zero = not known
	done        chan struct{} // closed when value or err is set; nil with a callback
	err         error
	soloConn    *pipeConn // on which it was written while no other command was in flight; else nil
	callerReads bool      // the caller reads the reply; guarded by soloConn.mu
}

// callback receives the outcome of a command.
type callback interface {
	// done is called once, when the command has its value or its error. With an error,
	// it may be called during send and must not wait for the sender.
	done()
}

// cmd returns the command as a go-redis command.
func (c *command) cmd(ctx context.Context) *redis.Cmd {
	args := make([]any, len(c.args))
	for i, arg := range c.args {
		args[i] = arg
	}
	return redis.NewCmd(ctx, args...)
}

// reply is the reply to a command in progress.
type reply interface {
	// wait waits for the reply and returns its error. If that is nil or [redis.Nil],
	// the command has its value. If ctx ends first, the server may still execute the
	// command, which must then not be accessed.
	wait(ctx context.Context) error
}

// newTransport returns a new transport to the server of rdb. It uses rdb's address and
// credentials, but no retries: if go-redis sent an acquire again after a lost reply,
// the lock would seem to be held by another client.
func newTransport(rdb redis.UniversalClient) (transport, error) {
	switch c := rdb.(type) {
	case *redis.Client:
		o := cloneOptions(c)
		o.MaxRetries = -1
		o.DialerRetries = 1
		o.ContextTimeoutEnabled = true
		tracker := &connTracker{}
		tracker.wrap(&o.Dialer)
		return newPipe(redis.NewClient(&o), tracker), nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.MaxRetries = -1
		o.DialerRetries = 1
		o.ContextTimeoutEnabled = true
		o.ClusterStateReloadInterval = time.Second
		o.Addrs = slices.Clone(o.Addrs) // go-redis appends to the slice that it is given
		// A replica could answer with an old state of the lock.
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.MaintNotificationsConfig = noMaintNotifications()
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		tracker := &connTracker{}
		tracker.wrap(&o.Dialer)
		return newClusterTransport(redis.NewClusterClient(&o), tracker)
	default:
		return nil, fmt.Errorf("%w: locks do not support a %T; use a redis.Client or a redis.ClusterClient", ErrArgument, rdb)
	}
}

// cloneOptions returns options for another client like rdb, without the parts that
// serve one client only. A client stores 0 for a value that was switched off by −1. In
// new options 0 means the default, so cloneOptions restores a negative value.
func cloneOptions(rdb *redis.Client) redis.Options {
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

// clusterTransport is the transport to a cluster. It uses go-redis' full-duplex
// AutoPipeline, which is marked experimental. Nothing outside this file depends on it.
type clusterTransport struct {
	tracker *connTracker
	client  *redis.ClusterClient
	pipe    *redis.AutoPipeliner
}

// newClusterTransport returns a transport that owns client. tracker tracks the
// connections of client.
func newClusterTransport(client *redis.ClusterClient, tracker *connTracker) (*clusterTransport, error) {
	o := redis.DefaultAutoPipelineOptions()
	o.FullDuplex = true
	pipe, err := client.AsyncAutoPipelineWithOptions(o)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("lock: open pipeline: %w", err)
	}
	return &clusterTransport{tracker, client, pipe}, nil
}

func (p *clusterTransport) send(ctx context.Context, cmd *command) reply {
	sent := cmd.cmd(ctx)
	return &clusterReply{p.pipe.Submit(ctx, noRetry{sent}), cmd, sent}
}

// clusterReply is the reply to a command that go-redis has sent.
type clusterReply struct {
	redis.AutoFuture
	command *command
	sent    *redis.Cmd
}

func (r *clusterReply) wait(ctx context.Context) error {
	err := r.WaitContext(ctx)
	if err == nil {
		r.command.value = r.sent.Val()
	}
	return err
}

// noRetry is a command that go-redis does not send again; a cluster client ignores
// MaxRetries. It still follows redirections: the redirecting node has not executed the
// command.
type noRetry struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

func (p *clusterTransport) pipelineOn(ctx context.Context, key string, timeout time.Duration, cmds ...redis.Cmder) error {
	return execOnMaster(ctx, p.client, key, timeout, cmds)
}

// dropStale does nothing: cluster nodes report who is the master.
func (p *clusterTransport) dropStale() {}

func (p *clusterTransport) clustered() bool { return true }

func (p *clusterTransport) subscribe(ctx context.Context) *redis.PubSub {
	return p.client.Subscribe(ctx)
}

func (p *clusterTransport) close() error {
	p.tracker.close() // first: otherwise Close waits for a node that does not answer
	return p.client.Close()
}
