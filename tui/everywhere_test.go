package tui

import (
	"strings"
	"testing"

	"locktop/internal/check"
)

// uniqueWord is a word that only one page shows.
var uniqueWord = map[pageSet]string{
	onLocks: "OWNER", onTimeline: "free, with waiters", onLoad: "settings", onNodes: "SHARE", onFindings: "what to do", onEvents: "WHO", onLock: "newest first",
}

// everywhereKeyTests returns the tests of the keys that do the same on every
// page, once for each page.
func everywhereKeyTests() []keyTest {
	var all []keyTest
	tell := func(at pageSet, key string, play func(d *driver)) { all = append(all, keyTest{at, key, play}) }
	numbered := []pageSet{onLocks, onTimeline, onLoad, onNodes, onFindings, onEvents}
	for i, at := range append(numbered, onLock) {
		tell(at, "?", func(d *driver) { d.press("?").want("everywhere").press("?").wantNot("everywhere", "show or hide this") })
		tell(at, "f1", func(d *driver) { d.press("f1").want("everywhere") })
		tell(at, "ctrl+l", func(d *driver) { check.True(d.t, d.press("ctrl+l").cleared, "the screen was not drawn again") })
		tell(at, "q", func(d *driver) { d.press("q"); wantQuit(d) })
		tell(at, "Q", func(d *driver) {
			d.press("Q")
			wantQuit(d)
			check.True(d.t, d.app.leave, "the frame does not stay")
		})
		tell(at, "ctrl+c", func(d *driver) {
			d.press(":", "ctrl+c")
			wantQuit(d)
			check.True(d.t, d.app.interrupted, "Ctrl-C is no interrupt")
		})
		tell(at, "ctrl+z", func(d *driver) { check.True(d.t, d.press("ctrl+z").suspended, "the program was not suspended") })
		for n, to := range numbered {
			tell(at, string(rune('1'+n)), func(d *driver) { d.press(string(rune('1' + n))).want(uniqueWord[to]) })
		}
		home := min(i, len(numbered)-1) // Tab continues from the page where the lock was opened
		if at == onLock {
			home = 0
		}
		next, previous := numbered[(home+1)%len(numbered)], numbered[(home+len(numbered)-1)%len(numbered)]
		tell(at, "tab", func(d *driver) { d.press("tab").want(uniqueWord[next]) })
		tell(at, "shift+tab", func(d *driver) { d.press("shift+tab").want(uniqueWord[previous]) })
		tell(at, " ", func(d *driver) { d.press(" ").want("PAUSED 00:00").press(" ").want("● live") })
		for _, key := range []string{"<", ","} {
			tell(at, key, func(d *driver) {
				d.wait(2 * rewindStep).press(key).want("showing 00:00:01").press("F").want("● live")
			})
		}
		for _, key := range []string{">", "."} {
			tell(at, key, func(d *driver) {
				d.wait(3*rewindStep).press("<", "<").want("showing 00:00:01").press(key).want("showing 00:00:02").press(key).want("● live")
				d.press(key).want("this is now")
			})
		}
		tell(at, "F", func(d *driver) { d.press(" ").want("PAUSED").press("F").want("● live") })
		tell(at, ":", func(d *driver) { d.press(":").enter("pa").press("tab").enter("eve").press("tab", "enter").want("WHO") })
		tell(at, "m", func(d *driver) { d.press("m").want("no scenes here") })
		tell(at, "p", func(d *driver) {
			d.press("p").want("keys and owners are hashed").press("p").want("keys and owners are shown")
		})
		tell(at, "@", func(d *driver) {
			d.press("@").want("2,706 commands", "client setname").press("esc").wantNot("commands sent")
		})
		tell(at, "ctrl+s", func(d *driver) {
			d.press("ctrl+s").want("save this frame").press("t").want("saved as /tmp/frame.txt")
			kept := d.app.config.Frames.(*fakeClipboard)
			check.True(d.t, strings.Contains(string(kept.data), uniqueWord[at]) && !strings.Contains(string(kept.data), "save this frame"),
				"what was saved is not the frame:\n%s", kept.data)
		})
		tell(at, "esc", func(d *driver) { d.press(" ", "esc").wantNot("PAUSED 00:01") })
	}
	return all
}

func TestPrivacyReplacesTheLongerOfTwoNamesFirst(t *testing.T) {
	m := redactions{"10.0.0.1:6379": "node-a", "": "nobody", "10.0.0.1:63790": "node-b"}
	got, want := m.apply("10.0.0.1:63790 is ahead of 10.0.0.1:6379"), "node-b is ahead of node-a"
	check.True(t, got == want, "got %q, want %q", got, want)
}
