package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"locktop/server"
)

// A new user reads only the screen, and presses thirteen keys.
func TestANewcomerSeesWhatLocksDo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("plays scenes in a terminal: run it without -short")
	}
	term := openTerminal(t, 120, 40, "demo")
	term.want("Choose a scene", "press a letter", "Esc close").press("Escape")
	term.want("job:nightly", "never", "OWNER", "TTL")

	term.press("3").want("f fault").press("f").want("a holder is gone without releasing").press("c")
	term.want("dies without releasing load:", "before the lease", "1 dead")
	term.wait("the lease runs out", func(screen string) bool {
		words := strings.Join(strings.Fields(screen), " ")
		return strings.Contains(words, "the crash") && strings.Contains(words, "acquires it")
	})

	term.press("m").want("freeze-fenced").press("e")
	term.want("freezes while holding", "1 frozen")
	term.want("still believes it has", "acquires it as well")
	term.want("refused, its", "older than the newest", "0 overlaps of leases, but two clients worked at the same time")

	// The two servers are down for four seconds: one key is left to press when they are.
	term.press("m").want("redlock-minority").press("l").press("4").want(" of 5 servers answer", "  5  127.0.0.1:").press("j").press("j")
	term.want("3 of 5 servers answer, a majority is 3: locks are taken and released as before").press("d")
	term.want("2 of 5 servers answer, a majority is 3: no lock can be acquired")
	term.press("3").want("2 of 5 nodes up (majority: 3): no lock can be acquired", "0 overlaps: the lock held")
	if term.pressed > 13 {
		t.Errorf("%d keys were pressed, want 13 at most", term.pressed)
	}
}

func TestTheRealDemoHasRealServersOnly(t *testing.T) {
	server.ForTest(t) // skips where there is no redis-server
	st, err := newDemoEnv(t.Context(), demoOptions{clients: 3, real: true})
	if err != nil {
		t.Fatal(err)
	}
	all := append([]*redis.Client{st.rdb}, st.quorum.Nodes...)
	if len(all) != 6 {
		t.Errorf("there are %d servers, want one and five", len(all))
	}
	for _, rdb := range all {
		info, err := rdb.Info(t.Context(), "server").Result()
		if err != nil || !strings.Contains(info, "process_id") {
			t.Errorf("%s is no redis-server: %v", rdb.Options().Addr, err)
		}
	}
	st.close()
	for _, rdb := range all {
		again := redis.NewClient(&redis.Options{Addr: rdb.Options().Addr, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
		if err := again.Ping(context.Background()).Err(); err == nil {
			t.Errorf("%s goes on", rdb.Options().Addr)
		}
		_ = again.Close()
	}
}
