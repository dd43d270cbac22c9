package cli

import (
	"strings"
	"testing"

	"locktop/internal/check"
	"locktop/internal/testtier"
)

// A new user reads only the screen, and presses thirteen keys at most.
func TestTheDemoShowsHowLocksBehave(t *testing.T) {
	testtier.Long(t, "it plays scenes in a terminal")
	t.Parallel()
	term := openTerminal(t, 120, 40, "demo")
	term.want("m shows ", "job:nightly", "never", "OWNER", "TTL")

	term.press("3").want("f fault").press("f").want("a holder is gone without releasing").press("c")
	term.want("dies without releasing load:", "before the lease", "1 dead")
	term.wait("the lease runs out", func(screen string) bool {
		words := strings.Join(strings.Fields(screen), " ")
		return strings.Contains(words, "the crash") && strings.Contains(words, "acquires it")
	})

	term.press("m").want("Choose a scene", "press a letter", "Esc close", "freeze-fenced").press("h")
	term.want("freezes while holding", "1 frozen")
	term.want("still believes it has", "acquires it as well")
	term.want("refused, its", "older than the newest", "0 overlaps of leases, but two clients worked at the same time")

	for tries := 5; !playsMinority(term); tries-- {
		if tries == 1 {
			t.Fatalf("the screen never showed that two of five servers answer:\n%s", term.screen())
		}
	}
	check.True(t, term.pressed <= 13, "%d keys were pressed, want 13 at most", term.pressed)
}

// playsMinority plays the scene redlock-minority, and takes a third server down while two are down. It reports
// whether the screen showed it: the two servers come back after some seconds, so a slow machine may miss the moment.
// Then the keys do not count.
func playsMinority(term *terminal) bool {
	term.t.Helper()
	before := term.pressed
	term.press("m").want("redlock-minority").press("t").press("4").want(" of 5 servers answer", "  5  127.0.0.1:").press("j").press("j")
	if term.sees("3 of 5 servers answer, a majority is 3: locks are taken and released as before") {
		term.press("d")
		if term.sees("2 of 5 servers answer, a majority is 3: no lock can be acquired") {
			term.press("3")
			if term.sees("2 of 5 nodes up (majority: 3): no lock can be acquired", "0 overlaps: mutual exclusion held") {
				return true
			}
		}
	}
	term.pressed = before
	term.press("3").want("○ stopped") // the end of the scene
	term.pressed = before
	return false
}
