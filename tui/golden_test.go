package tui

import (
	"fmt"
	"testing"
)

func TestGoldenPictures(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {100, 30}, {160, 45}} {
		for _, look := range []string{"system", "mono", "ascii"} {
			w := world()
			w.Theme = map[bool]string{true: "system", false: "mono"}[look == "system"]
			w.Glyphs = map[bool]string{true: "ascii", false: "block"}[look == "ascii"]
			name := fmt.Sprintf("%dx%d-%s", size[0], size[1], look)
			t.Run(name, func(t *testing.T) {
				drive(t, w, func(d *driver) {
					d.size(size[0], size[1])
					d.golden("locks-" + name)
					d.press("3").golden("load-" + name)
					d.press("?").golden("help-" + name)
					d.press("esc", "2").golden("timeline-" + name)
					d.press("4").golden("nodes-" + name)
					d.press("5").golden("findings-" + name)
					d.press("6").golden("events-" + name)
					d.press("1", "j", "enter").golden("lock-" + name)
				})
				drive(t, elected(w), func(d *driver) { d.size(size[0], size[1]).press("4").golden("redlock-" + name) })
			})
		}
	}
}
