package server

import (
	"bytes"
	"io"
	"net"
)

// wire puts a socket's buffer before the server's end of a pipe, and returns
// the client's end. A bare pipe has none: a client that is still writing a long
// pipeline and a server that already answers wait for each other for ever.
//
// As with a socket, what was written before a hang-up still arrives.
func (e *Embedded) wire(far net.Conn) net.Conn {
	near, ours := net.Pipe()
	requests := make(chan []byte, 1024)
	e.wires.Go(func() { collect(requests, ours) })
	e.wires.Go(func() { deliver(far, requests) })
	e.wires.Go(func() { reply(ours, far) })
	return near
}

// collect takes what the client writes, until it hangs up.
func collect(requests chan<- []byte, client io.Reader) {
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

// deliver hands the server what was collected, and hangs up after the last.
func deliver(server io.WriteCloser, requests <-chan []byte) {
	defer server.Close()
	for p := range requests {
		if _, err := server.Write(p); err != nil {
			break
		}
	}
	for range requests { // nobody is there to take it
	}
}

// reply hands the client what the server answers. Once the client is gone the
// answers are thrown away, so that the server gets to read the rest.
func reply(client io.WriteCloser, server io.Reader) {
	_, _ = io.Copy(client, server)
	_ = client.Close()
	_, _ = io.Copy(io.Discard, server)
}
