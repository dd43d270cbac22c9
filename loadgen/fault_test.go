package loadgen

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// linked returns a client of a server in the test's bubble, and the network
// between them.
func linked(t testing.TB) (*redis.Client, *server.Link) {
	t.Helper()
	s := server.NewPiped()
	t.Cleanup(s.Close)
	link := server.NewLink(s.Dial)
	return closing(t, redis.NewClient(&redis.Options{Addr: s.Addr(), Dialer: link.Dial})), link
}

func TestFrozenNetworkCostsLeasesButGrantsNoneTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, link := linked(t)
		r := started(t, rdb, Scenario{
			Clients: 8, Keys: Keys{N: 3}, Lock: Lock{TTL: 2 * time.Second}, Seed: 1,
			Hold: Exp(300 * time.Millisecond), Think: Exp(300 * time.Millisecond),
		})
		for range 5 {
			time.Sleep(5 * time.Second)
			link.Freeze()
			time.Sleep(3 * time.Second)
			checkSums(t, r.Metrics())
			link.Thaw()
		}
		time.Sleep(5 * time.Second)
		m := r.Metrics()
		checkSums(t, m)
		if m.Overlap != (Overlap{}) {
			t.Errorf("overlaps: %+v", m.Overlap)
		}
		if m.Lost+m.Expired+m.Unconfirmed == 0 {
			t.Error("no lease came to harm: the test proves nothing")
		}
		if newest := m.Seconds[len(m.Seconds)-3:]; newest[0].Acquired+newest[1].Acquired == 0 {
			t.Errorf("nothing acquired after the thaw: %+v", newest)
		}
	})
}

func TestStopDoesNotWaitForAServerThatIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, link := linked(t)
		r := started(t, rdb, Scenario{Clients: 5, Keys: Keys{N: 2}, Seed: 1, Hold: Const(time.Hour)})
		time.Sleep(time.Second)
		link.Freeze()
		before := time.Now()
		err := r.Stop()
		if took := time.Since(before); took > 12*time.Second {
			t.Errorf("took %s", took)
		}
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("two leases were not released: got %q", err)
		}
		m := r.Metrics()
		checkSums(t, m)
		if m.Unconfirmed != 2 || m.Released != 0 || m.Clients != 0 || m.LastErr == "" {
			t.Errorf("got %+v", m)
		}
		link.Thaw()
		time.Sleep(time.Minute)
		checkNoKeys(t, rdb)
	})
}

func TestAFaultMayOutliveItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, _ := linked(t)
		r := started(t, rdb, Scenario{
			Clients: 1, Keys: Keys{N: 1}, Seed: 1, Hold: Const(time.Second), Think: Const(time.Second),
			Faults: []Fault{
				{Kind: Slow, Delay: time.Millisecond, For: 20 * time.Second},
				{At: 5 * time.Second, Kind: Crash, For: 5 * time.Second},
			},
		})
		time.Sleep(30 * time.Second)
		if m := r.Metrics(); m.Dead != 0 || m.Abandoned != 1 {
			t.Errorf("it did not crash and come back: %+v", m)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
}
