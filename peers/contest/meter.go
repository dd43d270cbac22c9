package contest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Sample holds the measurements of one contender in one window.
type Sample struct {
	Wall      time.Duration
	Cycles    int             // number of locks that were acquired and released
	Waits     []time.Duration // from the call of Lock to its end, ascending
	Took      []time.Duration // from the call of Lock to the end of Unlock, ascending
	ClientCPU time.Duration   // of the complete process
	ServerCPU time.Duration
	Commands  int64 // executed by the server, including those inside scripts
}

// Rate returns the number of cycles per second.
func (s Sample) Rate() float64 { return float64(s.Cycles) / s.Wall.Seconds() }

// ClientCost returns the client's CPU time per cycle, in µs.
func (s Sample) ClientCost() float64 { return perCycle(s.ClientCPU, s.Cycles) }

// ServerCost returns the server's CPU time per cycle, in µs.
func (s Sample) ServerCost() float64 { return perCycle(s.ServerCPU, s.Cycles) }

// CommandCost returns the number of Redis commands per cycle.
func (s Sample) CommandCost() float64 { return float64(s.Commands) / float64(s.Cycles) }

func perCycle(d time.Duration, cycles int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(cycles)
}

// meter reads the CPU time that this process and the server have used, and the
// commands of the server.
type meter struct{ rdb *redis.Client }

type reading struct {
	at             time.Time
	client, server time.Duration
	commands       int64
}

func (m meter) read(ctx context.Context) (reading, error) {
	info, err := m.rdb.Info(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return reading{}, fmt.Errorf("read the server's meters: %w", err)
	}
	r := reading{at: time.Now()}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch {
		case name == "used_cpu_user", name == "used_cpu_sys":
			seconds, _ := strconv.ParseFloat(value, 64)
			r.server += time.Duration(seconds * float64(time.Second))
		case strings.HasPrefix(name, "cmdstat_") && name != "cmdstat_info":
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseInt(calls, 10, 64)
			r.commands += n
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return r, fmt.Errorf("read our own meters: %w", err)
	}
	r.client = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	return r, nil
}

// since returns the difference between two readings.
func (r reading) since(before reading) Sample {
	return Sample{
		Wall:      r.at.Sub(before.at),
		ClientCPU: r.client - before.client,
		ServerCPU: r.server - before.server,
		Commands:  r.commands - before.commands,
	}
}
