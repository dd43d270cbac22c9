package cli

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/proto"

	"locktop/cli/render"
	"locktop/internal/check"
	"locktop/internal/netfault"
	"locktop/internal/server"
	"locktop/internal/servertest"
	"locktop/internal/testtier"
)

// topology is one or several servers that locktop shows as one, with a lock of each type.
type topology struct {
	flags     []string // to connect to it
	servers   []string // all servers that store locks or copies of locks
	stranger  server.Client
	sentinels []*tap
	chatter   []string // the commands that servers send each other
	moving    bool     // a lock is in a slot that is moving
}

// onEachTopology runs f on one server, a cluster, a master with Sentinels, and the
// nodes of a Redlock. The first tier has only the one server.
func onEachTopology(t *testing.T, f func(*testing.T, topology)) {
	for _, c := range []struct {
		name  string
		build func(*testing.T) topology
	}{
		{"server", oneServer}, {"cluster", aCluster}, {"sentinel", behindSentinels}, {"redlock", redlockNodes},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name != "server" {
				testtier.Long(t, "it starts several servers")
			}
			t.Parallel()
			f(t, c.build(t))
		})
	}
}

func oneServer(t *testing.T) topology {
	addr := servertest.RedisForTest(t).Addr()
	aLockOfEachType(t, addr)
	return topology{flags: []string{"-u", "redis://" + addr}, servers: []string{addr}, stranger: clientTo(t, addr)}
}

func aCluster(t *testing.T) topology {
	rig := servertest.ClusterForTest(t, servertest.ClusterOptions{})
	rdb := clusterClient(t, rig)
	for _, argv := range oneOfEachType() {
		check.NoError(t, rdb.Do(t.Context(), argv...).Err())
	}
	slot := int(rdb.ClusterKeySlot(t.Context(), "lock:a").Val())
	rig.HalfMigrationForTest(t, slot, rig.Another(slot), 1)
	return topology{flags: []string{"--cluster", "-u", "redis://" + rig.Addrs()[0]}, servers: rig.Addrs(), stranger: rdb, moving: true}
}

func behindSentinels(t *testing.T) topology {
	rig := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
	addr := rig.Master().Addr()
	aLockOfEachType(t, addr)
	s := topology{
		flags:    []string{"--master", servertest.SentinelMaster},
		stranger: clientTo(t, addr),
		chatter:  []string{"publish", "replconf", "psync"},
	}
	for _, node := range rig.Nodes() {
		s.servers = append(s.servers, node.Addr())
	}
	for _, sentinel := range rig.Sentinels() {
		tapped := tapOn(t, sentinel)
		s.sentinels = append(s.sentinels, tapped)
		s.flags = append(s.flags, "--sentinel", tapped.addr)
	}
	return s
}

func redlockNodes(t *testing.T) topology {
	rig := servertest.IndependentForTest(t, 5)
	s := topology{flags: redlockFlags(rig), servers: nodesOf(rig)}
	for _, addr := range s.servers {
		aLockOfEachType(t, addr)
	}
	s.stranger = clientTo(t, s.servers[0])
	return s
}

// sentinelFlags returns the flags that connect to the master of Sentinels.
func sentinelFlags(g *servertest.SentinelGroup) []string {
	return []string{"--master", servertest.SentinelMaster, "--sentinel", strings.Join(g.Sentinels(), ",")}
}

// redlockFlags returns the flags that connect to the nodes of a Redlock.
func redlockFlags(rig *server.Independent) []string {
	return []string{"--redlock", "redis://" + strings.Join(nodesOf(rig), ",redis://")}
}

// nodesOf returns the addresses of the nodes of a Redlock.
func nodesOf(rig *server.Independent) (addrs []string) {
	for _, node := range rig.Nodes() {
		addrs = append(addrs, node.Addr())
	}
	return addrs
}

// sendAll sends one command to every server, as the default user.
func (s topology) sendAll(t *testing.T, argv ...any) {
	t.Helper()
	for _, addr := range s.servers {
		send(t, addr, argv...)
	}
}

// forget resets the command counts of the servers and the taps.
func (s topology) forget(t *testing.T) {
	t.Helper()
	s.sendAll(t, "CONFIG", "RESETSTAT")
	for _, sentinel := range s.sentinels {
		sentinel.mu.Lock()
		sentinel.names = nil
		sentinel.mu.Unlock()
	}
}

