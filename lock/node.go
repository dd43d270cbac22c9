package lock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock/internal/transport"
)

// node is one server of a quorum.
type node struct {
	transport.Transport
	addr         string
	unresponsive atomic.Bool // did not answer the last command
	scripted     atomic.Bool // has run one of our scripts

	identified *atomic.Int64 // of the nodeSet

	mu      sync.Mutex
	runID   string      // of the server process; empty = not known
	upSince time.Time   // the latest possible start; zero = not known
	calls   []*nodeCall // of rounds, in order; receive runs unless it is empty
}

// nodePoolSize is the number of failed dials after which go-redis only probes once a
// second. go-redis uses the size of the pool for it; a node needs two connections.
const nodePoolSize = 1000

func newNode(rdb *redis.Client, identified *atomic.Int64) *node {
	n := &node{addr: rdb.Options().Addr, identified: identified}
	o := transport.CloneOptions(rdb)
	first := o.OnConnect
	o.OnConnect = func(ctx context.Context, conn *redis.Conn) error {
		if first != nil {
			if err := first(ctx, conn); err != nil {
				return err
			}
		}
		return n.identify(ctx, conn)
	}
	o.PoolSize, o.PipelinePoolSize, o.MinIdleConns = nodePoolSize, nodePoolSize, 0
	n.Transport = transport.NewPipe(o)
	return n
}

// identify asks for the run ID and the uptime of the server, first on every
// connection. A server that refuses INFO is accepted without them.
func (n *node) identify(ctx context.Context, conn redis.Cmdable) error {
	info, err := conn.Info(ctx, "server").Result()
	var refused redis.Error
	if err != nil && !errors.As(err, &refused) {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.runID, n.upSince = "", time.Time{}
	for line := range strings.Lines(info) {
		field, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch field {
		case "run_id":
			n.runID = value
		case "uptime_in_seconds":
			n.upSince = bootTime(value)
		}
	}
	n.identified.Add(1)
	return nil
}

// bootTime returns the latest moment at which a server with this uptime, in seconds,
// may have started. The server counts clock ticks, so the uptime may be 1 s off.
func bootTime(uptime string) time.Time {
	seconds, err := strconv.ParseInt(uptime, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(seconds-1) * time.Second)
}

// serverID returns the run ID of the server; empty if it is not known.
func (n *node) serverID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID
}

// checkUptime returns an error if the server has been up for less than minUptime.
func (n *node) checkUptime(minUptime time.Duration) error {
	if minUptime == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.upSince.IsZero() {
		return errors.New("it does not tell its uptime")
	}
	if up := time.Since(n.upSince); up < minUptime {
		return fmt.Errorf("it has been up for %v, less than %v", up.Truncate(time.Second), minUptime)
	}
	return nil
}

// ping notes whether the node answers within timeout.
func (n *node) ping(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	n.noteReply(n.Send(ctx, &transport.Command{Args: []string{"ping"}}).Wait(ctx))
}

// noteReply notes whether the node answered a command that ended with err.
func (n *node) noteReply(err error) {
	if !errors.Is(err, errReleasing) {
		n.unresponsive.Store(outcomeUnknown(err) || neverSent(err))
	}
}

// nodeState is the copy of a [Quorum.Redlock] on one node. As a transport it refuses
// commands after closeAcquires.
type nodeState struct {
	transport.Transport // the node's
	node                *node

	mu       sync.Mutex
	closed   bool  // closeAcquires was called
	inFlight int   // acquires whose outcome is not known
	held     bool  // the node had the copy when it last answered
	err      error // why it has none, or why the node does not answer
}

var (
	errCopyGone  = errors.New("its copy is gone")
	errReleasing = fmt.Errorf("%w: the lock was given back", ErrClosed)
)

// failedReply is the reply to a command that was not sent.
type failedReply struct{ error }

func (r failedReply) Wait(context.Context) error { return r.error }

// Send implements [transport.Transport]. Scripts that are sent again come through it,
// too.
func (s *nodeState) Send(ctx context.Context, cmd *transport.Command) transport.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return failedReply{errReleasing}
	}
	return s.Transport.Send(ctx, cmd)
}

// closeAcquires makes Send refuse all commands, and returns whether the node may
// have a copy.
func (s *nodeState) closeAcquires() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.held || s.inFlight > 0
}

// probablyHeld reports whether the node had a copy when it last answered, or has not
// answered an acquire yet.
func (s *nodeState) probablyHeld() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.inFlight > 0 && s.err != errCopyGone
}

// mayHold reports whether the node may have a copy, or may still create one.
func (s *nodeState) mayHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held || s.inFlight > 0
}

// onSend notes that an acquire is about to be sent.
func (s *nodeState) onSend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inFlight++
}

// onAcquire notes the reply to an acquire. It returns why the node has no vote: a
// node that is not up long enough may have a copy and no vote.
func (s *nodeState) onAcquire(key string, reply any, err error, minUptime time.Duration) error {
	err = holderOf(key, reply, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, ErrHeld) || !outcomeUnknown(err) {
		s.inFlight--
	}
	s.held, s.err = err == nil, err
	if err == nil {
		s.err = s.node.checkUptime(minUptime)
	}
	return s.err
}

// holderOf returns err, or the holder whom the reply to an acquire or a peek names.
func holderOf(key string, reply any, err error) error {
	if err == nil {
		var held *HeldError
		if held, _, err = parseAcquire(key, reply); held != nil {
			return held
		}
	}
	return err
}

// onExtend notes the reply to an extension, and returns why the copy was not extended.
func (s *nodeState) onExtend(reply any, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	if err == nil {
		s.held = reply == int64(1) || reply == "OK"
	}
	if err == nil && !s.held {
		s.err = errCopyGone
	}
	return s.err
}

// onPeek notes the reply to a peek, and returns why the node would not grant the lock.
func (s *nodeState) onPeek(key string, reply any, err error, minUptime time.Duration) error {
	if err == nil && reply == nil {
		err = s.node.checkUptime(minUptime)
	} else {
		err = holderOf(key, reply, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	return err
}

// onRelease notes the reply to a release, and returns its error.
func (s *nodeState) onRelease(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.err = s.held && err != nil, err
	return err
}

// vote returns what the node said last.
func (s *nodeState) vote() Vote {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Vote{Addr: s.node.addr, Held: s.held, Err: s.err}
}
