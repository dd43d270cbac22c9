package lock_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/lock"
)

// BenchmarkCycle measures a lock and its unlock on a redis-server, by one goroutine
// for each kind, and by 64 goroutines with a key each.
func BenchmarkCycle(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(b).Addr()})
	defer rdb.Close()
	c := check.Must(lock.New(rdb, lock.Config{}))(b)
	defer c.Close()
	for _, kind := range []struct {
		name   string
		locker lock.Locker
	}{
		{"mutex", c.Mutex("mutex", lock.Options{})},
		{"fenced", c.Mutex("fenced", lock.Options{Fence: true})},
		{"reentrant", c.Reentrant("reentrant", lock.Options{})},
		{"reader", c.RW("rw", lock.Options{}).Reader()},
		{"fair", c.Fair("fair", lock.Options{})},
	} {
		b.Run(kind.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cycle(b, kind.locker)
			}
		})
	}
	b.Run("64 goroutines", func(b *testing.B) {
		b.ReportAllocs()
		b.SetParallelism(32) // times GOMAXPROCS
		var id atomic.Int64
		b.RunParallel(func(pb *testing.PB) {
			m := c.Mutex(fmt.Sprint("mutex:", id.Add(1)), lock.Options{})
			for pb.Next() {
				cycle(b, m)
			}
		})
	})
}

func cycle(b *testing.B, l lock.Locker) {
	lease, err := l.Lock(b.Context())
	if err == nil {
		err = lease.Unlock(b.Context())
	}
	check.ErrorIs(b, err, nil)
}
