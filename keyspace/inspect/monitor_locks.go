package inspect

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

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
// the lines of all other commands unparsed. It keeps the last ones that may acquire a lock,
// because a lock becomes known after its first hold has begun. It is safe for concurrent use.
type LockMonitor struct {
	names []string
	limit int64 // of lines within busyTime; 0 = none

	mu    sync.Mutex
	keys  map[string]bool // as MONITOR prints them
	fresh map[string]bool // those that were added since the last line

	kept      []string // lines without a known key, in order; only read uses them
	keptBytes int
}

// busyTime is how long a server must be busy before a LockMonitor gives up: a burst is no reason.
const busyTime = 5 * time.Second

// maxKept is how many bytes of lines without a known key are kept.
const maxKept = 4 << 20

// NewLockMonitor returns a LockMonitor for commands of some names, in lower case. It gives up when
// the server runs more commands per second than the limit for busyTime; 0 = no limit.
func NewLockMonitor(names []string, maxPerSecond int) *LockMonitor {
	return &LockMonitor{
		names: names, limit: int64(maxPerSecond) * int64(busyTime/time.Second),
		keys: make(map[string]bool), fresh: make(map[string]bool),
	}
}

// Add adds keys of locks.
func (m *LockMonitor) Add(keys ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range keys {
		m.fresh[monitorText(key)] = true
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
func (m *LockMonitor) Run(ctx context.Context, rdb Client, window time.Duration, began func() error, emit func(Command) error) error {
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
	_, err := eachMonitorLine(lines, func(line []byte) (bool, error) {
		if count++; m.limit > 0 && count > m.limit {
			now := clock()
			if took := now.Sub(since); took < busyTime {
				return false, BusyError{int64(float64(count) / took.Seconds())}
			}
			since, count = now, 0
		}
		if err := m.emitKept(emit); err != nil {
			return false, err
		}
		args, ok := m.arguments(line)
		switch {
		case !ok:
			return true, nil
		case hasKey(args, m.keys):
			return true, emitLine(string(line), emit)
		}
		m.kept = append(m.kept, string(line))
		m.keptBytes += len(line)
		for m.keptBytes > maxKept {
			m.keptBytes -= len(m.kept[0])
			m.kept = m.kept[1:]
		}
		return true, nil
	})
	if err == nil {
		err = m.emitKept(emit)
	}
	return err
}

// emitLine emits the command of a line, if the line is whole.
func emitLine(line string, emit func(Command) error) error {
	c, ok := parseMonitorCommand(line)
	if !ok {
		return nil
	}
	return emit(c)
}

// emitKept emits the lines kept that have one of the keys added since the last call.
func (m *LockMonitor) emitKept(emit func(Command) error) error {
	m.mu.Lock()
	fresh := m.fresh
	if len(fresh) > 0 {
		m.fresh = make(map[string]bool)
	}
	m.mu.Unlock()
	if len(fresh) == 0 {
		return nil
	}
	for _, line := range m.kept {
		args, _ := m.arguments([]byte(line))
		if hasKey(args, fresh) && !hasKey(args, m.keys) {
			if err := emitLine(line, emit); err != nil {
				return err
			}
		}
	}
	maps.Copy(m.keys, fresh)
	return nil
}

// arguments returns the part of a line behind the name of the command; false if the name is none
// of those that are wanted.
func (m *LockMonitor) arguments(line []byte) ([]byte, bool) {
	_, rest, _ := bytes.Cut(line, []byte(`] "`))
	name, rest, ok := bytes.Cut(rest, []byte(`"`))
	return rest, ok && slices.ContainsFunc(m.names, func(n string) bool { return strings.EqualFold(n, string(name)) })
}

// hasKey reports whether one of the quoted texts is a key. It compares them as they are.
func hasKey(args []byte, keys map[string]bool) bool {
	for {
		open := bytes.IndexByte(args, '"')
		if open < 0 {
			return false
		}
		args = args[open+1:]
		end := quoted(args)
		if end < 0 {
			return false
		}
		if keys[string(args[:end])] {
			return true
		}
		args = args[end+1:]
	}
}

// quoted returns the index of the quotation mark that ends a text, as in monitorArg; -1 if there is none.
func quoted(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			if rest := bytes.TrimRight(text[i+1:], "\r\n"); len(rest) == 0 || bytes.HasPrefix(rest, []byte(` "`)) {
				return i
			}
		}
	}
	return -1
}
