package cli

import (
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/tui"
	"locktop/tui/widget"
)

// appearance is how the screen looks.
type appearance struct {
	theme, glyphs string
	calm, noMouse bool
	every         time.Duration
}

func (a *appearance) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Screen", pflag.ContinueOnError)
	set.SortFlags = false
	set.StringVar(&a.theme, "theme", "", "colours: `name` of "+strings.Join(tui.Themes(), ", "))
	set.StringVar(&a.glyphs, "glyphs", "", "what to draw with: `name` of "+strings.Join(widget.GlyphSets(), ", "))
	set.DurationVar(&a.every, "refresh", 250*time.Millisecond, "`time` between two looks at the server")
	set.BoolVar(&a.calm, "no-animation", false, "nothing moves by itself but figures")
	set.BoolVar(&a.noMouse, "no-mouse", false, "leave the mouse to the terminal")
	return set
}

// check refuses names that there are not.
func (a *appearance) check() error {
	if a.theme != "" && !slices.Contains(tui.Themes(), a.theme) {
		return misuse("there are "+strings.Join(tui.Themes(), ", "), "unknown theme %q", a.theme)
	}
	if a.glyphs != "" && !slices.Contains(widget.GlyphSets(), a.glyphs) {
		return misuse("there are "+strings.Join(widget.GlyphSets(), ", "), "unknown glyphs %q", a.glyphs)
	}
	if a.every < 250*time.Millisecond {
		return misuse("", "--refresh: at least 250ms")
	}
	return nil
}

// dress gives a world the look that was asked for. NO_COLOR counts where no
// theme was named.
func (a *appearance) dress(w *tui.World) {
	w.Theme, w.Glyphs, w.Calm, w.NoMouse, w.Every = a.theme, a.glyphs, a.calm, a.noMouse, a.every
	if w.Theme == "" && os.Getenv("NO_COLOR") != "" {
		w.Theme = "mono"
	}
}
