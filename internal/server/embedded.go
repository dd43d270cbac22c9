// Package server runs the Redis servers that locktop starts: an embedded server in this
// process, and redis-server processes. They listen only on the loopback interface, keep
// no data afterwards, and end with their owner.
//
// The embedded server needs no installation and runs in a testing/synctest bubble.
// But it is slow and has no roles, no INFO and no keyspace notifications, so tests of
// Redis' behaviour use a process.
package server

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/alicebob/miniredis/v2"
	lua "github.com/yuin/gopher-lua"
)

// The embedded server makes an interpreter for every script. Its stacks are far smaller than
// by default: they fit in small objects of the allocator.
func init() {
	lua.RegistrySize, lua.CallStackSize = 2000, 64
}

// Embedded is a Redis server inside this process. Its keys expire by the clock, also
// by the clock of a synctest bubble. It is safe for concurrent use.
type Embedded struct {
	Redis *miniredis.Miniredis // tests change its clock and its commands
	addr  string
	pipes sync.WaitGroup // goroutines that copy the bytes of connections from Dial

	mu     sync.Mutex
	closed bool
}

// pipedAddr stands for the address of a server without a listener: no name, which a client resolves.
const pipedAddr = "127.0.0.1:1"

// StartEmbedded starts a server on a free loopback port.
func StartEmbedded() (*Embedded, error) {
	e := NewPiped()
	if err := e.Redis.StartAddr("127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("start the embedded redis: %w", err)
	}
	e.addr = e.Redis.Addr()
	return e, nil
}

// NewPiped returns a server without a port: clients connect by Dial. It is for a synctest
// bubble, where open sockets stop the clock. Create and close it inside the bubble.
func NewPiped() *Embedded {
	e := &Embedded{Redis: miniredis.NewMiniRedis(), addr: pipedAddr}
	e.Redis.ClockTTL(true)
	return e
}

// Addr returns the server's host:port; of a piped one a placeholder for the options of a client.
func (e *Embedded) Addr() string { return e.addr }

// Dial connects to the server inside the process and is for a client's options. After Close it
// returns net.ErrClosed.
func (e *Embedded) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, fmt.Errorf("dial the embedded redis: %w", net.ErrClosed)
	}
	conn, err := e.Redis.Dial()
	if err != nil {
		return nil, fmt.Errorf("dial the embedded redis: %w", err)
	}
	return e.bufferedPipe(conn), nil
}

// Close disconnects all clients, deletes all keys and returns when all goroutines of
// the server have ended. Further calls do nothing.
func (e *Embedded) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.closed = true
	if serving := e.Redis.Server(); serving != nil {
		e.Redis.CtxCancel()
		serving.Close() // its commands end before miniredis forgets the server, which INFO reads
	}
	e.Redis.Close()
	e.pipes.Wait()
}

// bufferedPipe returns the client's end of a pipe to the server, with a buffer like
// that of a socket in each direction. Without a buffer for the requests, a client that
// still writes a long pipeline and a server that already answers wait for each other
// forever. Without a buffer for the replies, a client that does not read keeps the
// server waiting with a mutex locked, which stops the clock of a synctest bubble.
// As with a socket, bytes from before the close still arrive.
func (e *Embedded) bufferedPipe(far net.Conn) net.Conn {
	near, ours := net.Pipe()
	for _, way := range []struct{ from, to net.Conn }{{ours, far}, {far, ours}} {
		buffer := make(chan []byte, 1024)
		e.pipes.Go(func() { receive(buffer, way.from) })
		e.pipes.Go(func() { forward(way.to, buffer) })
	}
	return near
}

// receive reads until the other end closes.
func receive(buffer chan<- []byte, from io.Reader) {
	defer close(buffer)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			buffer <- bytes.Clone(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// forward writes what receive has read, and closes after the last write. After the
// receiver has closed, it discards the rest, so that the sender can go on.
func forward(to io.WriteCloser, buffer <-chan []byte) {
	defer to.Close()
	for p := range buffer {
		if _, err := to.Write(p); err != nil {
			break
		}
	}
	for range buffer {
	}
}
