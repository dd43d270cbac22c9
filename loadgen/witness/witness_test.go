package witness_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/loadgen/witness"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onServers runs a test with an embedded server and with a real one.
func onServers(t *testing.T, test func(t *testing.T, rdb server.Client)) {
	t.Run("embedded", func(t *testing.T) {
		s := check.Must(server.StartEmbedded())(t)
		t.Cleanup(s.Close)
		test(t, servertest.ClientForTest(t, s.Addr(), nil))
	})
	t.Run("redis", func(t *testing.T) { test(t, servertest.ClientForTest(t, servertest.RedisForTest(t).Addr(), nil)) })
}

func open(t *testing.T, rdb server.Client) *witness.Witness {
	t.Helper()
	return check.Must(witness.Open(t.Context(), rdb, "run", 1))(t)
}

func valid() bool { return true }
func over() bool  { return false }

func TestAWitnessProvesOverlaps(t *testing.T) {
	onServers(t, func(t *testing.T, rdb server.Client) {
		w := open(t, rdb)
		keys := []string{"a", "b"}
		first := w.Enter(t.Context(), 1, keys, false)
		second := w.Enter(t.Context(), 2, keys[1:], false)
		w.Leave(t.Context(), second, valid)
		late := w.Enter(t.Context(), 3, keys[1:], false)
		w.Leave(t.Context(), late, over)
		w.Leave(t.Context(), first, valid)
		ttl := rdb.TTL(t.Context(), "locktop:witness:{run}").Val()
		check.True(t, ttl > 0, "the stream has a TTL of %v", ttl)
		check.NoError(t, w.Close(t.Context()))
		r := w.Results()
		check.True(t, r.Holds == 3 && r.Proven == 2 && r.Overlaps == 1 && r.Unseen == 0 && r.Err == nil && r.P99 > 0, "%+v", r)
		want := "1 overlap in the order of 2 of 3 holds (first: client-1 and client-2 on b)"
		check.True(t, len(r.Examples) == 1 && r.String()[:len(want)] == want, "%s", r)
		check.Equal(t, rdb.DBSize(t.Context()).Val(), 0, "keys left")
	})
}

// Many clients, one at a time: all holds are proved, and nothing is wrong. The stream is
// read while they run.
func TestAWitnessOfManyHoldsOfASoundLock(t *testing.T) {
	onServers(t, func(t *testing.T, rdb server.Client) {
		w := open(t, rdb)
		var lock sync.Mutex
		var all sync.WaitGroup
		const clients = 20
		holds := testtier.Size(30, 150, 150)
		for client := range clients {
			all.Go(func() {
				for range holds {
					lock.Lock()
					h := w.Enter(context.Background(), client+1, []string{"k"}, false)
					w.Leave(context.Background(), h, valid)
					lock.Unlock()
				}
			})
		}
		all.Wait()
		check.NoError(t, w.Close(t.Context()))
		r := w.Results()
		check.True(t, r.Holds == int64(clients*holds) && r.Proven == r.Holds && r.Overlaps == 0, "%s", r)
	})
}

// Without its server, a witness delays no client for more than 1 s an entry, and the results
// tell how much it has missed.
func TestAWitnessWithoutItsServer(t *testing.T) {
	t.Parallel()
	child := servertest.RedisForTest(t)
	rdb := servertest.ClientForTest(t, child.Addr(), nil)
	w := open(t, rdb)
	seen := w.Enter(t.Context(), 1, []string{"k"}, false)
	check.NoError(t, child.Kill())
	w.Leave(t.Context(), seen, valid)
	w.Leave(t.Context(), w.Enter(t.Context(), 2, []string{"k"}, false), valid)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err := w.Close(ctx)
	check.True(t, err != nil && !errors.Is(err, context.DeadlineExceeded), "close: %v", err)
	r := w.Results()
	check.True(t, r.Unseen == 2 && r.Err != nil && r.Overlaps == 0, "%+v", r)
	_, err = witness.Open(ctx, rdb, "other", 1)
	check.True(t, err != nil, "a witness on no server")
}

