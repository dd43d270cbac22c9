package contest

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// testbed returns a Testbed that is closed at the end of the test.
func testbed(t testing.TB) *Testbed {
	t.Helper()
	child := servertest.RedisForTest(t)
	bed := &Testbed{server: child, rdb: redis.NewClient(&redis.Options{Addr: child.Addr()})}
	t.Cleanup(func() { bed.rdb.Close() })
	return bed
}

// work runs b.N cycles in a setting and reports their costs.
func (bed *Testbed) work(b *testing.B, c Contender, s Setting) {
	s.Work.Cycles = int64(b.N)
	sample, err := bed.runWindow(b.Context(), c, s)
	check.NoError(b, err)
	b.ReportMetric(sample.Rate(), "cycles/s")
	b.ReportMetric(sample.ClientCost(), "client-µs/op")
	b.ReportMetric(sample.ServerCost(), "server-µs/op")
	b.ReportMetric(sample.CommandCost(), "commands/op")
	b.ReportMetric(quantile(sample.Waits, 0.99), "p99-wait-ms")
}

func BenchmarkB1(b *testing.B) {
	bed := testbed(b)
	for _, clients := range []int{1, 64, 512} {
		for _, c := range in(Cycles) {
			b.Run(fmt.Sprintf("clients=%d/%s", clients, c.Name), func(b *testing.B) {
				bed.work(b, c, Setting{Clients: clients, Lease: longLease()})
			})
		}
	}
}

func BenchmarkB2(b *testing.B) {
	bed := testbed(b)
	for _, cell := range []hotKeyCell{{16, false, 0}, {128, false, 0}, {128, false, time.Millisecond}, {128, true, time.Millisecond}} {
		for _, c := range in(HotKey) {
			b.Run(fmt.Sprintf("%v/%s", cell, c.Name), func(b *testing.B) {
				bed.work(b, c, Setting{Clients: cell.clients, Apart: cell.apart, Hot: true, Lease: longLease(), Work: Work{Hold: cell.hold}})
			})
		}
	}
}

// BenchmarkB3 keeps leases for 1 s per operation.
func BenchmarkB3(b *testing.B) {
	bed := testbed(b)
	for _, c := range in(Keeping) {
		b.Run(c.Name, func(b *testing.B) {
			k, err := bed.keepLeases(b.Context(), c, 10_000, Lease{TTL: 3 * time.Second, Renew: time.Second}, time.Duration(b.N)*time.Second)
			check.NoError(b, err)
			b.ReportMetric(float64(k.lost), "lost")
			b.ReportMetric(100*k.share(k.ClientCPU), "client-%")
			b.ReportMetric(100*k.share(k.ServerCPU), "server-%")
		})
	}
}
