package server

import (
	"context"
	"net"
	"sync"
	"time"
)

// Dialer is a client's dialer, as go-redis' options take it.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Link is the network between a client and a server, with switches for its
// faults. A frozen direction keeps what it is given, in order, and delivers it
// when it thaws, as TCP does across a partition; closing a frozen connection
// loses nothing that was written before. It works on real sockets and inside a
// synctest bubble. Safe for concurrent use.
type Link struct {
	dial Dialer

	mu       sync.Mutex
	requests chan struct{} // closed = flowing, open = frozen
	replies  chan struct{}
	conns    map[net.Conn]struct{}
	refuse   error
	delay    func() time.Duration // of a packet; nil = none
	hurry    chan struct{}        // closed to deliver at once what is delayed
}

// NewLink returns a flowing link over dial.
func NewLink(dial Dialer) *Link {
	flowing := make(chan struct{})
	close(flowing)
	return &Link{dial: dial, requests: flowing, replies: flowing, conns: make(map[net.Conn]struct{}), hurry: make(chan struct{})}
}

// Freeze holds back everything in both directions, on connections that exist
// and on new ones.
func (l *Link) Freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests, l.replies = frozen(l.requests), frozen(l.replies)
}

// FreezeReplies lets requests arrive and holds back the answers: the server
// acts, and nobody hears of it.
func (l *Link) FreezeReplies() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replies = frozen(l.replies)
}

// greeting is how many packets of a connection, each way, are never delayed: some
// clients log in under a mutex, which would keep a synctest bubble's clock from moving.
const greeting = 4

// Delay has every packet from now on, but for the first few of a connection, take as
// long as delay says when it is sent, or until the one before it has arrived; nil is as
// before.
func (l *Link) Delay(delay func() time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = delay
}

// due returns when a packet that is sent now arrives.
func (l *Link) due() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.delay == nil {
		return time.Time{}
	}
	return time.Now().Add(l.delay())
}

// await waits until a packet arrives.
func (l *Link) await(due time.Time) {
	l.mu.Lock()
	hurry := l.hurry
	l.mu.Unlock()
	if wait := time.Until(due); !due.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-hurry:
		}
	}
}

// Thaw delivers what was held back, or is delayed, and lets everything flow again,
// without delay.
func (l *Link) Thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = nil
	close(l.hurry)
	l.hurry = make(chan struct{})
	for _, gate := range []chan struct{}{l.requests, l.replies} {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

// frozen returns an open gate in the place of a closed one.
func frozen(gate chan struct{}) chan struct{} {
	select {
	case <-gate:
		return make(chan struct{})
	default:
		return gate
	}
}

// Cut breaks all connections; what was held back on them is lost.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
}

// Refuse makes every new connection fail with err; nil lets them in again.
func (l *Link) Refuse(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = err
}

// Dial is a [Dialer]: it connects through the link.
func (l *Link) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	refuse := l.refuse
	l.mu.Unlock()
	if refuse != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: refuse}
	}
	far, err := l.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, ours := net.Pipe()
	l.mu.Lock()
	l.conns[far], l.conns[ours] = struct{}{}, struct{}{}
	l.mu.Unlock()
	go l.carry(ours, far, func() chan struct{} { return l.requests })
	go l.carry(far, ours, func() chan struct{} { return l.replies })
	return near, nil
}

// carry moves bytes from one connection to the other, while the gate lets them.
// Whatever was read before an end is delivered before the other side ends.
func (l *Link) carry(from, to net.Conn, gate func() chan struct{}) {
	type packet struct {
		bytes []byte
		due   time.Time
	}
	packets := make(chan packet, 1024)
	go func() {
		defer close(packets)
		for i := 0; ; i++ {
			buf := make([]byte, 4096)
			n, err := from.Read(buf)
			if n > 0 {
				p := packet{bytes: buf[:n]}
				if i >= greeting {
					p.due = l.due()
				}
				packets <- p
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range packets {
		l.mu.Lock()
		open := gate()
		l.mu.Unlock()
		<-open
		l.await(p.due)
		if _, err := to.Write(p.bytes); err != nil {
			break
		}
	}
	to.Close()
	l.mu.Lock()
	delete(l.conns, from)
	delete(l.conns, to)
	l.mu.Unlock()
	for range packets { // let the reader end
		from.Close()
	}
	from.Close()
}
