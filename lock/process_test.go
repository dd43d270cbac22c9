package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/internal/check"
	"locktop/internal/testtier"
	"locktop/lock"
)

// With these variables the test binary runs as a worker process that locks.
const (
	workerJob  = "LOCKTOP_TEST_JOB"
	workerAddr = "LOCKTOP_TEST_ADDR"
)

// Each of 4 processes makes a quarter of the increments from 16 goroutines.
const (
	processes            = 4
	goroutinesPerProcess = 16
)

var increments = testtier.Size(400, 1_600, 1_600)

// Scenario 7, across processes: an unprotected counter under one mutex is exact.
// Promise P1.
func TestAMutexKeepsProcessesApart(t *testing.T) {
	onRedis(t, func(r *rig) {
		r.must(r.workers("count").Wait())
		n, err := r.rdb.Get(ctx, "counter").Int()
		check.True(r, err == nil && n == increments, "the counter is at %d (%v), want %d", n, err, increments)
		r.holds("mutex", "")
	})
}

// count is the worker of TestAMutexKeepsProcessesApart.
func count(rdb *redis.Client, c *client) error {
	m := c.Mutex("mutex", lock.Options{TTL: time.Minute})
	var all errgroup.Group
	var begun atomic.Int64
	for range goroutinesPerProcess {
		all.Go(func() (err error) {
			for err == nil && begun.Add(1) <= int64(increments/processes) {
				err = increment(rdb, m)
			}
			return err
		})
	}
	return all.Wait()
}

// increment reads and writes the counter in two steps, which is unsafe without a lock.
func increment(rdb *redis.Client, m lock.Locker) error {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	n, err := rdb.Get(ctx, "counter").Int()
	if err != nil && err != redis.Nil {
		return err
	}
	return errors.Join(rdb.Set(ctx, "counter", n+1, 0).Err(), lease.Unlock(ctx))
}

// sayHeld says that the lease is held, and waits for a line: the process is stopped and continued
// meanwhile.
func sayHeld(lease *lock.Lease, err error) (*lock.Lease, error) {
	if err == nil {
		fmt.Println("held")
		_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	}
	return lease, err
}

// workerTTL is the TTL of a lock that a worker holds while its process is stopped.
const workerTTL = 400 * time.Millisecond

// hold is the worker of TestAFrozenProcessWakesUpWithoutItsLock.
func hold(c *client) error {
	lease, err := sayHeld(c.Mutex("mutex", lock.Options{TTL: workerTTL}).Lock(ctx))
	if err != nil {
		return err
	}
	fmt.Printf("valid=%v\n", lease.Valid())
	<-lease.Context().Done()
	fmt.Printf("lost=%v\n", errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	fmt.Printf("unlock=%v\n", errors.Is(lease.Unlock(ctx), lock.ErrLost))
	return nil
}

// write is the worker of TestALateWriteIsRefusedByItsFence.
func write(rdb *redis.Client, c *client) error {
	lease, err := sayHeld(c.Mutex("mutex", lock.Options{TTL: workerTTL, Fence: true}).Lock(ctx))
	if err != nil {
		return err
	}
	written, err := store(rdb, fenceOf(lease), "late")
	fmt.Printf("written=%v\n", written)
	return err
}

// store writes to a resource that refuses a fence smaller than the largest it has
// seen.
func store(rdb *redis.Client, fence int64, value string) (written bool, err error) {
	return rdb.Eval(ctx, `
if tonumber(ARGV[1]) < tonumber(redis.call('hget', KEYS[1], 'fence') or 0) then return 0 end
redis.call('hset', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1`, []string{"resource"}, fence, value).Bool()
}

// worker returns a process that does a job on the rig's server.
func (r *rig) worker(job string) *exec.Cmd {
	r.Helper()
	self := check.Must(os.Executable())(r)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerJob+"="+job, workerAddr+"="+r.rdb.Options().Addr)
	return cmd
}

// workers starts processes that do a job.
func (r *rig) workers(job string) *errgroup.Group {
	r.Helper()
	var all errgroup.Group
	for range processes {
		worker := r.worker(job)
		all.Go(func() error {
			out, err := worker.CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	return &all
}

// work does a job and returns the exit code.
func work(job, addr string) int {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	plain, err := lock.New(rdb, lock.Config{Owner: job + ":" + strconv.Itoa(os.Getpid())})
	if err == nil {
		c := &client{plain}
		defer c.Close()
		switch job {
		case "count":
			err = count(rdb, c)
		case "queue":
			err = queue(rdb, c)
		case "hold":
			err = hold(c)
		case "write":
			err = write(rdb, c)
		default:
			err = fmt.Errorf("no such job: %s", job)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
