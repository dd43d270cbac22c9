package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"locktop/internal/check"

	"github.com/redis/go-redis/v9"
)

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
