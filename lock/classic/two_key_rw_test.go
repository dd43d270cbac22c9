package classic_test

import (
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
	"locktop/lock/classic"
)

func TestAReaderSetsTheTimeOfAllReaders(t *testing.T) {
	inBubble(t, func(r *rig) {
		long := r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{TTL: time.Minute}).Reader())
		r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{TTL: time.Second}).Reader())
		time.Sleep(1100 * time.Millisecond)
		r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{}).Writer())
		check.True(r, time.Now().Before(long.Deadline()), "the first reader's time is up")
	})
}

func TestNoClusterRunsTwoKeyRWUnlessItsNameHasATag(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	t.Parallel()
	node := servertest.ClusterForTest(t, servertest.ClusterOptions{Masters: 1})
	r := newRig(t, node.Addrs()[0], tcp)

	o := classic.Options{}
	for name, l := range map[string]classic.Lock{
		"reader": classic.NewTwoKeyRW(r.rdb, "orders", o).Reader(),
		"writer": classic.NewTwoKeyRW(r.rdb, "orders", o).Writer(),
	} {
		_, err := l.TryLock(ctx)
		check.True(t, err != nil && strings.Contains(err.Error(), "CROSSSLOT"), "%s: got %v, want CROSSSLOT", name, err)
	}
	r.take(classic.NewTwoKeyRW(r.rdb, "{orders}", o).Reader())
	r.take(classic.NewStampRW(r.rdb, "orders", o).Reader())
}
