package loadgen

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
)

// crowd is the number of clients in the benchmarks of the complete loop.
const crowd = 64

// BenchmarkLoop runs the loop with all features, hardly any contention, and no
// hold or think time. B1 of docs/benchmarks.md has the rate of the locks without it.
func BenchmarkLoop(b *testing.B) {
	r := check.Must(New(Servers{Redis: connect(b, server.ForTest(b).Addr())}, Scenario{
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

// BenchmarkRecorder measures the recording of one iteration of one client.
func BenchmarkRecorder(b *testing.B) {
	r := newRecorder(time.Now(), 0)
	var clients atomic.Int64
	b.RunParallel(func(pb *testing.PB) {
		client := int(clients.Add(1)) - 1
		r.clientJoined(client)
		for pb.Next() {
			r.arrive(client, time.Now(), false)
			r.acquire(client, time.Now(), time.Millisecond)
			r.end(client, released, time.Millisecond, nil)
		}
	})
}

func BenchmarkMetricsOfTenThousandClients(b *testing.B) {
	r := newRecorder(time.Now(), 0)
	for client := range MaxClients {
		r.clientJoined(client)
		r.arrive(client, time.Now(), false)
		r.acquire(client, time.Now(), time.Duration(client)*time.Microsecond)
	}
	for b.Loop() {
		r.metrics(time.Now())
	}
}

// BenchmarkMemoryOfAClient measures the memory of ten thousand clients.
func BenchmarkMemoryOfAClient(b *testing.B) {
	const clients = MaxClients
	rdb := connect(b, server.ForTest(b).Addr())
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		r := started(b, rdb, Scenario{Clients: clients, Keys: Keys{N: 1000}, Hold: Exp(20 * time.Millisecond), Think: Exp(2 * time.Second)})
		for r.Metrics().Acquired < clients {
			time.Sleep(10 * time.Millisecond)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		inUse := func(m runtime.MemStats) float64 { return float64(m.HeapAlloc + m.StackInuse) }
		b.ReportMetric((inUse(after)-inUse(before))/clients, "B/client")
		check.ErrorIs(b, r.Close(), nil)
	}
}
