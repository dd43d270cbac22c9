package lock

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
)

// BenchmarkExtension measures an extension by the script and by SET with IFEQ, 64 of them
// in a pipeline. server-ns/op is the CPU time of the server. A server that does not know
// IFEQ runs the script only.
func BenchmarkExtension(b *testing.B) {
	rdb := redis.NewClient(&redis.Options{Addr: server.ForTest(b).Addr()})
	b.Cleanup(func() { rdb.Close() })
	sha := check.Must(rdb.ScriptLoad(b.Context(), lua("mutex_extend")).Result())(b)
	key, token := "orders", defaultOwner()+"~"+"0193b5c1-7c2a-7e3b-8a4d-0123456789ab"
	check.NoError(b, rdb.Set(b.Context(), key, token, defaultTTL).Err())
	for _, way := range []struct {
		name string
		argv []any
	}{
		{"script", []any{"evalsha", sha, 1, key, token, "60000"}},
		{"ifeq", []any{"set", key, token, "ifeq", token, "px", "60000"}},
	} {
		b.Run(way.name, func(b *testing.B) {
			if err := rdb.Do(b.Context(), way.argv...).Err(); redis.HasErrorPrefix(err, "syntax error") {
				b.Skip("the server does not know IFEQ")
			}
			before := cpuOf(b, rdb)
			n := 0
			for b.Loop() {
				_, err := rdb.Pipelined(b.Context(), func(p redis.Pipeliner) error {
					for range 64 {
						p.Do(b.Context(), way.argv...)
					}
					return nil
				})
				check.NoError(b, err)
				n += 64
			}
			b.ReportMetric(1e9*(cpuOf(b, rdb)-before)/float64(n), "server-ns/op")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/op")
		})
	}
}

// cpuOf returns the CPU time of the server, in seconds.
func cpuOf(b *testing.B, rdb *redis.Client) float64 {
	var user, system float64
	for line := range strings.Lines(rdb.Info(b.Context(), "cpu").Val()) {
		_, _ = fmt.Sscanf(line, "used_cpu_user:%g", &user)
		_, _ = fmt.Sscanf(line, "used_cpu_sys:%g", &system)
	}
	return user + system
}
