package tui

import (
	"fmt"
	"testing"

	"locktop/loadgen"
)

// faultLogConfig returns a Config whose load has a fault log and scenes to choose from.
func faultLogConfig(w Config) Config {
	g := runningLoad()
	w.Load, w.Scenes = g, scenes()
	g.addEvents(acquired(2, "load:1", 20), fault(loadgen.FaultBegan, loadgen.Freeze, 2, ""), acquired(1, "load:1", 21),
		fault(loadgen.FaultEnded, loadgen.Freeze, 2, ""), on(loadgen.FencedWrite, 2, "load:1", 20))
	return w
}

// TestGoldenFrames compares each size in one theme, and each theme and glyph set at one size.
func TestGoldenFrames(t *testing.T) {
	for _, c := range []struct {
		w, h          int
		theme, glyphs string
	}{
		{80, 24, "system", "block"}, {100, 30, "system", "block"}, {160, 45, "system", "block"},
		{100, 30, "mono", "block"}, {100, 30, "mono", "ascii"},
	} {
		w, _ := writeConfig()
		w.Theme, w.Glyphs = c.theme, c.glyphs
		name := fmt.Sprintf("%dx%d-%s", c.w, c.h, c.theme)
		if c.glyphs == "ascii" {
			name = fmt.Sprintf("%dx%d-ascii", c.w, c.h)
		}
		t.Run(name, func(t *testing.T) {
			drive(t, w, func(d *driver) {
				d.app.privacy.salt = [16]byte{} // so that the hashes are the same in every run
				d.size(c.w, c.h)
				d.golden("locks-" + name)
				d.press("3").golden("load-" + name)
				d.press("?").golden("help-" + name)
				d.press("esc", "2").golden("timeline-" + name)
				d.press("4").golden("nodes-" + name)
				d.press("5").golden("findings-" + name)
				d.press("6").golden("events-" + name)
				d.press("1", "j", "enter").wait(2 * tickInterval).golden("lock-" + name)
				d.press("esc", "x").golden("act-" + name)
				d.press("r").golden("confirm-" + name)
				d.press("esc", ":").enter("the").golden("command-" + name)
				d.press("esc", "/").enter("rw").golden("filter-" + name)
				d.press("esc", "@").golden("command-stats-" + name)
				d.press("esc", "p", "1").golden("privacy-" + name)
			})
			drive(t, faultLogConfig(w), func(d *driver) {
				d.size(c.w, c.h).press("m").golden("scenes-" + name)
				d.press("esc", "3").wait(tickInterval).golden("fault-log-" + name)
			})
			agents, _ := agentsConfig(w)
			drive(t, agents, func(d *driver) { d.size(c.w, c.h).press("3").wait(tickInterval).golden("agents-" + name) })
			drive(t, redlockConfig(w), func(d *driver) { d.size(c.w, c.h).press("4").golden("redlock-" + name) })
		})
	}
}
