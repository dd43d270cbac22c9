package cli

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/server"
)

// connectionState lists the commands that change the state of a connection and
// that locktop may send to any server. Each was checked against Redis 8.0.2 and
// Valkey 8.1.1, where CLIENT NO-TOUCH crashes the server:
//
//   - CLIENT TRACKING only with BCAST and prefixes that do not overlap. The server
//     then records no keys for the connection, and looks up none for it.
//   - CLIENT ID, LIST, SETNAME and SETINFO access no key.
//   - READONLY changes which node serves a key, not how the key is looked up.
//
// locktop never sends CLIENT NO-TOUCH, NO-EVICT, CACHING, REPLY and MONITOR.
var connectionState = []string{"client|id", "client|list", "client|setinfo", "client|setname", "client|tracking", "readonly"}

func TestConnectionsSetNoStateButTheListed(t *testing.T) {
	t.Parallel()
	addr := server.ForTest(t).Addr()
	aLockOfEachType(t, addr)
	tapped := tapOn(t, addr)
	url := "redis://" + tapped.addr

	for _, args := range [][]string{
		{"list", "--lock", "some:*"}, {"inspect", "lock:a"}, {"doctor", "--for", "100ms"},
		{"watch", "--for", "500ms"}, {"record", filepath.Join(t.TempDir(), "r.lockrec"), "--for", "100ms"},
		{"release", "lock:a", "--write", "--yes"},
	} {
		got := locktop(t, append(args, "-u", url)...)
		check.True(t, got.code == exitFine || got.code == exitFindings, "%v ends with %d: %s", args, got.code, got.errors)
	}
	got := brieflyLoaded(t, "", "--clients", "4", "--kind", "fair", "--demo=false", "-u", url)
	check.True(t, got.code == exitFine, "load ends with %d: %s", got.code, got.errors)
	term := openTerminal(t, 100, 30, "-u", url)
	eventually(t, func() bool {
		return strings.Contains(term.screen(), "orders") && slices.Contains(tapped.noted(), "client|tracking")
	})
	term.quit()

	sent := tapped.noted()
	for _, name := range []string{"client|setname", "client|tracking", "scan"} {
		check.True(t, slices.Contains(sent, name), "%s was never sent: the test proves little", name)
	}
	for _, name := range sent {
		state := strings.HasPrefix(name, "client|") || slices.Contains([]string{"monitor", "readonly", "multi", "watch"}, name)
		check.True(t, !state || slices.Contains(connectionState, name), "%s was sent", name)
	}
}
