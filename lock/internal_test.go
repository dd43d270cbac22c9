package lock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// Scenario 58.
func TestOfTwoClocksTheOneThatHasAdvancedFurtherDecides(t *testing.T) {
	sent := time.Now()
	for name, c := range map[string]struct {
		wall, monotonic time.Duration // since the request was sent
		over            bool
	}{
		"neither":                     {9 * time.Second, 9 * time.Second, false},
		"both":                        {10 * time.Second, 10 * time.Second, true},
		"the machine was asleep":      {10 * time.Second, 9 * time.Second, true},
		"the wall clock was set back": {9 * time.Second, 10 * time.Second, true},
	} {
		now := sent.Add(c.wall)
		moveMonotonic(&now, c.monotonic-c.wall)
		check.Require(t, now.Sub(sent) == c.monotonic && now.Round(0).Sub(sent.Round(0)) == c.wall,
			"%s: the clocks show %v and %v", name, now.Round(0).Sub(sent.Round(0)), now.Sub(sent))
		h := &hold{base: &base{}, sent: sent, ttl: 10 * time.Second}
		check.Equal(t, h.pastDeadline(now), c.over, "%s: over", name)
	}
}

// moveMonotonic changes only the monotonic reading of a time. Package time has no
// function for it, so the callers check that it still works.
func moveMonotonic(t *time.Time, by time.Duration) {
	type layout struct {
		wall uint64
		ext  int64
		loc  *time.Location
	}
	(*layout)(unsafe.Pointer(t)).ext += int64(by)
}

// After its release an attempt has no copies. An extension learns that without
// sending a command, and without taking the node for one that does not answer.
func TestAnExtensionAfterTheReleaseFindsTheLockLost(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	q := check.Must(NewQuorum([]*redis.Client{rdb}, QuorumConfig{}))(t)
	defer q.Close()
	a := check.Must(q.Redlock("orders", Options{}))(t).(*redlock).redlock.newAttempt()
	a.states[0].held = true
	a.states[0].closeAcquires()
	reply, err := a.extend(t.Context(), nil, a.token, time.Minute).wait(t.Context())
	check.True(t, reply == int64(0) && err == nil, "the extension ended with %v, %v; want 0", reply, err)
	check.False(t, q.nodes.nodes[0].unresponsive.Load(), "the node counts as one that does not answer")
}

// The uptime of a server may be 1 s too large: it then is 9 s old when it says 10.
func TestANodeVotesWhenItIsCertainlyOldEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{upSince: bootTime("10")}
		for age := 9 * time.Second; age <= 21*time.Second; age += time.Second / 2 {
			err := n.checkUptime(20 * time.Second)
			check.True(t, (err == nil) == (age >= 20*time.Second), "a node that is %v old, with a MinUptime of 20 s: %v", age, err)
			time.Sleep(time.Second / 2)
		}
		n.upSince = bootTime("unknown")
		check.True(t, n.checkUptime(time.Millisecond) != nil && n.checkUptime(0) == nil,
			"a node without an uptime votes if there is a MinUptime, or does not if there is none")
	})
}

// Close also finds a hold that the renewer is handling.
func TestCloseFindsAHoldThatTheRenewerHandles(t *testing.T) {
	var r renewer
	r.init()
	now := time.Now()
	h := &hold{base: &base{client: &Client{}}, sent: now, ttl: time.Minute, renewAt: now.Add(time.Second), slot: -1}
	r.add(h)
	due, _ := r.popDue(now.Add(2 * time.Second))
	check.Require(t, len(due) == 1 && due[0] == h, "%d are due, want the one", len(due))
	check.Equal(t, len(r.all(func(*hold) bool { return true })), 1, "holds that Close finds")
	if due, next := r.popDue(now.Add(3 * time.Second)); len(due) != 0 || next > time.Hour {
		t.Errorf("it is due twice; the next look is in %v", next)
	}
	r.update(h)
	if due, _ := r.popDue(now.Add(4 * time.Second)); len(due) != 1 {
		t.Error("it is not due again")
	}
	r.remove(h)
	check.Equal(t, len(r.all(func(*hold) bool { return true })), 0, "holds that Close finds")
}

// A task may begin just before the group is closed. The goroutine that waits for the
// end of all tasks must not continue before that task has ended, and must not wait
// forever for a task that was refused.
func TestAClosedTaskGroupIsIdleOnceNoTaskRuns(t *testing.T) {
	for range testtier.Size(40, 200, 200) {
		var group taskGroup
		var running, begun atomic.Int64
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for group.begin() {
					running.Add(1)
					begun.Add(1)
					group.idle()
					running.Add(-1)
					group.done()
				}
			})
		}
		for begun.Load() < 20 {
			runtime.Gosched()
		}
		group.close()
		<-group.idle()
		n := running.Load()
		check.Require(t, n == 0, "%d tasks run in a group that is closed and idle", n)
		callers.Wait()
		<-group.idle()
		check.Require(t, !group.begin(), "a task began in a closed group")
	}
}

