package tui

import (
	"strings"
	"testing"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/charmbracelet/x/ansi"

	"locktop/internal/check"
)

// click clicks on the first text of the screen that is this one.
func (d *driver) click(text string) *driver {
	d.t.Helper()
	above, _, found := strings.Cut(d.screen(), text)
	check.Require(d.t, found, "no %q on the screen:\n%s", text, d.screen())
	x := ansi.StringWidth(above[strings.LastIndexByte(above, '\n')+1:]) + 1
	d.deliver(tea.MouseMsg{X: x, Y: strings.Count(above, "\n"), Action: tea.MouseActionPress, Button: tea.MouseButtonLeft})
	return d.settle()
}

func TestASecondClickOpensARow(t *testing.T) {
	w := testConfig()
	drive(t, w, func(d *driver) {
		d.click("lock:orders").want("▌  lock:orders").click("rw:catalog").want("▌  rw:catalog").wantNot("newest first")
		d.click("rw:catalog").want("newest first", "rw:catalog").press("esc")
		d.press("2").click("rw:index").click("rw:index").want("newest first").press("esc")
		d.press("6").click("fair:mail").wantNot("newest first").click("fair:mail").want("newest first").press("esc")
		d.press("3").click(" keys ").want("▌keys").click("▌keys").want("keys: ").press("esc")
		d.press("1").size(40, 10).click("rw:index").click("rw:index").want("time left")
	})
	drive(t, w, func(d *driver) {
		d.click("job:nightly").wantNot("newest first").press("?", "pgdown", "pgdown", "pgdown", "pgdown").want("second click")
	})
}

// A click on a key of the last line presses it. A message there only goes away.
func TestTheKeysOfTheLastLineTakeClicks(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		d.click("/ filter").want("8 of 8").press("esc").press("1").click("? help").want("any other key closes").press("esc")
		d.press("1").click("Enter open").want("newest first").press("esc")
		d.press("K").want("K does nothing").click("K does nothing").wantNot("K does nothing").want("? help")
	})
}

// The smallest windows show one line for each lock, which is selected, and which has a finding.
func TestASmallWindowShowsSelectionAndFindings(t *testing.T) {
	drive(t, testConfig(), func(d *driver) {
		d.size(40, 10).want("▌▲ job:nightly", "cron-2", "never", "13.2 s").wantNot("OWNER").press("j").want(" ▲ job:nightly", "▌● lock:orders")
		d.size(20, 6).want("never").size(1, 1).press("k")
		check.True(t, d.screen() == "▲", "one cell shows %q", d.screen())
	})
}

// The header shows the names of the pages if there is room, and the server in any case.
func TestTheHeaderUsesItsRoom(t *testing.T) {
	w, _ := writeConfig()
	w.Production = true
	drive(t, w, func(d *driver) {
		for width, named := range map[int]bool{80: false, 100: false, 120: true} {
			line := d.size(width, 24).line(" locktop ")
			check.True(t, strings.Contains(line, " 127.0.0.1:6") && strings.Contains(line, "2 Timeline") == named,
				"at %d columns it is %q", width, line)
		}
	})
	r := recorded(t)
	first, final := r.Span()
	p := &fakePlayer{reader: r, playing: PlaybackState{At: first, First: first, Last: final, Speed: 1}}
	drive(t, Config{Source: p, Player: p, Title: "office.lockrec"}, func(d *driver) { d.size(120, 24).want("2 Timeline", "6 Events", "REPLAY") })
}
