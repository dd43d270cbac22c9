package cli

import (
	"strings"
	"testing"
)

// A new user reads only the screen, and presses thirteen keys.
func TestTheDemoShowsHowLocksBehave(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("plays scenes in a terminal: run it without -short")
	}
	term := openTerminal(t, 120, 40, "demo")
	term.want("Choose a scene", "press a letter", "Esc close").press("Escape")
	term.wait("the menu is closed", func(screen string) bool { return !strings.Contains(screen, "Choose a scene") })
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
	term.press("m").want("redlock-minority").press("n").press("4").want(" of 5 servers answer", "  5  127.0.0.1:").press("j").press("j")
	term.want("3 of 5 servers answer, a majority is 3: locks are taken and released as before").press("d")
	term.want("2 of 5 servers answer, a majority is 3: no lock can be acquired")
	term.press("3").want("2 of 5 nodes up (majority: 3): no lock can be acquired", "0 overlaps: the lock held")
	if term.pressed > 13 {
		t.Errorf("%d keys were pressed, want 13 at most", term.pressed)
	}
}
