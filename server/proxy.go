package server

import (
	"context"
	"net"
	"sync"
	"time"
)

// Dialer is a dialer for the options of a go-redis client.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Proxy forwards connections from a client to a server and injects network faults. A
// frozen direction keeps the bytes in order and delivers them after Thaw, like TCP
// across a partition. Close on a frozen connection loses no earlier bytes. A Proxy
// works on sockets and inside a synctest bubble. It is safe for concurrent use.
type Proxy struct {
	dial Dialer

	mu       sync.Mutex
	requests chan struct{} // closed = flowing, open = frozen
	replies  chan struct{}
	conns    map[net.Conn]struct{}
	refuse   error
	delay    func() time.Duration // for the next packet; nil: none
	flush    chan struct{}        // closed to deliver delayed packets at once
}

// NewProxy returns a proxy without faults that connects with dial.
func NewProxy(dial Dialer) *Proxy {
	flowing := make(chan struct{})
	close(flowing)
	return &Proxy{dial: dial, requests: flowing, replies: flowing, conns: make(map[net.Conn]struct{}), flush: make(chan struct{})}
}

// Freeze holds back all bytes in both directions, on existing and on new connections.
func (p *Proxy) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests, p.replies = frozen(p.requests), frozen(p.replies)
}

// FreezeReplies holds back only the replies: the server runs the commands, but the
// client does not learn the result.
func (p *Proxy) FreezeReplies() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replies = frozen(p.replies)
}

// undelayedPackets is how many packets of a connection, in each direction, are never
// delayed. Some clients log in under a mutex, which would stop the clock of a
// synctest bubble.
const undelayedPackets = 4

// Delay delays every packet from now on, except the first ones of a connection. It
// calls delay for each packet; nil ends the delay of new packets. A packet never
// overtakes an earlier one.
func (p *Proxy) Delay(delay func() time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = delay
}

// due returns the arrival time of a packet that is sent now.
func (p *Proxy) due() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.delay == nil {
		return time.Time{}
	}
	return time.Now().Add(p.delay())
}

// waitDue waits until due, or until Thaw.
func (p *Proxy) waitDue(due time.Time) {
	p.mu.Lock()
	flush := p.flush
	p.mu.Unlock()
	if wait := time.Until(due); !due.IsZero() && wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-flush:
		}
	}
}

// Thaw ends all freezing and delay, and delivers the packets that were held back.
func (p *Proxy) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = nil
	close(p.flush)
	p.flush = make(chan struct{})
	for _, gate := range []chan struct{}{p.requests, p.replies} {
		select {
		case <-gate:
		default:
			close(gate)
		}
	}
}

// frozen returns gate if it is an open channel, and a new open channel otherwise.
func frozen(gate chan struct{}) chan struct{} {
	select {
	case <-gate:
		return make(chan struct{})
	default:
		return gate
	}
}

// Cut breaks all connections and discards the bytes that were held back on them.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// Refuse makes every new connection fail with err; nil accepts connections again.
func (p *Proxy) Refuse(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = err
}

// Dial is a [Dialer]. It connects through the proxy.
func (p *Proxy) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	p.mu.Lock()
	refuse := p.refuse
	p.mu.Unlock()
	if refuse != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: refuse}
	}
	far, err := p.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	near, ours := net.Pipe()
	p.mu.Lock()
	p.conns[far], p.conns[ours] = struct{}{}, struct{}{}
	p.mu.Unlock()
	go p.forward(ours, far, func() chan struct{} { return p.requests })
	go p.forward(far, ours, func() chan struct{} { return p.replies })
	return near, nil
}

// forward copies bytes from one connection to the other while the direction flows.
// When one side closes, forward delivers the bytes read before and then closes the
// other side.
func (p *Proxy) forward(from, to net.Conn, gate func() chan struct{}) {
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
				pkt := packet{bytes: buf[:n]}
				if i >= undelayedPackets {
					pkt.due = p.due()
				}
				packets <- pkt
			}
			if err != nil {
				return
			}
		}
	}()
	for pkt := range packets {
		p.mu.Lock()
		open := gate()
		p.mu.Unlock()
		<-open
		p.waitDue(pkt.due)
		if _, err := to.Write(pkt.bytes); err != nil {
			break
		}
	}
	to.Close()
	p.mu.Lock()
	delete(p.conns, from)
	delete(p.conns, to)
	p.mu.Unlock()
	for range packets { // let the reader goroutine end
		from.Close()
	}
	from.Close()
}
