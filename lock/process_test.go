package lock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"locktop/lock"
)

// With these variables the test binary runs as a worker process that locks.
const (
	workerJob  = "LOCKTOP_TEST_JOB"
	workerAddr = "LOCKTOP_TEST_ADDR"
)

// Each of 4 processes makes 1,000 increments from 16 goroutines.
const (
	processes            = 4
	goroutinesPerProcess = 16
	increments           = 4_000
)

// Scenario 7, across processes: an unprotected counter under one mutex is exact.
// Promise P1.
func TestAMutexKeepsProcessesApart(t *testing.T) {
	onRedis(t, func(r *rig) {
		var all errgroup.Group
		for range processes {
			worker := r.worker("count")
			all.Go(func() error {
				out, err := worker.CombinedOutput()
				if err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				return nil
			})
		}
		r.must(all.Wait())
		if n, err := r.rdb.Get(ctx, "counter").Int(); err != nil || n != increments {
			r.Errorf("the counter is at %d (%v), want %d", n, err, increments)
		}
		r.holds("mutex", "")
	})
}

// count is the worker of TestAMutexKeepsProcessesApart.
func count(rdb *redis.Client, c *lock.Client) error {
	m := c.Mutex("mutex", lock.Options{TTL: time.Minute})
	var all errgroup.Group
	for range goroutinesPerProcess {
		all.Go(func() error {
			for range increments / processes / goroutinesPerProcess {
				if err := increment(rdb, m); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for range increments / processes % goroutinesPerProcess {
		if err := increment(rdb, m); err != nil {
			return err
		}
	}
	return nil
}

// increment reads and writes the counter in two steps, which is unsafe without a lock.
func increment(rdb *redis.Client, m *lock.Mutex) error {
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

// Scenario 57: a process that is stopped beyond its TTL has no lock when it continues,
// and knows it before it does anything.
//
// Promise P2.
func TestAFrozenProcessWakesUpWithoutItsLock(t *testing.T) {
	t.Parallel()
	onRedis(t, func(r *rig) {
		next := r.client(lock.Config{Owner: "next"}).Mutex("mutex", lock.Options{TTL: time.Minute})
		times := 1
		if proving() {
			times = 40
		}
		for range times {
			r.freezeAndWake(next)
		}
	})
}

// freezeAndWake stops a process that holds the lock, and continues it when another
// client has the lock.
func (r *rig) freezeAndWake(l lock.Locker) {
	worker := r.worker("hold")
	in, err := worker.StdinPipe()
	r.must(err)
	out, err := worker.StdoutPipe()
	r.must(err)
	worker.Stderr = os.Stderr
	r.must(worker.Start())
	r.Cleanup(func() { _ = worker.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "held" {
		r.Fatalf("the worker says %q (%v)", lines.Text(), lines.Err())
	}
	time.Sleep(rand.N(time.Second / 2)) // a renewal may be in flight
	r.must(worker.Process.Signal(syscall.SIGSTOP))
	next, err := l.Lock(ctx)
	r.must(err)
	r.must(worker.Process.Signal(syscall.SIGCONT))
	_, err = io.WriteString(in, "go on\n")
	r.must(err)
	var told []string
	for lines.Scan() {
		told = append(told, lines.Text())
	}
	r.must(worker.Wait())
	if want := "valid=false lost=true unlock=true"; strings.Join(told, " ") != want {
		r.Errorf("the worker found %q, want %q", told, want)
	}
	r.holds("mutex", next.Token())
	r.must(next.Unlock(ctx))
}

// hold is the worker of TestAFrozenProcessWakesUpWithoutItsLock.
func hold(c *lock.Client) error {
	lease, err := c.Mutex("mutex", lock.Options{TTL: time.Second}).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("held")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // stopped and continued here
		return err
	}
	fmt.Printf("valid=%v\n", lease.Valid())
	<-lease.Context().Done()
	fmt.Printf("lost=%v\n", errors.Is(context.Cause(lease.Context()), lock.ErrLost))
	fmt.Printf("unlock=%v\n", errors.Is(lease.Unlock(ctx), lock.ErrLost))
	return nil
}

// Scenario 109: a process continues in the middle of its work and does not check its
// lease. A resource that checks fences refuses its write.
//
// Promise P6.
func TestALateWriteIsRefusedByItsFence(t *testing.T) {
	t.Parallel()
	onRedis(t, func(r *rig) {
		worker := r.worker("write")
		out, err := worker.StdoutPipe()
		r.must(err)
		worker.Stderr = os.Stderr
		in, err := worker.StdinPipe()
		r.must(err)
		r.must(worker.Start())
		t.Cleanup(func() { _ = worker.Process.Kill() })
		lines := bufio.NewScanner(out)
		if !lines.Scan() || lines.Text() != "held" {
			r.Fatalf("the worker says %q (%v)", lines.Text(), lines.Err())
		}
		r.must(worker.Process.Signal(syscall.SIGSTOP))
		next, err := r.client(lock.Config{Owner: "next"}).Mutex("mutex", lock.Options{TTL: time.Minute, Fence: true}).Lock(ctx)
		r.must(err)
		if written, err := store(r.rdb, next.Fence(), "next"); !written || err != nil {
			r.Fatalf("the holder's write was refused: %v", err)
		}
		_, err = io.WriteString(in, "go on\n")
		r.must(err)
		r.must(worker.Process.Signal(syscall.SIGCONT))
		if !lines.Scan() || lines.Text() != "written=false" {
			r.Errorf("the worker says %q (%v), want its write refused", lines.Text(), lines.Err())
		}
		r.must(worker.Wait())
		if v := r.rdb.HGet(ctx, "resource", "value").Val(); v != "next" {
			r.Errorf("the resource holds %q", v)
		}
	})
}

// write is the worker of TestALateWriteIsRefusedByItsFence.
func write(rdb *redis.Client, c *lock.Client) error {
	lease, err := c.Mutex("mutex", lock.Options{TTL: time.Second, Fence: true}).Lock(ctx)
	if err != nil {
		return err
	}
	fmt.Println("held")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil { // stopped and continued here
		return err
	}
	written, err := store(rdb, lease.Fence(), "late")
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
	self, err := os.Executable()
	r.must(err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), workerJob+"="+job, workerAddr+"="+r.rdb.Options().Addr)
	return cmd
}

// work does a job and returns the exit code.
func work(job, addr string) int {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	c, err := lock.New(rdb, lock.Config{Owner: job + ":" + strconv.Itoa(os.Getpid())})
	if err == nil {
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
