package inspect

import (
	"maps"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Meter adds up what the commands of scanners cost a server. The messages that make a
// server report changed keys are not included. It is safe for concurrent use; the zero
// value is ready, and a nil one counts nothing.
type Meter struct {
	mu         sync.Mutex
	commands   map[string]int64
	serverTime time.Duration
}

// Usage is what a Meter has counted.
type Usage struct {
	Commands   map[string]int64 // by name, in lower case
	ServerTime time.Duration    // time that the server was busy, on its own clock
}

// Usage returns the sums since the start. They never fall.
func (m *Meter) Usage() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Usage{maps.Clone(m.commands), m.serverTime}
}

// sent counts commands.
func (m *Meter) sent(cmds []redis.Cmder) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.commands == nil {
		m.commands = make(map[string]int64)
	}
	for _, c := range cmds {
		m.commands[c.Name()]++
	}
}

// busy adds time of the server.
func (m *Meter) busy(d time.Duration) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.serverTime += d
}
