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

// The header shows the names of the pages if there is room, and the server in any case.
func TestTheHeaderUsesItsRoom(t *testing.T) {
	w, _ := writeConfig()
	w.Production = true
	drive(t, w, func(d *driver) {
		for width := 66; width <= 200; width += 2 {
			line := d.size(width, 24).line(" locktop ")
			check.True(t, strings.Contains(line, " 127.0.0") && strings.Contains(line, "PRODUCTION"), "at %d columns it is %q", width, line)
			names := strings.Contains(line, "2 Timeline")
			check.True(t, names == (width >= 120) || width > 100 && width < 120, "at %d columns it is %q", width, line)
		}
	})
	r := recorded(t)
	first, final := r.Span()
	p := &fakePlayer{reader: r, playing: PlaybackState{At: first, First: first, Last: final, Speed: 1}}
	drive(t, Config{Source: p, Player: p, Title: "office.lockrec"}, func(d *driver) { d.size(120, 24).want("2 Timeline", "6 Events", "REPLAY") })
}
