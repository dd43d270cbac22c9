package inspect_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/netfault"
	"locktop/keyspace"
	"locktop/keyspace/inspect"
	"locktop/server"
)

// replyTimeout is how long the clients of bubbles wait for a reply.
const replyTimeout = 2 * time.Second

// bubble runs a test with the clock of a synctest bubble, a server and the network to it.
func bubble(t *testing.T, test func(t *testing.T, rdb *redis.Client, network *netfault.Network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := server.NewPiped()
		defer e.Close()
		network := netfault.New(e.Dial)
		rdb := redis.NewClient(&redis.Options{
			Addr: e.Addr(), Dialer: network.Dial, MaxRetries: -1, DisableIdentity: true, ContextTimeoutEnabled: true,
			DialTimeout: replyTimeout, ReadTimeout: replyTimeout, WriteTimeout: replyTimeout,
		})
		defer rdb.Close()
		defer network.Heal()
		test(t, rdb, network)
	})
}

// stallBefore is a hook of a client that delays the next pipeline with a command.
type stallBefore struct {
	redis.Hook
	command string // "" = none
	stall   time.Duration
}

func (h *stallBefore) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *stallBefore) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (h *stallBefore) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == h.command }) {
			h.command = ""
			time.Sleep(h.stall)
		}
		return next(ctx, cmds)
	}
}

// If a server stalls between the read of the locks and the end of the cycle, the clock
// of the snapshot stays at the first deadline that has not been read.
func TestASnapshotIsNotNewerThanTheReadOfItsLocks(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		do(t, rdb, "SET", "a", "token:1", "PX", 900)
		do(t, rdb, "SET", "b", "token:2", "PX", 60_000)
		f := follow(rdb, justTokens())
		defer f.Close()
		before := until(t, f, complete)
		rdb.AddHook(&stallBefore{command: "scan", stall: 3 * time.Second})
		s := next(t, f)
		if got := keys(s); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("the snapshot has %q; it should begin before the end of a", got)
		}
		if left, _ := s.Locks[0].TTL(s.At); left < -10*time.Millisecond || s.At.Before(before.At) {
			t.Errorf("the clock of the snapshot is %v after the deadline of a lock that was read before it", -left)
		}
		s = next(t, f)
		if got := keys(s); !slices.Equal(got, []string{"b"}) || s.At.Sub(before.At) < 3*time.Second {
			t.Errorf("afterwards it has %q at %v after the first", got, s.At.Sub(before.At))
		}
	})
}

// Only a deadline in the value can pass while the lock exists, and it is judged at the
// time of the read.
func TestALockSaysWhenItWasReadAndWhereItsDeadlineIs(t *testing.T) {
	bubble(t, func(t *testing.T, rdb *redis.Client, _ *netfault.Network) {
		do(t, rdb, "SET", "a", time.Now().Add(-time.Minute).Format(time.RFC3339Nano))
		do(t, rdb, "SET", "b", "token:1", "PX", 60_000)
		time.Sleep(time.Second)
		s := scan(t, rdb, inspect.ScanOptions{Formats: []keyspace.Format{stamps(), tokens()}})
		if len(s.Locks) != 2 || !s.Locks[0].Stamped || s.Locks[1].Stamped || !s.Locks[0].ReadAt.Equal(time.Now()) {
			t.Errorf("%+v", s.Locks)
		}
		if found := keyspace.Findings(s); len(found) != 1 || found[0].ID != "stamp-passed" || found[0].Lock.Key != "a" {
			t.Errorf("%+v", found)
		}
	})
}

// stamps is a format whose values are deadlines.
func stamps() keyspace.Format {
	parse := func(value string) (time.Time, keyspace.Confidence) {
		at, err := time.Parse(time.RFC3339Nano, value)
		if err != nil {
			return at, keyspace.No
		}
		return at, keyspace.Certain
	}
	return keyspace.Format{
		Name: "stamps", Type: "string",
		Probe: func(_, first string) keyspace.Confidence { _, sure := parse(first); return sure },
		Decode: func(e keyspace.Entry) (keyspace.Lock, keyspace.Confidence) {
			at, sure := parse(e.Value)
			return keyspace.Lock{Kind: keyspace.Mutex, Expires: at, Holders: []keyspace.Holder{{ID: "me", Count: 1}}}, sure
		},
	}
}
