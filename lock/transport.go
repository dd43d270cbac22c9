package lock

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// transport carries commands to the server in the order in which they were handed
// in, many callers' commands together, on one connection a node. The order is
// what makes it safe to give up on an acquire: its undo arrives behind it.
type transport interface {
	// send puts cmd on its way. It does not wait for the network, unless so
	// much is under way that there is no room; then it waits for ctx at most.
	send(ctx context.Context, cmd *command) reply
	// pipelineOn sends commands to the node that has key, one right behind the other
	// on one connection that nobody else uses meanwhile, and waits for the replies,
	// each for patience at most. It returns the first error reply, or why there
	// are none.
	pipelineOn(ctx context.Context, key string, patience time.Duration, cmds ...redis.Cmder) error
	// dropStale gives up connections to servers that turned out not to be masters.
	dropStale()
	// clustered reports whether keys are spread over nodes, so that the keys of
	// one command must share a slot.
	clustered() bool
	// subscribe opens the connection on which messages arrive.
	subscribe(ctx context.Context) *redis.PubSub
	// close ends the wire; commands in flight fail.
	close() error
}

// command is one on its way, and what came of it.
type command struct {
	args  []string
	value any // of the reply: a string, an int64, nil, or a []any of these

	// callback is told of the outcome instead of being waited for. Nil = somebody
	// waits. Only streams know listeners.
	callback callback

	// The stream's.
	written     time.Time     // before it was; zero = not known
	done        chan struct{} // closed once value or err is set; nil with a listener
	err         error
	soloConn    *pipeConn // on which it was written while nothing else was under way; else nil
	callerReads bool      // its waiter reads the reply; guarded by alone.mu
}

// callback hears of the outcome of a command.
type callback interface {
	// done is called once, when the command has its value or its error, by whoever
	// found that out. In case of an error, as which nil counts, that may be the
	// sender, who must not be waited for.
	done()
}

// cmd returns the command as go-redis wants it.
func (c *command) cmd(ctx context.Context) *redis.Cmd {
	args := make([]any, len(c.args))
	for i, arg := range c.args {
		args[i] = arg
	}
	return redis.NewCmd(ctx, args...)
}

// reply is a reply to come.
type reply interface {
	// wait returns the command's error once its reply is there; for nil, as for
	// [redis.Nil], the command has its value then. When ctx ends first the command
	// still travels and may be executed; it must then not be touched.
	wait(ctx context.Context) error
}

// newTransport returns a wire of its own to where rdb points: it has rdb's address
// and credentials but not its habits. A library that sends a lock's command
// again behind our back makes a lost reply look like somebody else's lock.
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
		// A replica would answer for a lock, with what it was some time ago.
		o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
		o.MaintNotificationsConfig = noMaintNotifications()
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		tracker := &connTracker{}
		tracker.wrap(&o.Dialer)
		return newClusterTransport(redis.NewClusterClient(&o), tracker)
	default:
		return nil, fmt.Errorf("%w: a %T spreads keys over servers in a way locks cannot follow; use a redis.Client or redis.ClusterClient", ErrArgument, rdb)
	}
}

// cloneOptions returns options for another client like rdb, not sharing what serves
// one client only. A client keeps its options as it has understood them, with 0 for
// what was switched off by −1; taken as they are, 0 would mean the default again.
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

// noMaintNotifications has a client do without notice of maintenance: it is of no use to a
// connection that we speak on ourselves. The configuration of the client that the
// options are from is no other's to read: it writes to it when it connects.
func noMaintNotifications() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}

// clusterTransport is the wire to a cluster, over go-redis' full-duplex AutoPipeline,
// which is marked experimental: nothing outside this file knows of it.
type clusterTransport struct {
	tracker *connTracker
	client  *redis.ClusterClient
	pipe    *redis.AutoPipeliner
}

// newClusterTransport returns a wire over client, whose connections are links. Both are
// the wire's from now on.
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

// clusterReply is the reply to a command as go-redis knows it.
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

// noRetry is a command that is not sent again: a cluster's client would, whatever
// its MaxRetries. It still follows a slot to another node, since the one that
// sends it there has not executed it.
type noRetry struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

func (p *clusterTransport) pipelineOn(ctx context.Context, key string, timeout time.Duration, cmds ...redis.Cmder) error {
	return execOnMaster(ctx, p.client, key, timeout, cmds)
}

// dropStale has nothing to do: a cluster's nodes tell who is master.
func (p *clusterTransport) dropStale() {}

func (p *clusterTransport) clustered() bool { return true }

func (p *clusterTransport) subscribe(ctx context.Context) *redis.PubSub {
	return p.client.Subscribe(ctx)
}

func (p *clusterTransport) close() error {
	p.tracker.close() // or a node that does not answer would be waited for
	return p.client.Close()
}
