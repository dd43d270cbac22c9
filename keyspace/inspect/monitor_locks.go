package inspect

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/humanize"
)

// Command is a command that a server has run.
type Command struct {
	At   time.Time // on the server's clock
	Addr string    // of the client; "" = a script has run it
	DB   int
	Args []string // its name first
}

// LockMonitor runs MONITOR for the commands of some names that have the key of a lock. It drops
// all other lines unparsed. It is safe for concurrent use.
type LockMonitor struct {
	names        []string
	maxPerSecond int

	mu   sync.RWMutex
	keys map[string]bool // as MONITOR prints them
}

// busyTime is how long a server must be busy before a LockMonitor gives up: a burst is no reason.
const busyTime = 5 * time.Second

// NewLockMonitor returns a LockMonitor for commands of some names, in lower case. It gives up when
// the server runs more commands per second than the limit for busyTime; 0 = no limit.
func NewLockMonitor(names []string, maxPerSecond int) *LockMonitor {
	return &LockMonitor{names: names, maxPerSecond: maxPerSecond, keys: make(map[string]bool)}
}

// Add adds keys of locks.
func (m *LockMonitor) Add(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.keys[monitorText(key)] = true
	}
}

// BusyError means that MONITOR would cost the server too much, because it runs too many commands.
type BusyError struct{ PerSecond int64 }

func (e BusyError) Error() string {
	return fmt.Sprintf("MONITOR would cost about %.0f%% of a core: the server runs %s commands per second",
		100*float64(e.PerSecond)*MonitorCost.Seconds(), humanize.Count(e.PerSecond))
}

// Run runs MONITOR for a window, and calls began when the server has begun to send commands, and
// emit for each command. The end of the window is no error. It returns an [ErrMayNotMonitor] if
// the user may not run MONITOR, a [BusyError] if the server becomes too busy, and another error
// if it sends more than 64 MiB.
func (m *LockMonitor) Run(ctx context.Context, rdb *redis.Client, window time.Duration, began func() error, emit func(Command) error) error {
	return monitor(ctx, rdb, window, func(lines *bufio.Reader) error {
		if err := began(); err != nil {
			return err
		}
		return m.read(lines, time.Now, emit)
	})
}

// read reads the lines of MONITOR.
func (m *LockMonitor) read(lines *bufio.Reader, clock func() time.Time, emit func(Command) error) error {
	since, count := clock(), int64(0)
	limit := int64(m.maxPerSecond) * int64(busyTime/time.Second)
	_, err := eachMonitorLine(lines, func(line []byte) (bool, error) {
		count++
		if limit > 0 && count > limit {
			now := clock()
			if took := now.Sub(since); took < busyTime {
				return false, BusyError{int64(float64(count) / took.Seconds())}
			}
			since, count = now, 0
		}
		if !m.wants(line) {
			return true, nil
		}
		c, ok := parseMonitorCommand(string(line))
		if !ok {
			return true, nil
		}
		return true, emit(c)
	})
	return err
}

// wants reports whether a line may be a command of one of the names with the key of a lock. It
// compares the quoted texts as they are.
func (m *LockMonitor) wants(line []byte) bool {
	_, rest, ok := bytes.Cut(line, []byte(`] "`))
	if !ok {
		return false
	}
	name, rest, ok := bytes.Cut(rest, []byte(`"`))
	if !ok || !slices.ContainsFunc(m.names, func(n string) bool { return strings.EqualFold(n, string(name)) }) {
		return false
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	for {
		open := bytes.IndexByte(rest, '"')
		if open < 0 {
			return false
		}
		rest = rest[open+1:]
		end := quoted(rest)
		if end < 0 {
			return false
		}
		if m.keys[string(rest[:end])] {
			return true
		}
		rest = rest[end+1:]
	}
}

// quoted returns the index of the quotation mark that ends a text; -1 if there is none.
func quoted(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i
		}
	}
	return -1
}
