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

func TestGoldenFrames(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {100, 30}, {160, 45}} {
		for _, look := range []string{"system", "mono", "ascii"} {
			w, _ := writeConfig()
			w.Theme = map[bool]string{true: "system", false: "mono"}[look == "system"]
			w.Glyphs = map[bool]string{true: "ascii", false: "block"}[look == "ascii"]
			name := fmt.Sprintf("%dx%d-%s", size[0], size[1], look)
			t.Run(name, func(t *testing.T) {
				drive(t, w, func(d *driver) {
					d.app.privacy.salt = [16]byte{} // so that the hashes are the same in every run
					d.size(size[0], size[1])
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
					d.size(size[0], size[1]).press("m").golden("scenes-" + name)
					d.press("esc", "3").wait(tickInterval).golden("fault-log-" + name)
				})
				agents, _ := agentsConfig(w)
				drive(t, agents, func(d *driver) { d.size(size[0], size[1]).press("3").wait(tickInterval).golden("agents-" + name) })
				drive(t, redlockConfig(w), func(d *driver) { d.size(size[0], size[1]).press("4").golden("redlock-" + name) })
			})
		}
	}
}
