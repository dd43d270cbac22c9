package inspect

import (
	"errors"
	"testing"
	"time"

	"locktop/keyspace"
)

// A different run ID at the same address means a restart if the uptime allows a
// start since the last reply. Otherwise it is another server.
func TestARestartIsToldFromAFailover(t *testing.T) {
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
		if got != tt.want {
			t.Errorf("%s: told as %q, want %q", name, got, tt.want)
		}
	}
}

// After a server was lost, the connections seen on it do not count for the
// server that answers next.
func TestNobodyIsMissedWhoWasSeenBeforeTheServerWasLost(t *testing.T) {
	now := time.UnixMilli(1_763_683_200_000)
	l := keyspace.Lock{Key: "a", Holders: []keyspace.Holder{{ID: "1", Label: "worker-3", Count: 1}}}
	present, absent := map[string]bool{"worker-3": true}, map[string]bool{"other": true}
	for _, lost := range []bool{false, true} {
		f := &Watcher{scanner: &Scanner{}}
		came := make(map[holderKey]bool)
		f.clients.annotate(l, present, came, now)
		f.clients.seenConnected = came
		if lost {
			f.onError(errors.New("the network is down"))
		}
		marked, _ := f.clients.annotate(l, absent, make(map[holderKey]bool), now)
		if missed := !marked.Holders[0].DisconnectedAt.IsZero(); missed == lost {
			t.Errorf("the server was lost: %v, and the holder is missed: %v", lost, missed)
		}
	}
}
