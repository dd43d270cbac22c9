package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// The master fails with a lock that no replica has received, and Sentinels replace it.
func TestWatchGoesOnOnTheServerThatTakesTheMastersPlace(t *testing.T) {
	testtier.Long(t, "Sentinels replace a master")
	t.Parallel()
	rig := server.SentinelGroupForTest(t, server.SentinelOptions{Replicas: 1})
	master, replica := rig.Master().Addr(), rig.Replicas()[0]
	send(t, master, "SET", "lock:a", token, "PX", "600000")
	send(t, master, "WAIT", "1", "5000")
	w := startWatch(t, append([]string{"--timeout", "500ms"}, sentinelFlags(rig)...)...)
	w.out.sees(t, `appeared lock:a`)
	send(t, master, "SET", "lock:kept", token, "PX", "600000")
	send(t, master, "WAIT", "1", "5000")
	w.out.sees(t, `acquired lock:kept`)
	check.NoError(t, replica.Freeze())
	send(t, master, "CLIENT", "KILL", "TYPE", "replica") // what it sends from now on is lost
	send(t, master, "SET", "lock:b", token, "PX", "600000")
	w.out.sees(t, `acquired lock:b`)
	check.NoError(t, errors.Join(rig.Master().Kill(), replica.Continue()))
	w.errors.sees(t, `^locktop: .*has taken the place of `+master+`$`)
	w.out.sees(t, `lost lock:b`)
	send(t, replica.Addr(), "DEL", "lock:kept")
	w.out.sees(t, `(released|deleted) lock:kept by .*, held for`)
	said := w.out.String()
	check.True(t, strings.Count(said, " appeared lock:") == 1 && strings.Count(said, " lost lock:") == 1 && !strings.Contains(said, "gone"),
		"a lock that is kept has another event than its release:\n%s", said)
}

// A replica takes the place of a master, once on request and once after a crash. The
// locks that it has are the same locks.
func TestWatchKnowsTheLocksOfAClusterAfterAFailover(t *testing.T) {
	testtier.Long(t, "a cluster replaces a master")
	t.Parallel()
	c := aClusterFor(t, server.ClusterOptions{Replicas: 1}, 1, 10)
	calm, dying := c.Nodes()[3], c.Nodes()[4]           // the replicas of the first two masters
	lost := "lock:{" + tagOf(t, c.rdb, 8000) + "}:lost" // of the second master
	w := startWatch(t, c.flags...)
	for i := range 10 {
		w.out.sees(t, fmt.Sprintf("appeared lock:%d ", i))
	}
	w.out.sees(t, "appeared "+c.moving(0))
	send(t, calm.Addr(), "CLUSTER", "FAILOVER")
	w.errors.sees(t, calm.Addr()+" has taken the place of "+c.Nodes()[0].Addr())

	check.NoError(t, dying.Freeze())
	master := c.Nodes()[1]
	send(t, master.Addr(), "CLIENT", "KILL", "TYPE", "replica") // what it sends from now on is lost
	send(t, master.Addr(), "SET", lost, token, "PX", "600000")
	w.out.sees(t, "acquired "+lost)
	check.NoError(t, errors.Join(master.Kill(), dying.Continue()))
	w.out.sees(t, "lost "+lost)
	send(t, calm.Addr(), "DEL", c.moving(0))
	w.out.sees(t, "released "+c.moving(0))
	said := w.out.String()
	check.True(t, strings.Count(said, " appeared lock:") == 11 && strings.Count(said, " lost lock:") == 1 && !strings.Contains(said, "gone"),
		"a lock that is kept has another event than its release:\n%s", said)
}
