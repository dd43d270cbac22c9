package server

import (
	"bytes"
	"strings"
	"sync"
)

// journalSize is how much of a server's last words is kept, in bytes.
const journalSize = 4096

// journal takes what a redis-server prints: it notices when the server is
// ready, and keeps the end for the error message of one that never was.
type journal struct {
	ready chan struct{} // closed when the server says that it is ready

	mu   sync.Mutex
	told bool // ready is closed
	tail []byte
}

func newJournal() *journal {
	return &journal{ready: make(chan struct{})}
}

var (
	// readyLine is what every redis-server since 2.0, and Valkey, prints once its
	// sockets listen and its data is loaded. Only the first letter's case differs.
	readyLine = []byte("eady to accept connections")
	// watchLine is what it prints instead as a Sentinel.
	watchLine = []byte("Sentinel ID is ")
)

// Write implements io.Writer; it never errs.
func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tail = append(j.tail, p...)
	if !j.told && (bytes.Contains(j.tail, readyLine) || bytes.Contains(j.tail, watchLine)) {
		j.told = true
		close(j.ready)
	}
	if extra := len(j.tail) - journalSize; extra > 0 {
		j.tail = append(j.tail[:0], j.tail[extra:]...)
	}
	return len(p), nil
}

// portTaken reports whether the server gave up because its port is in use.
func (j *journal) portTaken() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Contains(j.tail, []byte("ddress already in use"))
}

// last returns the last thing the server had to say, in one line.
func (j *journal) last() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := strings.TrimSpace(string(j.tail))
	return text[strings.LastIndexByte(text, '\n')+1:]
}
