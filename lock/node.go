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
	runID   string    // of the server process; empty = not known
	upSince time.Time // the latest possible start; zero = not known
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
func (n *node) identify(ctx context.Context, conn *redis.Conn) error {
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
