package inspect

import (
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
