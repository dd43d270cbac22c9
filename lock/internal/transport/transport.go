// Package transport sends commands to a Redis server, or to the nodes of a cluster, in
// the order of the calls: those of many callers on one connection per node. The order
// makes it safe to give up on a command: one that undoes it arrives behind it.
package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Transport sends commands in the order of the calls. It never sends a command again:
// after a lost reply, the caller could not tell whether the first one was executed.
type Transport interface {
	// Send queues cmd, behind any number of others, and returns. On a cluster it waits for room in
	// the queue, at most until ctx ends.
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
	// Subscribe returns the connection that receives messages. It connects with its first
	// request.
	Subscribe(ctx context.Context) Subscriber
	// Close closes the transport. Commands in flight fail.
	Close() error
}

// Subscriber receives the messages of channels.
type Subscriber interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	// Messages returns the messages and confirmations, each a [redis.Message] or a
	// [redis.Subscription].
	Messages() <-chan any
	Close() error
}

// subscriber hides a [redis.PubSub]: a package that mentions it, also as the type of a field or
// of a parameter of a method, compiles all methods of go-redis' clients again.
type subscriber struct{ *redis.PubSub }

func (s subscriber) Messages() <-chan any { return s.ChannelWithSubscriptions() }

// reader is the conn on which a command was written. It hides the client of the conn, as subscriber
// hides its.
type reader interface {
	readFor(ctx context.Context, c *Command)
}

// Command is a command in progress and its outcome.
type Command struct {
	Args  []string
	Value any // of the reply: a string, an int64, nil, or a []any of these; set before the end of Wait

	// Written is a time before the write; zero = not known.
	Written time.Time

	// Used by pipe.
	done        chan struct{} // closed when Value or err is set
	err         error
	soloConn    reader // on which it was written while no other command was in flight; else nil
	callerReads bool   // the caller reads the reply; guarded by the mu of soloConn
}

// Reply is the reply to a command in progress.
type Reply interface {
	// Wait waits for the reply and returns its error. If that is nil or [redis.Nil],
	// the command has its value. If ctx ends first, the server may still execute the
	// command, which must then not be accessed. Several goroutines may wait for the
	// reply of a cluster.
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

// complete sets the outcome of the command and informs its caller.
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
	close(c.done)
}

// Wait implements [Reply].
func (c *Command) Wait(ctx context.Context) error {
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

// cluster is the transport to a cluster. It uses go-redis' full-duplex
// AutoPipeline, which is marked experimental. Nothing outside this file depends on it.
type cluster struct {
	tracker *connTracker
	client  *redis.ClusterClient
	pipe    *redis.AutoPipeliner
}

// NewCluster returns a transport to the cluster of rdb. It has rdb's addresses and
// credentials, and connections of its own.
func NewCluster(rdb *redis.ClusterClient) (Transport, error) {
	o := *rdb.Options()
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.ContextTimeoutEnabled = true
	o.ClusterStateReloadInterval = time.Second
	o.Addrs = slices.Clone(o.Addrs) // go-redis appends to the slice that it is given
	// A replica could answer with an old state of a key.
	o.ReadOnly, o.RouteByLatency, o.RouteRandomly = false, false, false
	o.MaintNotificationsConfig = noMaintNotifications()
	if o.Dialer == nil {
		o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
	}
	tracker := &connTracker{}
	tracker.wrap(&o.Dialer)
	client := redis.NewClusterClient(&o)
	pipelined := redis.DefaultAutoPipelineOptions()
	pipelined.FullDuplex = true
	pipe, err := client.AsyncAutoPipelineWithOptions(pipelined)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("open pipeline: %w", err)
	}
	return &cluster{tracker, client, pipe}, nil
}

func (c *cluster) Send(ctx context.Context, cmd *Command) Reply {
	sent := cmd.cmd(ctx)
	return &clusterReply{AutoFuture: c.pipe.Submit(ctx, noRetry{sent}), command: cmd, sent: sent}
}

// clusterReply is the reply to a command that go-redis has sent.
type clusterReply struct {
	redis.AutoFuture
	command *Command
	sent    *redis.Cmd
	take    sync.Once // sets the value of the command
}

func (r *clusterReply) Wait(ctx context.Context) error {
	err := r.WaitContext(ctx)
	if err == nil {
		r.take.Do(func() { r.command.Value = r.sent.Val() })
	}
	return err
}

// noRetry is a command that go-redis does not send again; a cluster client ignores
// MaxRetries. It still follows redirections: the redirecting node has not executed the
// command.
type noRetry struct{ *redis.Cmd }

// NoRetry implements [redis.Cmder].
func (noRetry) NoRetry() bool { return true }

// maxHops is the number of redirections to other cluster nodes that are followed.
const maxHops = 3

func (c *cluster) ExecWithWait(ctx context.Context, key string, cmd *Command, replicas int, timeout time.Duration) (acks int64, err error) {
	node, err := c.client.MasterForKey(ctx, key)
	for hop, asking := 0, false; err == nil; hop++ {
		acks, err = execWithWait(ctx, node, asking, cmd, replicas, timeout)
		var addr string
		if addr, asking = redirected(err); addr == "" || hop == maxHops {
			break
		}
		node, err = c.masterAt(ctx, addr)
	}
	return acks, err
}

// DropStale does nothing: cluster nodes report who is the master.
func (c *cluster) DropStale() {}

func (c *cluster) Clustered() bool { return true }

func (c *cluster) Subscribe(ctx context.Context) Subscriber {
	return subscriber{c.client.Subscribe(ctx)}
}

func (c *cluster) Close() error {
	c.tracker.close() // first: otherwise Close waits for a node that does not answer
	return c.client.Close()
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

var errNoMaster = errors.New("it is not a known master")

// masterAt returns the cluster's master with that address.
func (c *cluster) masterAt(ctx context.Context, addr string) (*redis.Client, error) {
	found := make(chan *redis.Client, 1)
	err := c.client.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == addr {
			found <- node
		}
		return nil
	})
	select {
	case node := <-found:
		return node, nil
	default:
		return nil, fmt.Errorf("find cluster node %s: %w", addr, cmp.Or(err, errNoMaster))
	}
}
