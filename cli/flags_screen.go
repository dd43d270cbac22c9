package cli

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"locktop/tui"
	"locktop/tui/widget"
)

// screenFlags holds the flags for the appearance of the screen.
type screenFlags struct {
	theme, glyphs string
	calm, noMouse bool
	every         time.Duration
}

func (a *screenFlags) flags() *pflag.FlagSet {
	set := pflag.NewFlagSet("Screen", pflag.ContinueOnError)
	set.SortFlags = false
	set.StringVar(&a.theme, "theme", "", "`name` of the colours, one of "+strings.Join(tui.Themes(), ", "))
	set.StringVar(&a.glyphs, "glyphs", "", "`name` of the characters to draw with, one of "+strings.Join(widget.GlyphSets(), ", "))
	set.DurationVar(&a.every, "refresh", 250*time.Millisecond, "`time` between two looks at the server")
	set.BoolVar(&a.calm, "no-animation", false, "switch animations off")
	set.BoolVar(&a.noMouse, "no-mouse", false, "leave the mouse to the terminal")
	return set
}

// check returns an error for an unknown name.
func (a *screenFlags) check() error {
	if a.theme != "" && !slices.Contains(tui.Themes(), a.theme) {
		return usageErrorf("there are "+strings.Join(tui.Themes(), ", "), "unknown theme %q", a.theme)
	}
	if a.glyphs != "" && !slices.Contains(widget.GlyphSets(), a.glyphs) {
		return usageErrorf("there are "+strings.Join(widget.GlyphSets(), ", "), "unknown glyphs %q", a.glyphs)
	}
	if a.every < 250*time.Millisecond {
		return usageErrorf("", "--refresh: at least 250ms")
	}
	return nil
}

// applyTo sets the appearance in w. Without a flag the terminal decides: no colour
// under NO_COLOR, ASCII without colour if the locale is not UTF-8, and no styles if
// TERM is dumb.
func (a *screenFlags) applyTo(w *tui.Config) {
	w.Theme, w.Glyphs, w.Calm, w.NoMouse, w.Every = a.theme, a.glyphs, a.calm, a.noMouse, a.every
	w.Dumb = os.Getenv("TERM") == "dumb"
	ascii := !speaksUTF8(os.Getenv)
	if w.Theme == "" && (ascii || os.Getenv("NO_COLOR") != "") {
		w.Theme = "mono"
	}
	if w.Glyphs == "" && ascii {
		w.Glyphs = "ascii"
	}
}

// speaksUTF8 reports whether the locale in env uses UTF-8. It returns true if env
// names no locale.
func speaksUTF8(env func(string) string) bool {
	locale := cmp.Or(env("LC_ALL"), env("LC_CTYPE"), env("LANG"))
	set := strings.ReplaceAll(strings.ToLower(locale), "-", "")
	return locale == "" || strings.Contains(set, "utf8")
}
