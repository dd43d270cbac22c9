package contest

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Work describes what clients repeat in a window: lock, hold, unlock.
type Work struct {
	Warm   time.Duration // before counting begins
	Length time.Duration // of the counted time
	Cycles int64         // if not 0, the window ends after so many cycles instead of after Length
	Hold   time.Duration
}

// phase is the phase of a window.
type phase = int32

const (
	warming phase = iota
	counting
	over
)

// window is a period in which clients work.
type window struct {
	work  Work
	phase atomic.Int32
	left  atomic.Int64 // cycles that have not begun
	done  atomic.Int64 // cycles that have ended in this phase
	last  atomic.Int64 // when a client acquired a lock most recently, since the start of the process

	waiting context.Context // ends with the window
	end     context.CancelFunc
}

// tally holds the counts of one client.
type tally struct {
	waits, took []time.Duration
	gap         time.Duration
	err         error
}

// measure runs the clients, each on its own goroutine.
func measure(ctx context.Context, rdb *redis.Client, clients []Client, work Work) (Sample, error) {
	w := &window{work: work}
	w.waiting, w.end = context.WithCancel(ctx)
	defer w.end()
	w.left.Store(math.MaxInt64)
	if work.Cycles > 0 {
		w.left.Store(work.Cycles)
		w.phase.Store(counting)
	}
	before, err := readUsage(ctx, rdb)
	if err != nil {
		return Sample{}, err
	}
	tallies := make([]tally, len(clients))
	var group sync.WaitGroup
	for i, c := range clients {
		group.Go(func() { tallies[i] = w.run(ctx, c) })
	}
	if work.Cycles == 0 {
		before, err = w.pass(ctx, rdb)
	} else {
		group.Wait()
	}
	after, failed := readUsage(ctx, rdb)
	w.phase.Store(over)
	w.end()
	group.Wait()
	sample := after.since(before)
	return sample, sample.add(tallies, err, failed)
}

// pass waits for the end of the window and returns the reading from the start
// of the counting.
func (w *window) pass(ctx context.Context, rdb *redis.Client) (reading, error) {
	w.spend(w.work.Warm)
	before, err := readUsage(ctx, rdb)
	w.done.Store(0)
	w.phase.Store(counting)
	w.spend(w.work.Length)
	return before, err
}

// firstCycle limits the wait for the first cycle. Without one, warm-up and
// counting mean nothing, and a busy machine may take this long.
const firstCycle = 10 * time.Second

// spend waits for d, and until there was a cycle.
func (w *window) spend(d time.Duration) {
	time.Sleep(d)
	for limit := time.Now().Add(firstCycle); w.done.Load() == 0 && time.Now().Before(limit); {
		time.Sleep(d / 10)
	}
}

// run runs one client. A wait that the end of the window cuts off counts with
// the time that it lasted. Without the longest waits, a lock that lets clients
// starve would look better.
func (w *window) run(ctx context.Context, c Client) (t tally) {
	for w.left.Add(-1) >= 0 && w.phase.Load() != over {
		began := time.Now()
		err := c.Lock(w.waiting)
		locked := time.Now()
		if w.waiting.Err() != nil {
			t.waits = append(t.waits, locked.Sub(began))
		}
		if err != nil {
			if w.waiting.Err() == nil {
				t.err = err
			}
			return t
		}
		if gap := w.gap(); w.phase.Load() == counting {
			t.gap = max(t.gap, gap)
		}
		if w.work.Hold > 0 {
			time.Sleep(w.work.Hold)
		}
		if err := c.Unlock(ctx); err != nil && w.waiting.Err() == nil {
			t.err = err
			return t
		}
		w.done.Add(1)
		if w.phase.Load() == counting {
			t.waits = append(t.waits, locked.Sub(began))
			t.took = append(t.took, time.Since(began))
		}
	}
	return t
}

// started is the origin of window.last.
var started = time.Now()

// gap notes an acquire and returns the time since the one before it.
func (w *window) gap() time.Duration {
	now := int64(time.Since(started))
	return time.Duration(max(now-w.last.Swap(now), 0))
}

// add adds the counts of the clients. It returns the first of the clients'
// errors and errs.
func (s *Sample) add(tallies []tally, errs ...error) error {
	for _, t := range tallies {
		errs = append(errs, t.err)
		s.Waits = append(s.Waits, t.waits...)
		s.Took = append(s.Took, t.took...)
		s.Gap = max(s.Gap, t.gap)
	}
	slices.Sort(s.Waits)
	slices.Sort(s.Took)
	s.Cycles = len(s.Took)
	return cmp.Or(errs...)
}

// Sample holds the measurements of one contender in one window.
type Sample struct {
	Wall      time.Duration
	Cycles    int             // number of locks that were acquired and released
	Waits     []time.Duration // from the call of Lock to its end, ascending
	Took      []time.Duration // from the call of Lock to the end of Unlock, ascending
	Gap       time.Duration   // longest time between two acquires
	ClientCPU time.Duration   // of the complete process
	ServerCPU time.Duration
	Commands  int64 // executed by the server, including those inside scripts
}

// Rate returns the number of cycles per second.
func (s Sample) Rate() float64 { return float64(s.Cycles) / s.Wall.Seconds() }

// gap returns the longest time between two acquires, in ms.
func (s Sample) gap() float64 { return float64(s.Gap) / float64(time.Millisecond) }

// ClientCost returns the client's CPU time per cycle, in µs.
func (s Sample) ClientCost() float64 { return perCycle(s.ClientCPU, s.Cycles) }

// ServerCost returns the server's CPU time per cycle, in µs.
func (s Sample) ServerCost() float64 { return perCycle(s.ServerCPU, s.Cycles) }

// CommandCost returns the number of Redis commands per cycle.
func (s Sample) CommandCost() float64 { return float64(s.Commands) / float64(s.Cycles) }

func perCycle(d time.Duration, cycles int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(cycles)
}

// reading is the CPU time that this process and the server have used, and the commands of the
// server.
type reading struct {
	at             time.Time
	client, server time.Duration
	commands       int64
}

func readUsage(ctx context.Context, rdb *redis.Client) (reading, error) {
	info, err := rdb.InfoMap(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return reading{}, fmt.Errorf("read the resource usage of the server: %w", err)
	}
	r := reading{at: time.Now()}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, _ := strconv.ParseFloat(info["CPU"][name], 64)
		r.server += time.Duration(seconds * float64(time.Second))
	}
	for name, value := range info["Commandstats"] {
		if calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ","); name != "cmdstat_info" {
			n, _ := strconv.ParseInt(calls, 10, 64)
			r.commands += n
		}
	}
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return r, fmt.Errorf("read the resource usage of this process: %w", err)
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
