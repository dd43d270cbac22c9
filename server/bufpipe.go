package server

import (
	"bytes"
	"io"
	"net"
)

// bufferedPipe returns the client's end of a pipe to the server, with a buffer like
// that of a socket in each direction. Without a buffer for the requests, a client that
// still writes a long pipeline and a server that already answers wait for each other
// forever. Without a buffer for the replies, a client that does not read keeps the
// server waiting with a mutex locked, which stops the clock of a synctest bubble.
//
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