// sent returns the commands that the servers received since the last call of
// forget, without those of other servers. Refused commands are included.
func (s topology) sent(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, addr := range s.servers {
		info := check.Must(sent(t, addr, "INFO", "commandstats").Text())(t)
		for line := range strings.Lines(info) {
			name, _, found := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
			if found && !slices.Contains(s.chatter, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// tap is a proxy in front of a Sentinel, which keeps no statistics of commands. It records the commands sent to the
// Sentinel. Other Sentinels connect directly.
type tap struct {
	addr string

	mu    sync.Mutex
	names []string
}

// tapOn starts a tap that is closed at the end of the test.
func tapOn(t *testing.T, sentinel string) *tap {
	t.Helper()
	p := &tap{}
	network := netfault.New(new(net.Dialer).DialContext)
	network.Relay = p.carry
	proxy := check.Must(network.Listen("tcp", sentinel))(t)
	t.Cleanup(func() { check.NoError(t, proxy.Close()) })
	p.addr = proxy.Addr()
	return p
}

// carry forwards one connection until the client closes it.
func (p *tap) carry(near, far net.Conn) {
	go func() { _, _ = io.Copy(near, far) }()
	requests := bufio.NewReader(io.TeeReader(near, far))
	for {
		text, err := proto.Read(requests)
		if err != nil {
			return
		}
		argv, err := proto.ReadStrings(text)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.names = append(p.names, commandName(argv))
		p.mu.Unlock()
	}
}

// commandName returns the name of a command as in an ACL.
func commandName(argv []string) string {
	name := strings.ToLower(argv[0])
	if len(argv) > 1 && (name == "sentinel" || name == "client") {
		name += "|" + strings.ToLower(argv[1])
	}
	return name
}

// noted returns the commands so far.
func (p *tap) noted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.names)
}

// listedOn runs locktop list --json, which must succeed, and returns its document and stderr.
func listedOn(t *testing.T, args ...string) (render.Document, string) {
	t.Helper()
	return listedWith(t, exitFine, args...)
}

// listedWith runs locktop list --json, which must end with an exit code, and returns its document and stderr.
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

func TestTheMasterThatSentinelsKnowIsRead(t *testing.T) {
	long(t, "it starts Sentinels")
	rig := servertest.SentinelGroupForTest(t, servertest.SentinelOptions{Replicas: 1})
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
	rig := servertest.IndependentForTest(t, 5)
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
	check.True(t, !doc.Complete && most.State == "held" && most.Votes[0].Unreachable && few.State == "partial",
		"with a node down: %+v and %+v", most, few)
	check.True(t, strings.Count(said, "\n") == 1 && strings.Contains(said, nodesOf(rig)[0]+" is missing"), "it says %q", said)
}

// One server under two names would have two votes.
func TestOneServerIsNotTwoOfARedlock(t *testing.T) {
	t.Parallel()
	one, other := servertest.RedisForTest(t).Addr(), servertest.RedisForTest(t).Addr()
	alias := strings.Replace(one, "127.0.0.1", "localhost", 1)
	for _, twin := range []string{alias, one} {
		flags := []string{"--redlock", "redis://" + one, "--redlock", "redis://" + twin, "--redlock", "redis://" + other}
		for _, command := range [][]string{{"list"}, {"release", "lock:a", "--write", "--yes"}, {"load", "redlock-minority", "--duration", "1s"}} {
			got := locktop(t, append(command, flags...)...)
			got.says(t, exitUsage, one, twin, "are one server")
		}
	}
}

func TestAllDatabasesAreRead(t *testing.T) {
	t.Parallel()
	addr := servertest.RedisForTest(t).Addr()
	for db := 0; db < 16; db += 5 {
		check.NoError(t, clientWith(t, addr, server.ClientOptions{DB: db}).Set(t.Context(), "lock:a", token, time.Hour).Err())
	}
	doc, _ := listedOn(t, "-n", "all", "-u", "redis://"+addr)
	dbs := ""
	for _, l := range doc.Locks {
		dbs += fmt.Sprint(l.DB, " ")
	}
	check.True(t, dbs == "0 5 10 15 " && len(doc.Nodes) == 1 && *doc.Nodes[0].LockCount == 4 && *doc.Nodes[0].KeyCount == 4,
		"locks in the databases %s, on %+v", dbs, doc.Nodes)
}
