package classic_test

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/lock/classic"
	"locktop/server"
)

func TestAReaderSetsTheTimeOfAllReaders(t *testing.T) {
	inBubble(t, func(r *rig) {
		long := r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{TTL: time.Minute}).Reader())
		r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{TTL: time.Second}).Reader())
		time.Sleep(1100 * time.Millisecond)
		r.take(classic.NewTwoKeyRW(r.rdb, "orders", classic.Options{}).Writer())
		if !time.Now().Before(long.Deadline()) {
			r.Error("the first reader's time is up")
		}
	})
}

func TestNoClusterRunsTwoKeyRWUnlessItsNameHasATag(t *testing.T) {
	bus, err := net.Listen("tcp", "127.0.0.1:0") // a server's port plus 10000 may be none
	if err != nil {
		t.Fatal(err)
	}
	port := bus.Addr().(*net.TCPAddr).Port
	bus.Close()
	child := server.ForTest(t, "--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(port))
	r := newRig(t, child.Addr(), redis.NewDialer(&redis.Options{}))
	r.must(r.rdb.ClusterAddSlotsRange(ctx, 0, 16383).Err())
	r.until("the cluster to be up", func() bool { return r.rdb.Set(ctx, "another", 1, 0).Err() == nil })

	o := classic.Options{}
	for name, l := range map[string]classic.Lock{
		"reader": classic.NewTwoKeyRW(r.rdb, "orders", o).Reader(),
		"writer": classic.NewTwoKeyRW(r.rdb, "orders", o).Writer(),
	} {
		if _, err := l.TryLock(ctx); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
			t.Errorf("%s: got %v, want CROSSSLOT", name, err)
		}
	}
	r.take(classic.NewTwoKeyRW(r.rdb, "{orders}", o).Reader())
	r.take(classic.NewStampRW(r.rdb, "orders", o).Reader())
}
