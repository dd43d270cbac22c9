package tui

import (
	"fmt"
	"testing"
)

func TestGoldenPictures(t *testing.T) {
	for _, size := range [][2]int{{80, 24}, {100, 30}, {160, 45}} {
		for _, look := range []string{"system", "mono", "ascii"} {
			w := world()
			w.NoColor, w.ASCII = look != "system", look == "ascii"
			name := fmt.Sprintf("%dx%d-%s", size[0], size[1], look)
			t.Run(name, func(t *testing.T) {
				drive(t, w, func(d *driver) {
					d.size(size[0], size[1])
					d.golden("locks-" + name)
					d.press("3").golden("load-" + name)
					d.press("?").golden("help-" + name)
				})
			})
		}
	}
}
