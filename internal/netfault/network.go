// Package netfault is a network between clients and a server that can be broken on
// purpose.
package netfault

import (
	"context"
	"net"
	"os"
	"sync"
	"time"
)

// Dialer is a dialer for the options of a go-redis client.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Network is the network between some clients and one server. Its switches affect all
// connections that [Network.Dial] made, and new ones:
//
//	Freeze, FreezeReplies        hold back bytes in both directions, or only the replies
//	Partition, PartitionReplies  the same, and new connections wait, too
//	Heal                         ends both and delivers what was held back
//	Suspend, Resume              the clients do not run
//	Delay, DelayReplies          delays each packet, or only those of the server
//	Thaw                         Heal, and the end of all delay
//	Cut                          breaks all connections
//	Refuse                       refuses new connections
//
// As with TCP, the bytes that it holds back arrive in order, also those of a connection
// that the client has closed meanwhile. A Network works on sockets and inside a synctest
// bubble. It is safe for concurrent use.
type Network struct {
	// Undelayed is the number of packets of a connection, in each direction, that Delay
	// does not delay. Some clients log in under a mutex, which would stop the clock of a
	// synctest bubble. Set it before the first Dial.
	Undelayed int
	// Sent is called with the bytes of each write that is not lost, also if they are held
	// back; nil: none. Set it before the first Dial.
	Sent func([]byte)
	// Before is called before each command of a client of a [Proxy]; nil: none. Set it
	// before the first Listen. Proxy.Close waits until what Before returned has returned.
	Before Before
	// Relay carries a connection of a [Proxy], until either side ends it; nil: the bytes are
	// copied. Set it before the first Listen. Proxy.Close closes both ends, and waits for it.
	Relay func(near, far net.Conn)

	dial Dialer

	mu       sync.Mutex
	requests gate // open: requests flow
	replies  gate // open: replies flow
	dials    gate // open: new connections need not wait
	running  gate // open: the clients run
	delay    func() time.Duration
	prompt   bool          // requests are not delayed
	hurry    chan struct{} // closed to deliver delayed packets immediately
	refusal  error
	refused  chan struct{} // closed when the refusal changes
	conns    map[*conn]struct{}
}

// New returns a network without faults that connects with dial.
func New(dial Dialer) *Network {
	return &Network{
		dial: dial, requests: opened(), replies: opened(), dials: opened(), running: opened(),
		hurry: make(chan struct{}), refused: make(chan struct{}), conns: make(map[*conn]struct{}),
	}
}

// gate is closed like a channel if it is open for packets.
type gate chan struct{}

func opened() gate {
	g := make(gate)
	close(g)
	return g
}

func (g gate) isOpen() bool {
	select {
	case <-g:
		return true
	default:
		return false
	}
}

func (g gate) open() {
	if !g.isOpen() {
		close(g)
	}
}

// shut shuts some gates together.
func (n *Network) shut(gates ...*gate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, g := range gates {
		if g.isOpen() {
			*g = make(gate)
		}
	}
}

// Freeze holds back all bytes in both directions. New connections are made, as those to
// a stopped process.
func (n *Network) Freeze() { n.shut(&n.requests, &n.replies) }

// FreezeReplies holds back only the replies: the server runs the commands, but the
// client does not learn the result.
func (n *Network) FreezeReplies() { n.shut(&n.replies) }

// Partition holds back all packets, also those that make a connection.
func (n *Network) Partition() { n.shut(&n.requests, &n.replies, &n.dials) }

// PartitionReplies holds back all packets from the server, also those that make a
// connection.
func (n *Network) PartitionReplies() { n.shut(&n.replies, &n.dials) }

// Heal delivers what was held back and lets bytes flow again. It does not end a delay.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heal()
}

// heal is Heal with n.mu held.
func (n *Network) heal() {
	for c := range n.conns {
		c.flush()
	}
	n.requests.open()
	n.replies.open()
	n.dials.open()
}

// Suspend simulates clients that do not run. What their timers write is never sent.
// Replies and new connections wait.
func (n *Network) Suspend() { n.shut(&n.replies, &n.running) }

// Resume ends Suspend, and heals. It closes the connections on which a write was lost:
// otherwise the client would take another reply for the missing one.
func (n *Network) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heal()
	n.running.open()
	for c := range n.conns {
		if c.doomed {
			_ = c.Conn.Close()
		}
	}
}

// Delay delays each packet from now on. It calls delay for each packet, and delay must
// not call the network; nil ends the delay of new packets. A packet never overtakes an
// earlier one.
func (n *Network) Delay(delay func() time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay, n.prompt = delay, false
}

// DelayReplies is Delay for the packets of the server: those of the clients arrive immediately.
func (n *Network) DelayReplies(delay func() time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay, n.prompt = delay, true
}

// due returns when packet number count of a connection, sent now, arrives; zero if it is
// not delayed. n.mu must be held.
func (n *Network) due(count int) time.Time {
	if n.delay == nil || count < n.Undelayed {
		return time.Time{}
	}
	return time.Now().Add(n.delay())
}

// Thaw ends Freeze, Partition and Delay, and delivers all packets immediately.
func (n *Network) Thaw() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = nil
	for c := range n.conns {
		c.hurry()
	}
	close(n.hurry)
	n.hurry = make(chan struct{})
	n.heal()
}

// Cut breaks all connections. What was held back on them never arrives.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.cut()
	}
}

// Refuse makes every new connection fail with err, also those that wait; nil accepts
// connections again.
func (n *Network) Refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refusal = err
	close(n.refused)
	n.refused = make(chan struct{})
}

// Dial is a [Dialer]. It connects over the network.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if err := n.await(ctx); err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	far, err := n.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: far, network: n, moved: make(chan struct{}, 1), over: make(gate)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[c] = struct{}{}
	return c, nil
}

// dialTimeout bounds the wait of a dial if its context has no deadline.
const dialTimeout = 5 * time.Second

// await waits until a connection can be made.
func (n *Network) await(ctx context.Context) error {
	for {
		n.mu.Lock()
		refusal, refused, wait := n.refusal, n.refused, n.dials
		if wait.isOpen() {
			wait = n.running
		}
		n.mu.Unlock()
		switch {
		case refusal != nil:
			return refusal
		case wait.isOpen():
			return nil
		}
		select {
		case <-wait:
		case <-refused:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(dialTimeout):
			return os.ErrDeadlineExceeded
		}
	}
}
