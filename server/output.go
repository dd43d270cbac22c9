package server

import (
	"bytes"
	"strings"
	"sync"
)

// tailSize is how much of the end of a server's output is kept, in bytes.
const tailSize = 4096

// outputTail receives what a redis-server prints. It notices when the server is
// ready, and keeps the end of the output for the error message of a failed start.
type outputTail struct {
	ready chan struct{} // closed when the server says that it is ready

	mu      sync.Mutex
	isReady bool // ready is closed
	tail    []byte
}

func newOutputTail() *outputTail {
	return &outputTail{ready: make(chan struct{})}
}

var (
	// readyLine is what every redis-server since 2.0, and Valkey, prints once its
	// sockets listen and its data is loaded. Only the first letter's case differs.
	readyLine = []byte("eady to accept connections")
	// sentinelReadyLine is what it prints instead as a Sentinel.
	sentinelReadyLine = []byte("Sentinel ID is ")
)

// Write implements io.Writer; it never errs.
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

// portTaken reports whether the server gave up because its port is in use.
func (o *outputTail) portTaken() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return bytes.Contains(o.tail, []byte("ddress already in use"))
}

// lastLine returns the last line that the server printed.
func (o *outputTail) lastLine() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.tail))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