// The original error replies of Redis 6.0.16, 7.0.15, 8.0.2 and Valkey 8.1.1.
func TestErrorRepliesOfEveryServerHaveTheirSentinel(t *testing.T) {
	const (
		before7 = "ERR Error running script (call to f_620cd258c2c9c88c9d10db67812ccf663d96bdc6): @user_script:1: "
		since7  = " script: 620cd258c2c9c88c9d10db67812ccf663d96bdc6, on @user_script:1."
	)
	for _, c := range []struct {
		reply string
		want  error
	}{
		{"WRONGTYPE Operation against a key holding the wrong kind of value", ErrWrongType},
		{before7 + "WRONGTYPE Operation against a key holding the wrong kind of value", ErrWrongType},
		{"WRONGTYPE Operation against a key holding the wrong kind of value" + since7, ErrWrongType},
		{"READONLY You can't write against a read only replica.", errReadOnly},
		{before7 + "@user_script: 1: -READONLY You can't write against a read only replica.", errReadOnly},
		{"READONLY You can't write against a read only replica." + since7, errReadOnly},
		{"OOM command not allowed when used memory > 'maxmemory'.", ErrUnavailable},
		{before7 + "@user_script: 1: -OOM command not allowed when used memory > 'maxmemory'.", ErrUnavailable},
		{"OOM command not allowed when used memory > 'maxmemory'." + since7, ErrUnavailable},
		{"MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", ErrUnavailable},
		{before7 + "@user_script: 1: -MISCONF Redis is configured to save RDB snapshots, but it is currently not able to persist on disk.", ErrUnavailable},
		{"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk." + since7, ErrUnavailable},
		{"NOREPLICAS Not enough good replicas to write.", ErrUnavailable},
		{"NOREPLICAS Not enough good replicas to write." + since7, ErrUnavailable},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", ErrUnavailable},
		{"NOPERM this user has no permissions to run the 'set' command or its subcommand", ErrNoPermission},
		{"NOPERM User u has no permissions to run the 'set' command", ErrNoPermission},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", ErrNoPermission},
		{"NOPERM No permissions to access a key", ErrNoPermission},
		{before7 + "@user_script: 1: The user executing the script can't run this command or subcommand", ErrNoPermission},
		{before7 + "@user_script: 1: The user executing the script can't access at least one of the keys mentioned in the command arguments", ErrNoPermission},
		{"ERR The user executing the script can't run this command or subcommand" + since7, ErrNoPermission},
		{"ERR The user executing the script can't publish to the channel mentioned in the command" + since7, ErrNoPermission},
		{"ERR ACL failure in script: User u has no permissions to run the 'set' command" + since7, ErrNoPermission},
		{"ERR ACL failure in script: No permissions to access a key" + since7, ErrNoPermission},
		{"ERR ACL failure in script: No permissions to access a channel" + since7, ErrNoPermission},

		{"ERR syntax error", nil},
		{before7 + "@user_script: 1: ERR value is not an integer or out of range", nil},
		{"ERR Error running script: OOM", nil}, // no server sends this
	} {
		err := describe("acquire", "orders", refusal(c.reply))
		check.Equal(t, sentinelOf(err), c.want, "%s", c.reply)
		told := strings.TrimPrefix(strings.TrimPrefix(strings.TrimPrefix(c.reply, before7), "@user_script: 1: "), "-")
		code, _, _ := strings.Cut(told, " ")
		check.True(t, (c.want == nil || errors.Is(err, c.want) && redis.HasErrorPrefix(err, strings.TrimPrefix(code, "ERR"))) && strings.Contains(err.Error(), told),
			"got %v; it must match %v and have the words %q", err, c.want, told)
	}
}

// A caller whose context ends while it waits for a server learns both.
func TestAReplyHidesNotTheEndOfTheContext(t *testing.T) {
	err := describe("acquire", "orders", fmt.Errorf("%w: %w", context.DeadlineExceeded, refusal("TRYAGAIN Multiple keys request during rehashing of slot")))
	check.True(t, errors.Is(err, context.DeadlineExceeded) && errors.Is(err, ErrUnavailable) && redis.HasErrorPrefix(err, "TRYAGAIN"), "got %v", err)
}
