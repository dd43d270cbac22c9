package keyspace

import (
	"testing"
	"time"
)

// A different run ID at the same address means a restart if the uptime allows a
// start since the last reply. Otherwise it is another server.
func TestARestartIsToldFromAFailover(t *testing.T) {
	now := time.Now()
	was := Server{RunID: "a", Port: "6379", Role: "master", Uptime: time.Hour}
	for name, tt := range map[string]struct {
		is     Server
		passed time.Duration
		want   NoticeKind // "": nothing to report
	}{
		"the same":                         {Server{RunID: "a", Port: "6379", Role: "master", Uptime: 2 * time.Hour}, time.Hour, ""},
		"started again at once":            {Server{RunID: "b", Port: "6379", Role: "master", Uptime: time.Second}, 100 * time.Millisecond, ServerRestarted},
		"started again hours ago":          {Server{RunID: "b", Port: "6379", Role: "master", Uptime: 3 * time.Hour}, 4 * time.Hour, ServerRestarted},
		"a younger one that ran elsewhere": {Server{RunID: "b", Port: "6379", Role: "master", Uptime: time.Minute}, time.Second, ServerFailover},
		"another port":                     {Server{RunID: "b", Port: "6380", Role: "master", Uptime: time.Second}, time.Minute, ServerFailover},
		"a replica now":                    {Server{RunID: "a", Port: "6379", Role: "slave", Uptime: time.Hour}, time.Second, ServerFailover},
	} {
		f := &Watcher{server: was, serverAt: now.Add(-tt.passed)}
		f.onServerInfo(tt.is, now)
		var got NoticeKind
		if f.serverNotice != nil {
			got = f.serverNotice.Kind
		}
		if got != tt.want {
			t.Errorf("%s: told as %q, want %q", name, got, tt.want)
		}
	}
}
