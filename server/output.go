package server

import (
	"bytes"
	"strings"
	"sync"
)

// tailSize is how many bytes of the end of a server's output outputTail keeps.
const tailSize = 4096

// outputTail receives the output of a redis-server. It detects that the server is
// ready, and keeps the end of the output for the error of a failed start.
type outputTail struct {
	ready chan struct{} // closed when the output says that the server is ready

	mu      sync.Mutex
	isReady bool // ready is closed
	tail    []byte
}

func newOutputTail() *outputTail {
	return &outputTail{ready: make(chan struct{})}
}

var (
	// readyLine is in the output of every redis-server since 2.0, and of Valkey, when
	// the sockets listen and the data is loaded. The case of the first letter differs.
	readyLine = []byte("eady to accept connections")
	// sentinelReadyLine is in the output of a Sentinel instead.
	sentinelReadyLine = []byte("Sentinel ID is ")
)

// Write implements io.Writer. It never fails.
func (o *outputTail) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tail = append(o.tail, p...)
	if !o.isReady && (bytes.Contains(o.tail, readyLine) || bytes.Contains(o.tail, sentinelReadyLine)) {
		o.isReady = true
		close(o.ready)
	}
	if extra := len(o.tail) - tailSize; extra > 0 {
		o.tail = append(o.tail[:0], o.tail[extra:]...)
	}
	return len(p), nil
}

// portTaken reports whether the server ended because its port is in use.
func (o *outputTail) portTaken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.tail, []byte("ddress already in use"))
}

// lastLine returns the last line of the output.
func (o *outputTail) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.tail))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
