package netfault

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// Proxy is a loopback address whose connections lead over a network to a server. It is
// for clients that are processes of their own. All methods are safe for concurrent use.
type Proxy struct {
	network  *Network
	listener net.Listener
	to       [2]string // the network and the address of the server
	ctx      context.Context
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Listen starts a proxy to a server.
func (n *Network) Listen(network, addr string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{network: n, listener: l, to: [2]string{network, addr}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the address as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes the address and all connections, and returns when nothing of them is
// left. What was held back on them still arrives after Heal.
func (p *Proxy) Close() error {
	p.cancel()
	err := p.listener.Close()
	p.running.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (p *Proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.running.Go(func() { p.serve(near) })
	}
}

// serve connects a client to the server until either closes its connection.
func (p *Proxy) serve(near net.Conn) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = near.Close() })()
	far, err := p.network.Dial(ctx, p.to[0], p.to[1])
	if err != nil {
		_ = near.Close()
		return
	}
	defer context.AfterFunc(ctx, func() { _ = far.Close() })()
	if p.network.Relay != nil {
		p.network.Relay(near, far)
	} else {
		p.copy(near, far)
	}
	_ = far.Close()
	_ = near.Close()
}

// copy copies the bytes of a connection until either side ends it.
func (p *Proxy) copy(near, far net.Conn) {
	var replies sync.WaitGroup
	replies.Go(func() {
		_, _ = io.Copy(near, far)
		_ = near.Close()
	})
	if p.network.Before == nil {
		_, _ = io.Copy(far, near)
	} else {
		_ = copyRequests(far, near, p.network.Before) // the end of the connection is the report
	}
	_ = far.Close()
	_ = near.Close()
	replies.Wait()
}
