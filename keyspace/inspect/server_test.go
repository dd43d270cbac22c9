package inspect

import (
	"errors"
	"maps"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// A Valkey server also reports the Redis version that it is compatible with.
func TestAServerIsNamedByItsProduct(t *testing.T) {
	for _, c := range []struct {
		info, product, version, mode, software string
	}{
		{"# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n", "redis", "6.0.16", "standalone", "Redis 6.0.16"},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nvalkey_release_stage:ga\r\nserver_mode:cluster\r\n", "valkey", "8.1.1", "cluster", "Valkey 8.1.1"},
		{"redis_version:7.2.4\r\nserver_name:redis\r\nvalkey_version:8.1.1\r\nredis_mode:standalone\r\n", "redis", "7.2.4", "standalone", "Redis 7.2.4"},
		{"# Replication\r\nrole:master\r\n", "", "", "", ""},
	} {
		var s keyspace.Server
		for range 2 { // twice, as in every scan
			describeServer(&s, c.info)
			describeServer(&s, "# Replication\r\nrole:master\r\n")
		}
		check.True(t, s.Product == c.product && s.Version == c.version && s.Mode == c.mode && s.Software() == c.software,
			"%q is %q, %q, %q: %q", c.info, s.Product, s.Version, s.Mode, s.Software())
	}
	check.Equal(t, (keyspace.Server{Version: "7.0.15"}).Software(), "Redis 7.0.15", "a server of an old recording is")
}

// serverError is an error as a server sends it.
type serverError string

func (e serverError) Error() string { return string(e) }
func (serverError) RedisError()     {}

// The texts are those of Redis 6.0.16, 7.0.15, 8.0.2 and Valkey 8.1.1.
func TestADeniedCommandIsDistinguishedFromADeniedKey(t *testing.T) {
	for _, c := range []struct {
		text              string
		forbidden, hidden bool
	}{
		{"NOPERM this user has no permissions to access one of the keys used as arguments", false, true}, // 6.0, 7.0
		{"NOPERM No permissions to access a key", false, true},                                           // 8.0, Valkey
		{"NOPERM this user has no permissions to run the 'type' command or its subcommand", true, false}, // 6.0
		{"NOPERM this user has no permissions to run the 'client|list' command", true, false},            // 7.0
		{"NOPERM User ann has no permissions to run the 'type' command", true, false},                    // 8.0, Valkey
		{"ERR unknown command `TIME`, with args beginning with: ", true, false},                          // 6.0
		{"ERR unknown command 'TIME', with args beginning with: ", true, false},                          // 7.0 and later
		{"NOPERM No permissions to access a channel", true, false},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", false, false},
		{"LOADING Redis is loading the dataset in memory", false, false},
		{"ERR No permissions to access a key", false, false},
	} {
		err := serverError(c.text)
		check.True(t, isCommandDenied(err) == c.forbidden && isKeyDenied(err) == c.hidden && isDenied(err) == (c.forbidden || c.hidden),
			"%q: forbidden %v, hidden %v, refused %v", c.text, isCommandDenied(err), isKeyDenied(err), isDenied(err))
	}
	check.True(t, !isCommandDenied(nil) && !isKeyDenied(nil), "no error is a refusal")
}

// A new replica has its own data until the first transfer from its master has ended, and its
// loss is read a little later.
func TestAMasterIsDemotedUntilItHasTheDataOfItsMaster(t *testing.T) {
	var w Watcher
	w.scanner = NewScanner(nil, ScanOptions{})
	now := time.Now()
	for i, c := range []struct {
		later time.Duration
		is    keyspace.Server
		want  bool
	}{
		{0, keyspace.Server{RunID: "a", Role: "master"}, false},
		{time.Second, keyspace.Server{RunID: "a", Role: "slave", MasterDown: true}, true},
		{9 * time.Second, keyspace.Server{RunID: "a", Role: "slave", MasterDown: true}, true},
		{9 * time.Second, keyspace.Server{RunID: "a", Role: "slave"}, true},
		{2 * time.Second, keyspace.Server{RunID: "a", Role: "slave"}, false},
		{time.Second, keyspace.Server{RunID: "a", Role: "slave", MasterDown: true}, false}, // a replica whose master is down
		{time.Second, keyspace.Server{RunID: "a", Role: "master"}, false},
		{time.Second, keyspace.Server{RunID: "b", Role: "slave", MasterDown: true}, false},
	} {
		now = now.Add(c.later)
		w.onServerInfo(c.is, now)
		check.Equal(t, now.Before(w.server.demotedUntil), c.want, "report %d: demoted", i)
	}
}

// A different run ID at the same address means a restart if the uptime allows a
// start since the last reply. Otherwise it is another server.
func TestARestartIsDistinguishedFromAFailover(t *testing.T) {
	now := time.Now()
	was := keyspace.Server{RunID: "a", Port: "6379", Role: "master", Uptime: time.Hour}
	for name, tt := range map[string]struct {
		is     keyspace.Server
		passed time.Duration
		want   keyspace.NoticeKind // "": nothing to report
	}{
		"the same":                         {keyspace.Server{RunID: "a", Port: "6379", Role: "master", Uptime: 2 * time.Hour}, time.Hour, ""},
		"started again at once":            {keyspace.Server{RunID: "b", Port: "6379", Role: "master", Uptime: time.Second}, 100 * time.Millisecond, keyspace.ServerRestarted},
		"started again hours ago":          {keyspace.Server{RunID: "b", Port: "6379", Role: "master", Uptime: 3 * time.Hour}, 4 * time.Hour, keyspace.ServerRestarted},
		"a younger one that ran elsewhere": {keyspace.Server{RunID: "b", Port: "6379", Role: "master", Uptime: time.Minute}, time.Second, keyspace.ServerFailover},
		"another port":                     {keyspace.Server{RunID: "b", Port: "6380", Role: "master", Uptime: time.Second}, time.Minute, keyspace.ServerFailover},
		"a replica now":                    {keyspace.Server{RunID: "a", Port: "6379", Role: "slave", Uptime: time.Hour}, time.Second, keyspace.ServerFailover},
	} {
		f := &Watcher{server: serverState{info: was, readAt: now.Add(-tt.passed)}}
		f.onServerInfo(tt.is, now)
		var got keyspace.NoticeKind
		if f.server.change != nil {
			got = f.server.change.Kind
		}
		check.True(t, got == tt.want, "%s: read as %q, want %q", name, got, tt.want)
	}
}

// After a server was lost, the connections seen on it do not count for the
// server that answers next.
func TestALostServerClearsTheConnectionsThatWereSeen(t *testing.T) {
	now := time.UnixMilli(1_763_683_200_000)
	l := keyspace.Lock{Key: "a", Holders: []keyspace.Holder{{ID: "1", Label: "worker-3", Depth: 1}}}
	present, absent := connections{"worker-3": "10.2.3.4:5"}, connections{"other": "10.2.3.4:6"}
	for _, lost := range []bool{false, true} {
		f := &Watcher{scanner: NewScanner(nil, ScanOptions{})}
		seen := make(map[holderKey]bool)
		f.clients.annotate(l, present, seen, now)
		f.clients.seenConnected = seen
		if lost {
			f.onError(t.Context(), errors.New("the network is down"))
		}
		marked, _ := f.clients.annotate(l, absent, make(map[holderKey]bool), now)
		missed := !marked.Holders[0].DisconnectedAt.IsZero()
		check.True(t, missed != lost, "the server was lost: %v, and the holder is missed: %v", lost, missed)
	}
}

func TestSeveralConnectionsWithOneNameHaveTheirHost(t *testing.T) {
	got := connectionsOf(keyspace.ParseClients("id=1 addr=10.0.0.1:1 name=a\nid=2 addr=10.0.0.1:2 name=a\nid=3 addr=10.0.0.1:3 name=a\n" +
		"id=4 addr=10.0.0.1:4 name=b\nid=5 addr=10.0.0.2:5 name=b\nid=6 addr=10.0.0.2:6 name=b\nid=7 addr=10.0.0.3:7 name=c\nid=8 addr=10.0.0.3:8 name=\n"))
	want := (connections{"a": "10.0.0.1", "b": "", "c": "10.0.0.3:7"})
	check.True(t, maps.Equal(got, want), "it is %v, want %v", got, want)
}
