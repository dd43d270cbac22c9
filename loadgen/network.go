package loadgen

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"locktop/internal/netfault"
	"locktop/loadgen/external"
)

// network is the network between some clients and their servers. It counts the commands.
// Safe for concurrent use.
type network struct {
	commands  *atomic.Int64
	pool      int  // pool size of a Redis client over the network; 0 = as in the server's options
	impatient bool // a Redis client over the network does not retry, and obeys the deadline of its context

	// before decides what happens before a command of a client process to a node; nil: nothing.
	before  func(node int, command string) func() error
	holding atomic.Bool  // the client process holds a lock, and has not been asked to release it
	resumed atomic.Int64 // end of the newest freeze by before, in Unix nanoseconds

	process atomic.Pointer[external.Process] // the client, if it is a process; nil = a part of this one

	mu    sync.Mutex
	lanes []lane
}

// lane is the part of a network that leads to one server.
type lane struct {
	node int // from 1; 0 = a server that is not a node
	net  *netfault.Network
}

func newNetwork(commands *atomic.Int64) *network { return &network{commands: commands} }

// each calls f for the lanes to a node, or for all lanes if node is 0.
func (w *network) each(node int, f func(*netfault.Network)) {
	w.mu.Lock()
	lanes := slices.Clone(w.lanes)
	w.mu.Unlock()
	for _, l := range lanes {
		if node == 0 || l.node == node {
			f(l.net)
		}
	}
}

// freeze stops a client that is a process. Otherwise it simulates clients that do not
// run.
func (w *network) freeze() {
	if p := w.process.Load(); p != nil {
		_ = p.Freeze() // fails if the client is dead
		return
	}
	w.each(0, (*netfault.Network).Suspend)
}

func (w *network) thaw() {
	if p := w.process.Load(); p != nil {
		_ = p.Continue()
		return
	}
	w.each(0, (*netfault.Network).Resume)
}

// slow delays every packet in both directions by delay ± jitter; 0 = no delay.
func (w *network) slow(delay, jitter time.Duration) {
	var lagging func() time.Duration
	if delay > 0 {
		lagging = func() time.Duration { return lag(delay, jitter) }
	}
	w.each(0, func(n *netfault.Network) { n.Delay(lagging) })
}

// lag returns a random time of delay ± jitter.
func lag(delay, jitter time.Duration) time.Duration { return delay - jitter + rand.N(2*jitter+1) }

var errDead = errors.New("the client has crashed")

// kill kills a client that is a process, closes all connections and prevents new ones.
func (w *network) kill() {
	if p := w.process.Load(); p != nil {
		p.Kill()
		return // what it has sent still arrives
	}
	w.each(0, func(n *netfault.Network) {
		n.Refuse(errDead)
		n.Cut()
	})
}

// over returns a Redis client of the same server whose connections use the network. The
// caller closes it.
func over(w *network, rdb RedisClient) (redis.UniversalClient, error) {
	switch c := rdb.(type) {
	case *redis.Client:
		return overNode(w, c, 0), nil
	case *redis.ClusterClient:
		o := *c.Options()
		o.Addrs = slices.Clone(o.Addrs) // go-redis appends to the slice that it is given
		o.PoolSize = cmp.Or(w.pool, o.PoolSize)
		if w.impatient {
			o.ContextTimeoutEnabled, o.MaxRetries = true, -1
		}
		if o.Dialer == nil {
			o.Dialer = redis.NewDialer(&redis.Options{DialTimeout: o.DialTimeout, TLSConfig: o.TLSConfig})
		}
		o.Dialer = w.lane(o.Dialer, 0).Dial
		return redis.NewClusterClient(&o), nil
	}
	return nil, fmt.Errorf("the load needs a redis.Client or a redis.ClusterClient, not a %T", rdb)
}

// overNode is over for a node, counted from 1; 0 = a server that is not a node.
func overNode(w *network, c *redis.Client, node int) *redis.Client {
	o := *c.Options()
	o.PoolSize = cmp.Or(w.pool, o.PoolSize)
	if w.impatient {
		o.ContextTimeoutEnabled, o.MaxRetries = true, -1
	}
	o.Dialer = w.lane(o.Dialer, node).Dial
	// go-redis must not share these between two clients.
	o.PushNotificationProcessor = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClient(&o)
}

// lane adds a part of the network that leads to a node.
func (w *network) lane(dial netfault.Dialer, node int) *netfault.Network {
	n := netfault.New(dial)
	n.Sent = func(p []byte) { w.commands.Add(commandsIn(p)) }
	if w.before != nil {
		n.Before = func(command string) func() error { return w.before(node, command) }
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lanes = append(w.lanes, lane{node, n})
	return n
}

// commandsIn counts the commands that begin in a part of a request stream. Each command
// is an array. The locks store no values that look like the head of an array.
func commandsIn(p []byte) int64 {
	var n int64
	for at := 0; ; at++ {
		next := bytes.IndexByte(p[at:], '*')
		if next < 0 {
			return n
		}
		at += next
		if bytes.HasSuffix(p[:at], []byte("\r\n")) || at == 0 {
			if at+1 < len(p) && '0' <= p[at+1] && p[at+1] <= '9' {
				n++
			}
		}
	}
}
