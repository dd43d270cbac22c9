package cli

import (
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// One look cannot tell a hand-off of some milliseconds from a wake-up that was lost.
func TestInspectLooksTwiceAtAFreeLockWithWaiters(t *testing.T) {
	testtier.Long(t, "it looks twice, with 2.2 s in between")
	t.Parallel()
	rdb := clientWith(t, servertest.RedisForTest(t).Addr(), server.ClientOptions{})
	check.NoError(t, rdb.Set(t.Context(), "desks", "2147483647", 0).Err())
	sub := servertest.Subscribe(t.Context(), rdb, "redisson_sc:{desks}")
	defer sub.Close()
	check.Must(sub.Receive(t.Context()))(t)
	got := documentIn[jsonInspection](t, locktop(t, "inspect", "-u", "redis://"+servertest.AddrOf(rdb), "--json", "desks"))
	check.Require(t, len(got.Findings) == 1, "the findings are %+v", got.Findings)
	check.Equal(t, got.Findings[0].ID, "waiters-no-holder", "the finding is")
	check.Contains(t, got.Findings[0].Text, "or want more permits than are left", "of a semaphore, it says")
}
