//go:build unix

package lock_test

import (
	"bufio"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/lock"
)

// Scenario 57: a process that is stopped beyond its TTL has no lock when it continues,
// and knows it before it does anything.
//
// Promise P2.
func TestAFrozenProcessWakesUpWithoutItsLock(t *testing.T) {
	onRedis(t, func(r *rig) {
		times := 1
		if proving() {
			times = 40
		}
		for range times {
			said, next := r.freezeAndWake("hold", lock.Options{TTL: time.Minute}, func(*lock.Lease) {})
			check.Equal(r, said, "valid=false lost=true unlock=true", "the worker that found")
			r.holds("mutex", next.Token())
			r.must(next.Unlock(ctx))
		}
	})
}

// freezeAndWake stops a process that holds the lock, and continues it when another client has the
// lock and meanwhile has returned. It returns what the process says then, and the lease of the other.
func (r *rig) freezeAndWake(job string, o lock.Options, meanwhile func(next *lock.Lease)) (said string, next *lock.Lease) {
	worker := r.worker(job)
	in := check.Must(worker.StdinPipe())(r)
	out := check.Must(worker.StdoutPipe())(r)
	worker.Stderr = os.Stderr
	r.must(worker.Start())
	r.Cleanup(func() { _ = worker.Process.Kill() })
	lines := bufio.NewScanner(out)
	check.Require(r, lines.Scan() && lines.Text() == "held", "the worker says %q (%v)", lines.Text(), lines.Err())
	time.Sleep(rand.N(workerTTL / 2)) // a renewal may be in flight
	r.must(worker.Process.Signal(syscall.SIGSTOP))
	next = r.lock(r.client(lock.Config{Owner: "next"}).Mutex("mutex", o))
	meanwhile(next)
	r.must(worker.Process.Signal(syscall.SIGCONT))
	check.Must(io.WriteString(in, "go on\n"))(r)
	var told []string
	for lines.Scan() {
		told = append(told, lines.Text())
	}
	r.must(worker.Wait())
	return strings.Join(told, " "), next
}

// Scenario 109: a process continues in the middle of its work and does not check its
// lease. A resource that checks fences refuses its write.
//
// Promise P6.
func TestALateWriteIsRefusedByItsFence(t *testing.T) {
	onRedis(t, func(r *rig) {
		said, _ := r.freezeAndWake("write", lock.Options{TTL: time.Minute, Fence: true}, func(next *lock.Lease) {
			written, err := store(r.rdb, fenceOf(next), "next")
			check.Require(r, written && err == nil, "the holder's write was refused: %v", err)
		})
		check.Equal(r, said, "written=false", "the late writer says")
		check.Equal(r, r.rdb.HGet(ctx, "resource", "value").Val(), "next", "the resource holds")
	})
}
