package loadgen

import (
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/servertest"
)

// crowd is the number of clients in BenchmarkLoop.
const crowd = 64

// BenchmarkLoop runs the loop with all features, hardly any contention, and no
// hold or think time. B1 of lab/docs/benchmarks.md has the rate of the locks without it.
func BenchmarkLoop(b *testing.B) {
	r := check.Must(New(Servers{Redis: connect(b, servertest.RedisForTest(b).Addr())}, Scenario{
		Clients: crowd, Conns: 1, Keys: Keys{N: MaxKeys}, Hold: Const(0), Think: Const(0),
	}))(b)
	running(b, r)
	b.ResetTimer()
	began := r.Metrics().Acquired
	for r.Metrics().Acquired < began+int64(b.N) {
		time.Sleep(100 * time.Millisecond) // a snapshot of so many keys takes milliseconds
	}
	b.ReportMetric(float64(r.Metrics().Acquired-began)/b.Elapsed().Seconds(), "cycles/s")
}
