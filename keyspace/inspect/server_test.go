package inspect

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"locktop/internal/check"
	"locktop/keyspace"
)

// A Valkey server also reports the Redis version that it is compatible with.
func TestAServerIsNamedByItsProduct(t *testing.T) {
	for _, c := range []struct {
		info, product, version, mode, software string
		timesFields                            bool
	}{
		{"# Server\r\nredis_version:6.0.16\r\nredis_mode:standalone\r\n", "redis", "6.0.16", "standalone", "Redis 6.0.16", false},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.1.1\r\nvalkey_release_stage:ga\r\nserver_mode:cluster\r\n", "valkey", "8.1.1", "cluster", "Valkey 8.1.1", false},
		{"redis_version:7.2.4\r\nserver_name:redis\r\nvalkey_version:8.1.1\r\nredis_mode:standalone\r\n", "redis", "7.2.4", "standalone", "Redis 7.2.4", false},
		{"redis_version:7.4.0\r\n", "redis", "7.4.0", "", "Redis 7.4.0", true},
		{"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1\r\n", "valkey", "9.0.1", "", "Valkey 9.0.1", true},
		{"# Replication\r\nrole:master\r\n", "", "", "", "", false},
	} {
		var s keyspace.Server
		for range 2 { // twice, as in every scan
			describeServer(&s, c.info)
			describeServer(&s, "# Replication\r\nrole:master\r\n")
		}
		check.True(t, s.Product == c.product && s.Version == c.version && s.Mode == c.mode && s.Software() == c.software && timesFields(s) == c.timesFields,
			"%q is %q, %q, %q: %q", c.info, s.Product, s.Version, s.Mode, s.Software())
	}
	check.Equal(t, (keyspace.Server{Version: "7.0.15"}).Software(), "Redis 7.0.15", "a server of an old recording is")
}

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
		err := refusal(c.text)
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
	present, absent := connections{"worker-3": {{ID: 5, Addr: "10.2.3.4:5"}}}, connections{"other": {{ID: 6, Addr: "10.2.3.4:6"}}}
	for _, lost := range []bool{false, true} {
		f := &Watcher{scanner: NewScanner(nil, ScanOptions{})}
		seen := make(map[holderKey]int64)
		f.clients.annotate(l, present, seen, now)
		f.clients.seenConnected = seen
		if lost {
			f.onError(t.Context(), errors.New("the network is down"))
		}
		marked, _ := f.clients.annotate(l, absent, make(map[holderKey]int64), now)
		missed := !marked.Holders[0].DisconnectedAt.IsZero()
		check.True(t, missed != lost, "the server was lost: %v, and the holder is missed: %v", lost, missed)
	}
}

// The connection of a holder is the only one that has had its name. That of another process with
// the name is none, also when the first one has closed.
func TestANameOfSeveralConnectionsIsThatOfNone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lists string // of the IDs of the connections, and their hosts
		addr  string
		gone  bool
	}{
		"one":                                    {"5 5", "10.0.0.1:5", false},
		"it closes":                              {"5 -", "10.0.0.1:5", true},
		"two":                                    {"5,6 5,6", "10.0.0.1", false},
		"two, and one closes":                    {"5,6 6", "10.0.0.1", false},
		"another connects, and the first closes": {"5 5,6 6", "10.0.0.1", false},
		"another is there in the next list":      {"5 6", "10.0.0.1", false},
		"two, and both close":                    {"5,6 -", "10.0.0.1", true},
		"on two hosts":                           {"5,17 17", "", false},
	} {
		l := keyspace.Lock{Key: "a", Holders: []keyspace.Holder{{ID: "1", Label: "web-1", Depth: 1}}}
		var tracker clientTracker
		now := time.UnixMilli(1_763_683_200_000)
		for ids := range strings.SplitSeq(c.lists, " ") {
			var list []keyspace.Client
			for id := range strings.SplitSeq(strings.Trim(ids, "-"), ",") {
				if n := number(id); n > 0 {
					list = append(list, keyspace.Client{ID: n, Name: "web-1", Addr: fmt.Sprintf("10.0.0.%d:%d", 1+n/10, n)})
				}
			}
			seen := make(map[holderKey]int64)
			l, _ = tracker.annotate(l, connectionsOf(list), seen, now)
			tracker.seenConnected, tracker.listedAt = seen, now
			now = now.Add(2 * time.Second)
		}
		h := l.Holders[0]
		check.True(t, h.Addr == c.addr && h.DisconnectedAt.IsZero() != c.gone, "%s: %+v", name, h)
		check.Equal(t, strings.HasPrefix(h.Closed(), "its connection 10.0.0.1:5 closed between "), name == "it closes", "%s: it says %q", name, h.Closed())
	}
}
