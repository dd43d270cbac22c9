package lock

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// After its release an attempt has no copies. An extension learns that without
// sending a command, and without taking the node for one that does not answer.
func TestAnExtensionAfterTheReleaseFindsTheLockLost(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer rdb.Close()
	q, err := NewQuorum([]*redis.Client{rdb}, QuorumConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	a := q.Redlock("orders", Options{}).redlock.newAttempt()
	a.states[0].held = true
	a.states[0].closeAcquires()
	reply, err := a.extend(t.Context(), a.token, time.Minute).wait(t.Context())
	if reply != int64(0) || err != nil {
		t.Errorf("the extension ended with %v, %v; want 0", reply, err)
	}
	if q.nodes.nodes[0].unresponsive.Load() {
		t.Error("the node counts as one that does not answer")
	}
}
