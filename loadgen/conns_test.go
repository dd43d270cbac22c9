package loadgen

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// connections returns the number of connections of a server.
func connections(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	all := check.Must(rdb.ClientList(t.Context()).Result())(t)
	return strings.Count(all, "\n")
}

func TestEveryClientHasAConnectionLikeAProcessUnlessTheyShareSome(t *testing.T) {
	testtier.Long(t, "it counts connections over seconds")
	t.Parallel()
	for _, c := range []struct {
		kind            Kind
		conns           int
		atLeast, atMost int // connections, for twelve and then for thirty clients
	}{
		{Mutex, 0, 1, 2},
		{"classic/blind-delete", 0, 1, 1},
		{Mutex, 1, 0, 0},
		{"classic/blind-delete", 1, 0, 0},
	} {
		rdb := connect(t, server.ForTest(t).Addr())
		s := busy
		s.Clients, s.Conns, s.Lock.Kind = 12, c.conns, c.kind
		s.Keys.N = 1
		r := started(t, rdb, s)
		const ours = 3 // of the test, and of the monitoring of the run
		for _, clients := range []int{12, 30} {
			r.SetClients(clients)
			before := r.Metrics().Acquired
			until(t, r, "all clients at work", func(m Metrics) bool { return m.Clients.Total == clients && m.Acquired > before+300 })
			got := connections(t, rdb)
			check.True(t, got >= max(1, clients*c.atLeast) && got <= max(2, clients*c.atMost)+ours,
				"%s, conns %d: %d clients have %d connections", c.kind, c.conns, clients, got)
		}
		stop(t, r)
	}
}
