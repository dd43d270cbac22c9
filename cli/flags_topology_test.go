package cli

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/server"
	"locktop/internal/testtier"
)

// listedOn runs locktop list --json, which must succeed, and returns its
// document and stderr.
func listedOn(t *testing.T, args ...string) (render.Document, string) {
	t.Helper()
	return listedWith(t, exitFine, args...)
}

// listedWith runs locktop list --json, which must end with an exit code, and
// returns its document and stderr.
func listedWith(t *testing.T, code int, args ...string) (render.Document, string) {
	t.Helper()
	got := locktop(t, append([]string{"list", "--json", "--budget", "full"}, args...)...)
	check.Require(t, got.code == code, "%q: exit code %d, %s", args, got.code, got.errors)
	doc := decoded[render.Document](t, got.out)
	return doc, got.errors
}

// lockNamed returns the lock of that key.
func lockNamed(t *testing.T, d render.Document, key string) render.Lock {
	t.Helper()
	for _, l := range d.Locks {
		if l.Key == key {
			return l
		}
	}
	t.Fatalf("there is no lock %s among %d", key, len(d.Locks))
	return render.Lock{}
}

// nodesUp returns the addresses of the nodes that are up.
func nodesUp(d render.Document) string {
	var all []string
	for _, n := range d.Nodes {
		if n.Up {
			all = append(all, n.Addr)
		}
	}
	return strings.Join(all, " ")
}

func TestAServerThatIsNoClusterIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	locktop(t, "list", "--cluster", "-u", "redis://"+server.ForTest(t).Addr()).fails(t, exitUsage, "no part of a cluster")
}

func TestReplicasOfAClusterAreReadIfTheyArePreferred(t *testing.T) {
	testtier.Long(t, "it starts a cluster with replicas")
	t.Parallel()
	rig := server.ClusterForTest(t, server.ClusterOptions{Replicas: 1})
	rdb := clusterClient(t, rig)
	for i := range 12 {
		check.NoError(t, rdb.Set(t.Context(), fmt.Sprintf("lock:%d", i), token, time.Hour).Err())
	}
	eventually(t, func() bool {
		doc, _ := listedOn(t, "--cluster", "--prefer-replica", "-u", "redis://"+rig.Addrs()[0])
		roles := ""
		for _, n := range doc.Nodes {
			roles += n.Role + " "
		}
		return len(doc.Locks) == 12 && roles == "slave slave slave "
	})
}

func TestTheMasterThatSentinelsKnowIsRead(t *testing.T) {
	testtier.Long(t, "it starts Sentinels")
	t.Parallel()
	rig := server.SentinelGroupForTest(t, server.SentinelOptions{Replicas: 1})
	send(t, rig.Master().Addr(), "SET", "lock:a", token, "PX", "600000")
	flags := sentinelFlags(rig)
	doc, _ := listedOn(t, flags...)
	check.True(t, nodesUp(doc) == rig.Master().Addr() && doc.Nodes[0].Role == "master" && doc.Server.Mode == "sentinel" && len(doc.Locks) == 1,
		"it reads %+v, a %s", doc.Nodes, doc.Server.Mode)
	eventually(t, func() bool {
		doc, _ := listedOn(t, append(flags, "--prefer-replica")...)
		return nodesUp(doc) == rig.Replicas()[0].Addr() && doc.Nodes[0].Role == "slave" && len(doc.Locks) == 1
	})

	old := rig.Master().Addr()
	check.NoError(t, rig.Master().Kill())
	eventually(t, func() bool {
		got := locktop(t, append([]string{"list", "--json"}, flags...)...)
		return got.code == exitFine && !strings.Contains(got.out, old) && strings.Contains(got.out, `"key":"lock:a"`)
	})

	locktop(t, "list", "--sentinel", rig.Sentinels()[0], "--master", "nobody").fails(t, exitUsage, `knows no master "nobody"`)
}

func TestTheServersOfARedlockVote(t *testing.T) {
	t.Parallel()
	rig := server.IndependentForTest(t, 5)
	for i, addr := range nodesOf(rig) {
		if i < 4 {
			send(t, addr, "SET", "lock:most", token, "PX", strconv.Itoa(600_000+i))
		}
		if i < 2 {
			send(t, addr, "SET", "lock:few", token, "PX", "600000")
		}
	}
	doc, said := listedOn(t, redlockFlags(rig)...)
	most, few := lockNamed(t, doc, "lock:most"), lockNamed(t, doc, "lock:few")
	check.True(t, len(doc.Locks) == 2 && doc.Complete && doc.Server.Mode == "redlock" && len(doc.Nodes) == 5 && said == "",
		"it is %+v; %s", doc, said)
	if most.Kind != "redlock" || most.State != "held" || len(most.Votes) != 5 || most.Votes[3].Token != token || most.Votes[4].Token != "" {
		t.Errorf("it is %+v", most)
	}
	check.True(t, few.Kind == "redlock" && few.State == "partial", "it is %+v", few)

	check.NoError(t, rig.Nodes()[0].Kill())
	doc, said = listedWith(t, exitFailure, redlockFlags(rig)...)
	most, few = lockNamed(t, doc, "lock:most"), lockNamed(t, doc, "lock:few")
	check.True(t, !doc.Complete && most.State == "held" && most.Votes[0].Silent && few.State == "partial",
		"with a node down: %+v and %+v", most, few)
	check.True(t, strings.Count(said, "\n") == 1 && strings.Contains(said, nodesOf(rig)[0]+" is missing"), "it says %q", said)
}

func TestAllDatabasesAreRead(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	for db := 0; db < 16; db += 5 {
		check.NoError(t, clientWith(t, redis.Options{Addr: addr, DB: db}).Set(t.Context(), "lock:a", token, time.Hour).Err())
	}
	doc, _ := listedOn(t, "-n", "all", "-u", "redis://"+addr)
	dbs := ""
	for _, l := range doc.Locks {
		dbs += fmt.Sprint(l.DB, " ")
	}
	check.True(t, dbs == "0 5 10 15 " && len(doc.Nodes) == 1 && doc.Nodes[0].Locks == 4 && doc.Nodes[0].Keys == 4,
		"locks in the databases %s, on %+v", dbs, doc.Nodes)
}
