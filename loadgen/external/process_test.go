//go:build unix

package external

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// start starts a client that behaves in a way. At the end of the test no process of it
// may be left.
func start(t *testing.T, how string) *Process {
	t.Helper()
	return startWith(t, how, Options{HelloWithin: 20 * time.Second, ReplyWithin: 20 * time.Second})
}

func startWith(t *testing.T, how string, o Options) *Process {
	t.Helper()
	o.Command, o.URLs, o.Client = command(how), []string{"redis://127.0.0.1:1"}, "c1"
	p := check.Must(Start(o))(t)
	t.Cleanup(func() {
		_ = p.Close()
		waitGone(t, p.cmd.Process.Pid)
	})
	return p
}

// state returns the state of a process as ps does, "" if there is none.
func state(pid int) string {
	if syscall.Kill(pid, 0) == syscall.ESRCH { // faster than ps
		return ""
	}
	out, _ := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return strings.TrimSpace(string(out))
}

// waitGone fails the test if a process runs on. A zombie, for which nobody waits, is gone.
func waitGone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := state(pid)
		if s == "" || s[0] == 'Z' {
			return
		}
		check.Require(t, !time.Now().After(end), "process %d is left, in state %s", pid, s)
	}
}

// terms returns the terms of a lock that is free.
func terms(key string) Terms { return Terms{Keys: []string{key}, TTL: time.Minute} }

func mustLock(t *testing.T, p *Process, key string) *Lease {
	t.Helper()
	return check.Must(p.Lock(t.Context(), terms(key)))(t)
}

