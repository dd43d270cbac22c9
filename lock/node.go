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
)

// node is one of the servers of a quorum.
type node struct {
	transport
	addr         string
	unresponsive atomic.Bool // did not answer what it was last asked
	scripted     atomic.Bool // has run a script of ours

	identified *atomic.Int64 // counts each time that a node told which server it is

	mu      sync.Mutex
	runID   string    // of the server process; empty = not known
	upSince time.Time // at the latest; zero = not known
}

// nodePoolSize is how many dials may fail before go-redis stops to dial when it is
// asked to and only probes once a second. It takes the size of a pool for that
// number; a node needs two connections.
const nodePoolSize = 1000

func newNode(rdb *redis.Client, introduced *atomic.Int64) (*node, error) {
	n := &node{addr: rdb.Options().Addr, identified: introduced}
	o := cloneOptions(rdb)
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
	template := redis.NewClient(&o) // never used but for its options
	defer template.Close()
	w, err := newTransport(template)
	if err != nil {
		return nil, err
	}
	n.transport = w
	return n, nil
}

// identify learns which server it is and since when it has been up. It comes
// first on every connection, so it is known of whoever answers. A server that
// will not say is taken as it is.
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

// bootTime returns the latest moment at which a server with that uptime may have
// started: the server counts by the ticks of its clock, so it may be a second off.
func bootTime(uptime string) time.Time {
	seconds, err := strconv.ParseInt(uptime, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Now().Add(-time.Duration(seconds-1) * time.Second)
}

// serverID returns the run id of the server, empty if it is not known.
func (n *node) serverID() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runID
}

// checkUptime returns an error if the server must not grant a lock yet.
func (n *node) checkUptime(minUptime time.Duration) error {
	if minUptime == 0 {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.upSince.IsZero() {
		return errors.New("it does not tell since when it has been up")
	}
	if up := time.Since(n.upSince); up < minUptime {
		return fmt.Errorf("it has been up for %v only, less than %v", up.Truncate(time.Second), minUptime)
	}
	return nil
}

// ping finds out whether the node answers.
func (n *node) ping(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n.noteReply(n.send(ctx, &command{args: []string{"ping"}}).wait(ctx))
}

// noteReply notes whether the node had anything to say to a request that ended with
// err.
func (n *node) noteReply(err error) {
	if !errors.Is(err, errReleasing) {
		n.unresponsive.Store(outcomeUnknown(err) || neverSent(err))
	}
}