// Processes that join a witness have their holds judged by the one that has opened it,
// which gets their times with the entries.
func TestProcessesJoinAWitness(t *testing.T) {
	onServers(t, func(t *testing.T, rdb server.Client) {
		w := open(t, rdb)
		var joined []*witness.Witness
		for range 2 {
			joined = append(joined, witness.Join(rdb, "run"))
		}
		first := joined[0].Enter(t.Context(), 100001, []string{"k"}, false)
		second := joined[1].Enter(t.Context(), 200001, []string{"k"}, false)
		joined[1].Leave(t.Context(), second, valid)
		joined[0].Leave(t.Context(), first, valid)
		for _, one := range joined {
			one.Flush(t.Context()) // the confirmations have no other entry to go with
		}
		check.NoError(t, w.Close(t.Context()))
		r := w.Results()
		check.True(t, r.Holds == 2 && r.Proven == 2 && r.Overlaps == 1 && r.Excused == 0 && r.P99 > 0, "%+v", r)
		var none *witness.Witness
		none.LossBegan(t.Context())()
	})
}

func TestAWitnessMergesTheTimesOfAllProcesses(t *testing.T) {
	testtier.Long(t, "it measures clocks for seconds")
	rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
	w, other := open(t, rdb), witness.Join(rdb, "run")
	const slowTrip = 20 * time.Millisecond
	rdb.AddHook(servertest.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		time.Sleep(slowTrip)
		return next(ctx, cmd)
	}))
	for range 100 {
		other.Flush(t.Context())
	}
	fail := failing(rdb)
	fail.Store(true)
	other.Flush(t.Context())
	fail.Store(false)
	other.Flush(t.Context())
	check.NoError(t, w.Close(t.Context()))
	r := w.Results()
	check.True(t, r.P50 >= slowTrip && r.Unseen == 1, "p50 %s after 100 entries of %s, %d unseen of 1", r.P50, slowTrip, r.Unseen)
}

// failing makes each command of a client that adds to a stream fail while the result is true.
func failing(rdb server.Client) *atomic.Bool {
	var on atomic.Bool
	rdb.AddHook(servertest.Commands(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if on.Load() && cmd.Name() == "xadd" {
			cmd.SetErr(errors.New("refused"))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}))
	return &on
}

// A fault that deletes locks excuses the overlaps that it causes, even if the witness does
// not get to know of it.
func TestALossThatTheWitnessDoesNotSeeExcuses(t *testing.T) {
	for _, fails := range []bool{false, true} {
		rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
		w := open(t, rdb)
		fail := failing(rdb)
		first := w.Enter(t.Context(), 1, []string{"k"}, false)
		fail.Store(fails)
		ended := w.LossBegan(t.Context())
		fail.Store(false)
		second := w.Enter(t.Context(), 2, []string{"k"}, false)
		ended()
		w.Leave(t.Context(), first, valid)
		w.Leave(t.Context(), second, valid)
		check.NoError(t, w.Close(t.Context()))
		r := w.Results()
		check.True(t, r.Overlaps == 1 && r.Excused == 1 && (r.Unseen > 0) == fails, "failing %t: %+v", fails, r)
	}
}

// An entry that is not of this program ends the judgement with an error: the report then says
// that it is not complete.
func TestAnEntryOfAnotherProgramIsAnError(t *testing.T) {
	rdb := servertest.ClientForTest(t, servertest.EmbeddedForTest(t).Addr(), nil)
	w := check.Must(witness.Open(t.Context(), rdb, "x", 1))(t)
	check.NoError(t, rdb.XAdd(t.Context(), &redis.XAddArgs{Stream: "locktop:witness:{x}", Values: []any{"entry", "no JSON"}}).Err())
	_ = w.Close(t.Context()) // the results have the error
	check.ErrorContains(t, w.Results().Err, "is not of this program", "the results")
}