func TestAClientLocksExtendsAndUnlocks(t *testing.T) {
	p := start(t, "well")
	h := check.Must(p.Hello(t.Context()))(t)
	check.True(t, h.Name == "test 1" && len(h.Kinds) == 1 && h.Renews && h.Fences && h.Tells, "hello is %+v", h)
	asked := time.Now()
	l := mustLock(t, p, "a")
	check.True(t, l.Token() == "t1" && l.Fence() == 1 && l.Valid(), "got token %q, fence %d, valid %t", l.Token(), l.Fence(), l.Valid())
	if first := l.Deadline(); first.Before(asked.Add(59*time.Second)) || first.After(time.Now().Add(time.Minute)) {
		t.Errorf("the deadline is %s after the request", first.Sub(asked))
	}
	_, err := p.Lock(t.Context(), terms("a"))
	check.True(t, errors.Is(err, ErrHeld), "a held lock: %v", err)
	if err := l.Extend(t.Context(), time.Hour); err != nil || time.Until(l.Deadline()) < 59*time.Minute {
		t.Errorf("after an extend the lease lasts %s, error %v", time.Until(l.Deadline()), err)
	}
	if err := l.Unlock(t.Context()); err != nil || l.Valid() {
		t.Errorf("unlock: %v, valid %t", err, l.Valid())
	}
	check.ErrorIs(t, l.Unlock(t.Context()), ErrLost, "a second unlock")
	check.ErrorIs(t, p.Close(), nil, "close")
	if _, err := p.Lock(t.Context(), terms("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("lock after close: %v", err)
	}
}

func TestEachWayToBreakTheProtocolHasItsError(t *testing.T) {
	for how, want := range map[string]struct {
		is   error
		text []string
	}{
		"garbage":     {ErrNotJSON, []string{"not a JSON object", "Traceback", `\x1b`}},
		"number":      {ErrNotJSON, []string{`"42"`}},
		"version-2":   {ErrVersion, []string{"version 1", "version 2"}},
		"refuses":     {ErrVersion, []string{"never heard of it"}},
		"nameless":    {ErrField, []string{"without a name"}},
		"early-reply": {ErrField, []string{"not a hello"}},
		"wrong-type":  {ErrField, []string{"ok is a string"}},
		"exits":       {ErrExited, []string{"exit status 3", "line 2 | line 3 | no module named ?[31mredis"}},
		"no-newline":  {ErrFlood, []string{"a line of more than 16384 bytes", `"xxxx`}},
		"unknown-id":  {ErrUnknownID, []string{"client test 1", "id 8"}},
		"no-id":       {ErrField, []string{"neither an id nor an event"}},
		"twice":       {ErrAnsweredTwice, []string{"id 1"}},
		"tokenless":   {ErrField, []string{"without a token"}},
		"timeless":    {ErrField, []string{"without valid_ms"}},
		"eternal":     {ErrField, []string{"valid_ms is 99999999999999999"}},
		"exits-later": {ErrExited, []string{"client test 1", "exit status 4", "out of luck"}},
		"events":      {ErrFlood, []string{"1001 events"}},
	} {
		t.Run(how, func(t *testing.T) {
			p := start(t, how)
			_, err := p.Lock(t.Context(), terms("a"))
			if err == nil { // it answers a second time
				<-p.done
				err = p.Err()
			}
			var broken *Error
			check.Require(t, errors.As(err, &broken) && errors.Is(err, want.is), "got %v, want %v", err, want.is)
			for _, part := range want.text {
				check.True(t, strings.Contains(err.Error(), part), "%q does not say %q", err, part)
			}
			check.True(t, !strings.ContainsAny(err.Error(), "\n\x1b") && len(err.Error()) <= 1000, "not one short line of text: %q", err)
			<-p.done
			check.ErrorIs(t, p.Close(), want.is, "close returned")
		})
	}
}

func TestAClientMayAnswerInAnyOrder(t *testing.T) {
	p := start(t, "reversed")
	got := make(chan string)
	ask := func(key string) {
		l, err := p.Lock(context.Background(), terms(key))
		if err != nil {
			got <- err.Error()
			return
		}
		got <- key + " " + l.Token()
	}
	go ask("a")
	for asked := int64(0); asked == 0; {
		p.mu.Lock()
		asked = p.newest
		p.mu.Unlock()
		runtime.Gosched()
	}
	go ask("b")
	answers := []string{<-got, <-got}
	slices.Sort(answers)
	check.True(t, slices.Equal(answers, []string{"a t1", "b t2"}) || slices.Equal(answers, []string{"a t2", "b t1"}),
		"the locks are %q", answers)
	check.ErrorIs(t, p.Close(), nil)
}

func TestTwoLocksMayHaveOneToken(t *testing.T) {
	p := start(t, "same-token")
	a, b := mustLock(t, p, "a"), mustLock(t, p, "b")
	check.ErrorIs(t, a.Unlock(t.Context()), nil)
	check.True(t, a.Context().Err() != nil && b.Valid() && a.lock != b.lock, "the release of one lock ended both, or has no number: %d, %d", a.lock, b.lock)
}

func TestAClientThatDoesNotAnswerIsLate(t *testing.T) {
	t.Parallel()
	for how, c := range map[string]struct {
		hello time.Duration
		want  error
	}{"silent": {100 * time.Millisecond, ErrNoHello}, "hangs": {0, ErrLate}} {
		p := startWith(t, how, Options{HelloWithin: c.hello, ReplyWithin: 100 * time.Millisecond})
		_, err := p.Lock(t.Context(), terms("a"))
		check.True(t, errors.Is(err, c.want), "%s: %v", how, err)
		<-p.done
	}
}

func TestAClientThatReadsNothingIsLate(t *testing.T) {
	t.Parallel()
	p := startWith(t, "never-reads", Options{ReplyWithin: 100 * time.Millisecond})
	long := strings.Repeat("k", 100_000) // more than a pipe holds
	_, err := p.Lock(t.Context(), terms(long))
	check.True(t, errors.Is(err, ErrLate) && strings.Contains(err.Error(), "stdin"), "got %v", err)
}

func TestAFaultExcusesALateReply(t *testing.T) {
	t.Parallel()
	asked := make(chan time.Time, 1000)
	p := startWith(t, "slow", Options{ReplyWithin: 20 * time.Millisecond, Excused: func(since time.Time) bool {
		asked <- since
		return true
	}})
	check.True(t, mustLock(t, p, "a").Valid(), "the lease is not valid")
	check.True(t, len(asked) != 0, "nobody asked for an excuse: the reply was in time")
}

func TestTheTimeOfAWaitIsNotLate(t *testing.T) {
	t.Parallel()
	p := startWith(t, "slow", Options{ReplyWithin: 100 * time.Millisecond})
	_, err := p.Lock(t.Context(), Terms{Keys: []string{"a"}, TTL: time.Minute, Wait: 10 * time.Second})
	check.ErrorIs(t, err, nil)
}

func TestACancelledWaiterAnswersAtOnce(t *testing.T) {
	t.Parallel()
	p := start(t, "cancels")
	cancel := make(chan struct{})
	time.AfterFunc(10*time.Millisecond, func() { close(cancel) })
	_, err := p.Lock(t.Context(), Terms{Keys: []string{"k"}, TTL: time.Minute, Wait: time.Hour, Cancel: cancel})
	check.True(t, errors.Is(err, ErrHeld), "a cancelled request ended with %v", err)
}

func TestALockGrantedAfterItsCallerGaveUpIsReleased(t *testing.T) {
	t.Parallel()
	p := start(t, "slow")
	check.Must(p.Hello(t.Context()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := p.Lock(ctx, Terms{Keys: []string{"a"}, TTL: time.Minute, Wait: time.Minute})
	check.Require(t, errors.Is(err, context.DeadlineExceeded), "%v", err)
	for {
		l, err := p.Lock(t.Context(), terms("a"))
		if err == nil {
			check.True(t, l.Token() != "t1", "the lock of the caller that gave up")
			return
		}
		check.Require(t, errors.Is(err, ErrHeld), "%v", err)
	}
}

func TestALostLeaseEndsAndARenewalProlongsIt(t *testing.T) {
	p := start(t, "loses")
	l := mustLock(t, p, "a")
	<-l.Context().Done()
	cause := context.Cause(l.Context())
	check.True(t, errors.Is(cause, ErrLost) && !l.Valid(), "cause %v, valid %t", cause, l.Valid())
	check.Between(t, time.Until(l.Deadline()), 59*time.Minute, time.Hour, "the renewed lease")
}

func TestALeaseCanBeOverFromTheStart(t *testing.T) {
	p := start(t, "expired")
	l := mustLock(t, p, "a")
	check.True(t, !l.Valid() && time.Until(l.Deadline()) <= -4*time.Second, "valid %t, deadline in %s", l.Valid(), time.Until(l.Deadline()))
}

func TestAnErrorOfTheClientIsNotTheEnd(t *testing.T) {
	p := start(t, "fails")
	for range 2 {
		_, err := p.Lock(t.Context(), terms("a"))
		var broken *Error
		check.True(t, err != nil && !errors.As(err, &broken) && strings.Contains(err.Error(), "READONLY"), "got %v", err)
	}
	check.ErrorIs(t, p.Close(), nil)
}

func TestAFloodTakesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, how := range []string{"no-newline", "stderr"} { // 100 MB each
		p := start(t, how)
		_, err := p.Hello(t.Context())
		check.Equal(t, how == "no-newline", errors.Is(err, ErrFlood), "%s: %v", how, err)
		_ = p.Close()
	}
	runtime.ReadMemStats(&after)
	check.AtMost(t, after.TotalAlloc-before.TotalAlloc, 10<<20, "bytes allocated")
}

func TestAFrozenClientAnswersAfterwards(t *testing.T) {
	t.Parallel()
	p := start(t, "well")
	check.Must(p.Hello(t.Context()))(t)
	check.NoError(t, p.Freeze())
	for s := state(p.cmd.Process.Pid); s[0] != 'T'; s = state(p.cmd.Process.Pid) {
		time.Sleep(time.Millisecond)
	}
	got := make(chan error)
	go func() {
		_, err := p.Lock(context.Background(), terms("a"))
		got <- err
	}()
	select {
	case err := <-got:
		t.Fatalf("a frozen client answered: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	check.NoError(t, p.Continue())
	check.ErrorIs(t, <-got, nil)
}

func TestAKilledClientIsNotToBlame(t *testing.T) {
	p := start(t, "well")
	l := mustLock(t, p, "a")
	p.Kill()
	check.ErrorIs(t, p.Err(), ErrKilled, "its error")
	check.True(t, !l.Valid() && errors.Is(l.Unlock(t.Context()), ErrKilled), "a lease of a dead client")
	check.ErrorIs(t, p.Close(), nil)
	check.ErrorIs(t, p.Freeze(), os.ErrProcessDone, "freeze")
}

func TestAClientThatStaysAfterByeIsKilled(t *testing.T) {
	testtier.Long(t, "a client has a second to end")
	t.Parallel()
	stays, frozen := start(t, "stays"), start(t, "well")
	mustLock(t, stays, "a")
	check.NoError(t, frozen.Freeze())
	for _, p := range []*Process{stays, frozen} {
		check.ErrorIs(t, p.Close(), nil)
		waitGone(t, p.cmd.Process.Pid)
	}
}

func TestForkedProcessesEndWithTheirClient(t *testing.T) {
	p := start(t, "forks")
	forked, err := strconv.Atoi(mustLock(t, p, "a").Token())
	check.NoError(t, err)
	check.Require(t, state(forked) != "", "the client has not forked")
	check.ErrorIs(t, p.Close(), nil)
	waitGone(t, forked)

	p = start(t, "forks-and-exits")
	_, failed := p.Lock(t.Context(), terms("a"))
	var broken *Error
	check.Require(t, errors.As(failed, &broken) && errors.Is(failed, ErrExited), "%v", failed)
	if forked, err = strconv.Atoi(broken.Stderr); err != nil {
		t.Fatal(err)
	}
	waitGone(t, forked)
}

func TestACommandThatIsNotThereSaysSo(t *testing.T) {
	p, err := Start(Options{Command: "no-such-client --fast"})
	check.NoError(t, err)
	_, err = p.Hello(t.Context())
	check.True(t, errors.Is(err, ErrExited) && strings.Contains(err.Error(), "no-such-client: ") && strings.Contains(err.Error(), "127"),
		"got %v", err)
	<-p.done
}

// parent starts a client that forks, prints the IDs of both processes, and waits for its
// end.
func parent() {
	p, err := Start(Options{Command: command("forks")})
	if err != nil {
		panic(err)
	}
	l, err := p.Lock(context.Background(), terms("a"))
	if err != nil {
		panic(err)
	}
	fmt.Println(p.cmd.Process.Pid, l.Token(), theGuard.cmd.Process.Pid)
	select {}
}

func TestNoProcessIsLeftAfterAKillOfTheParent(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asClient+"=parent")
	out := check.Must(cmd.StdoutPipe())(t)
	check.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line := check.Must(bufio.NewReader(out).ReadString('\n'))(t)
	var pids []int
	for word := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(word)
		check.Require(t, err == nil && state(pid) != "", "%s does not run", word)
		pids = append(pids, pid)
	}
	check.Require(t, len(pids) == 3, "the parent says %q", line)
	check.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	for _, pid := range pids {
		waitGone(t, pid)
	}
}

// A client may use a token again after it has released its lock.
func TestATokenMayComeAgainAfterItsRelease(t *testing.T) {
	p := start(t, "same-token")
	for range 2 {
		check.ErrorIs(t, mustLock(t, p, "a").Unlock(t.Context()), nil)
	}
}

// An extension may have begun as early as its request.
func TestAnExtensionCountsFromItsRequest(t *testing.T) {
	t.Parallel()
	l := mustLock(t, start(t, "slow"), "a")
	asked := time.Now()
	check.NoError(t, l.Extend(t.Context(), time.Hour))
	answered := time.Now()
	if d := l.Deadline(); d.Before(asked.Add(time.Hour)) || d.After(answered.Add(time.Hour-100*time.Millisecond)) {
		t.Errorf("the lease ends %s after the request, which took %s", d.Sub(asked), answered.Sub(asked))
	}
}
