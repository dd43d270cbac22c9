//go:build unix

package lock_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

const writerProcesses = 16

// writerEvent is a hold that begins or ends in a process, or the death of the process.
type writerEvent struct {
	process int
	begin   bool
	at      int64 // UNIX time in ns
}

// Every 400 ms a random one of 16 processes dies or is stopped. The others go on: the lock
// is free for at most the TTL of a dead holder and 1 s for dead processes that were next.
func TestProcessesThatDieDelayOtherWritersOnlyBriefly(t *testing.T) {
	testtier.Long(t, "it measures delays after the deaths of processes")
	length, atLeast := 3*time.Second, 20
	if proving() {
		length, atLeast = 20*time.Second, 1000
	}
	onRedis(t, func(r *rig) {
		j := &writerJournal{rig: r}
		for range writerProcesses {
			j.start()
		}
		for end := time.Now().Add(length); time.Now().Before(end); time.Sleep(400 * time.Millisecond) {
			w := j.running[rand.IntN(len(j.running))]
			if rand.IntN(2) == 0 {
				j.kill(w)
				j.start()
				continue
			}
			r.must(w.Process.Signal(syscall.SIGSTOP))
			time.AfterFunc(rand.N(400*time.Millisecond), func() { _ = w.Process.Signal(syscall.SIGCONT) })
		}
		for len(j.running) > 0 {
			j.kill(j.running[0])
		}
		j.readers.Wait()
		holds, longest := j.longestPause()
		t.Logf("%d holds; the lock was free for %v at most", holds, longest)
		check.AtLeast(t, holds, atLeast, "holds in %v", length)
		limit := writerTTL + time.Second
		check.True(t, !proving() || longest <= limit, "the lock was free for %v while writers waited, want at most %v", longest, limit)
	})
}

// writerJournal collects the events of the processes.
type writerJournal struct {
	*rig
	running []*exec.Cmd
	readers sync.WaitGroup

	mu     sync.Mutex
	events []writerEvent
}

func (j *writerJournal) start() {
	w := j.worker("write again")
	out, err := w.StdoutPipe()
	j.must(err)
	w.Stderr = os.Stderr
	j.must(w.Start())
	j.Cleanup(func() { _ = w.Process.Kill() })
	j.running = append(j.running, w)
	j.readers.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var what string
			e := writerEvent{process: w.Process.Pid}
			if n, _ := fmt.Sscan(lines.Text(), &what, &e.at); n == 2 {
				e.begin = what == "begin"
				j.note(e)
			}
		}
		_ = w.Wait()
	})
}

func (j *writerJournal) kill(w *exec.Cmd) {
	j.must(w.Process.Kill())
	j.note(writerEvent{process: w.Process.Pid, at: time.Now().UnixNano()})
	j.running = slices.DeleteFunc(j.running, func(other *exec.Cmd) bool { return other == w })
}

func (j *writerJournal) note(e writerEvent) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

// longestPause returns the number of holds, and the longest time from the end of a hold,
// or the death of its process, to the next hold. It fails the test if two holds overlap.
func (j *writerJournal) longestPause() (holds int, longest time.Duration) {
	slices.SortStableFunc(j.events, func(a, b writerEvent) int { return int(a.at - b.at) })
	holder, ended := 0, int64(0)
	for _, e := range j.events {
		switch {
		case e.begin && holder != 0:
			j.Errorf("process %d began to write during the hold of process %d", e.process, holder)
		case e.begin:
			if holds++; ended != 0 {
				longest = max(longest, time.Duration(e.at-ended))
			}
			holder = e.process
		case e.process == holder:
			holder, ended = 0, e.at
		}
	}
	return holds, longest
}
