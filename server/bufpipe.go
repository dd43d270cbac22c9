package server

import (
	"bytes"
	"io"
	"net"
)

// bufferedPipe returns the client's end of a pipe to the server, with a buffer like
// that of a socket. Without a buffer, a client that still writes a long pipeline and
// a server that already answers wait for each other forever.
//
// As with a socket, bytes from before the close still arrive.
func (e *Embedded) bufferedPipe(far net.Conn) net.Conn {
	near, ours := net.Pipe()
	requests := make(chan []byte, 1024)
	e.pipes.Go(func() { readRequests(requests, ours) })
	e.pipes.Go(func() { forwardRequests(far, requests) })
	e.pipes.Go(func() { forwardReplies(ours, far) })
	return near
}

// readRequests reads from the client until the client closes.
func readRequests(requests chan<- []byte, client io.Reader) {
	defer close(requests)
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if n > 0 {
			requests <- bytes.Clone(buf[:n])
		}
		if err != nil {
			return
		}
	}
}

// forwardRequests writes the requests to the server and closes after the last one.
func forwardRequests(server io.WriteCloser, requests <-chan []byte) {
	defer server.Close()
	for p := range requests {
		if _, err := server.Write(p); err != nil {
			break
		}
	}
	for range requests { // the server has closed
	}
}

// forwardReplies writes the server's replies to the client. After the client has
// closed, the replies are discarded, so that the server can read the rest.
func forwardReplies(client io.WriteCloser, server io.Reader) {
	_, _ = io.Copy(client, server)
	_ = client.Close()
	_, _ = io.Copy(io.Discard, server)
}
