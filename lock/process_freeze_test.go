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
	in := check.Must(worker.StdinPipe())(r)
	out, err := worker.StdoutPipe()
	r.must(err)
	worker.Stderr = os.Stderr
	r.must(worker.Start())
	r.Cleanup(func() { _ = worker.Process.Kill() })
	lines := bufio.NewScanner(out)
	check.Require(r, lines.Scan() && lines.Text() == "held", "the worker says %q (%v)", lines.Text(), lines.Err())
	time.Sleep(rand.N(time.Second / 2)) // a renewal may be in flight
	r.must(worker.Process.Signal(syscall.SIGSTOP))
	next := r.lock(l)
	r.must(worker.Process.Signal(syscall.SIGCONT))
	_, err = io.WriteString(in, "go on\n")
	r.must(err)
	var told []string
	for lines.Scan() {
		told = append(told, lines.Text())
	}
	r.must(worker.Wait())
	check.Equal(r, strings.Join(told, " "), "valid=false lost=true unlock=true", "the worker that found %q", told)
	r.holds("mutex", next.Token())
	r.must(next.Unlock(ctx))
}

// Scenario 109: a process continues in the middle of its work and does not check its
// lease. A resource that checks fences refuses its write.
//
// Promise P6.
func TestALateWriteIsRefusedByItsFence(t *testing.T) {
	onRedis(t, func(r *rig) {
		worker := r.worker("write")
		out := check.Must(worker.StdoutPipe())(r)
		worker.Stderr = os.Stderr
		in := check.Must(worker.StdinPipe())(r)
		r.must(worker.Start())
		t.Cleanup(func() { _ = worker.Process.Kill() })
		lines := bufio.NewScanner(out)
		check.Require(r, lines.Scan() && lines.Text() == "held", "the worker says %q (%v)", lines.Text(), lines.Err())
		r.must(worker.Process.Signal(syscall.SIGSTOP))
		next := r.lock(r.client(lock.Config{Owner: "next"}).Mutex("mutex", lock.Options{TTL: time.Minute, Fence: true}))
		written, err := store(r.rdb, next.Fence(), "next")
		check.Require(r, written && err == nil, "the holder's write was refused: %v", err)
		check.Must(io.WriteString(in, "go on\n"))(r)
		r.must(worker.Process.Signal(syscall.SIGCONT))
		check.True(r, lines.Scan() && lines.Text() == "written=false",
			"the worker says %q (%v), want its write refused", lines.Text(), lines.Err())
		r.must(worker.Wait())
		check.Equal(r, r.rdb.HGet(ctx, "resource", "value").Val(), "next", "the resource holds")
	})
}
