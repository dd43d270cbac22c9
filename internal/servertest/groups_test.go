package servertest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !cond(); time.Sleep(10 * time.Millisecond) {
		check.Require(t, !time.Now().After(limit), "still waiting for %s", what)
	}
}

func TestReplicaHasWhatItsMasterHasAndCanTakeItsPlace(t *testing.T) {
	t.Parallel()
	r := servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{Replicas: 2})
	check.Require(t, len(r.Nodes()) == 3 && r.Nodes()[0] == r.Master() && len(r.Replicas()) == 2, "it has %d nodes", len(r.Nodes()))
	check.NoError(t, client(t, r.Master().Addr()).Set(t.Context(), "k", "v", 0).Err())
	heir := r.Replicas()[1]
	rdb := client(t, heir.Addr())
	eventually(t, "the key to arrive", func() bool { return rdb.Get(t.Context(), "k").Val() == "v" })
	err := rdb.Set(t.Context(), "k", "w", 0).Err()
	check.True(t, err != nil && strings.HasPrefix(err.Error(), "READONLY"), "a replica took a write: %v", err)

	check.NoError(t, r.Master().Kill())
	check.NoError(t, r.Promote(t.Context(), heir))
	check.ErrorIs(t, rdb.Set(t.Context(), "k", "w", 0).Err(), nil, "the new master")
	check.NoError(t, r.Follow(t.Context(), r.Replicas()[0], heir))
	check.Equal(t, client(t, r.Replicas()[0].Addr()).Get(t.Context(), "k").Val(), "w", "in sync with the new master it has")
}

func TestClusterServesAllSlotsAtOnce(t *testing.T) {
	testtier.Long(t, "it starts a cluster")
	t.Parallel()
	c := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	rdb := client(t, c.Addrs()[0])
	served := map[string]bool{}
	for _, key := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
		slot := check.Must(rdb.ClusterKeySlot(t.Context(), key).Result())(t)
		node := check.Must(c.Owner(t.Context(), int(slot)))(t)
		check.NoError(t, client(t, node.Addr()).Set(t.Context(), key, "v", 0).Err(), "%s", key) // a redirection is an error
		served[node.Addr()] = true
	}
	check.True(t, len(served) == 3, "26 keys went to %d of 3 masters", len(served))
	check.True(t, c.Node(c.Addrs()[1]) == c.Nodes()[1] && c.Node("127.0.0.1:1") == nil, "a node is not found by its address")
}

func TestGroupsEndWithTheTest(t *testing.T) {
	testtier.Long(t, "it starts every group of servers")
	t.Parallel()
	servertest.RedisForTest(t) // skips where there is no redis-server
	var addrs []string
	v := run(func(t servertest.TB) {
		for _, nodes := range [][]*server.Child{
			servertest.ReplicatedForTest(t, servertest.ReplicatedOptions{}).Nodes(),
			servertest.ClusterForTest(t, servertest.ClusterOptions{}).Nodes(),
		} {
			for _, node := range nodes {
				addrs = append(addrs, node.Addr())
			}
		}
		w := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{})
		addrs = append(append(addrs, w.Sentinels()...), w.Master().Addr())
	})
	check.Require(t, v.failed == "" && len(addrs) == 9, "%d servers, %s", len(addrs), v.failed)
	v.end()
	for _, addr := range addrs {
		check.True(t, !answers(addr), "%s answers after the test", addr)
	}
}

func TestGroupThatCannotStartIsAnErrorAndLeavesNothing(t *testing.T) {
	servertest.RedisForTest(t) // skips where there is no redis-server
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := servertest.StartCluster(ended, servertest.ClusterOptions{})
	check.True(t, err != nil, "a cluster started after its context's end")
	if _, err := servertest.StartSentinelGroup(t.Context(), servertest.SentinelOptions{Args: []string{"--no-such-option", "1"}}); err == nil {
		t.Error("servers started with an argument that does not exist")
	}
}
