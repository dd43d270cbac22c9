package cli

import (
	"testing"

	"locktop/internal/check"
	"locktop/tui"
)

func TestTheScreenFitsWhatTheTerminalCanDo(t *testing.T) {
	for _, c := range []struct {
		env           map[string]string
		look          screenFlags
		theme, glyphs string
		dumb          bool
	}{
		{env: map[string]string{"LANG": "en_US.UTF-8"}},
		{env: map[string]string{"LANG": "de_DE.utf8"}},
		{}, // a container: no variable is set
		{env: map[string]string{"LANG": "C"}, theme: "mono", glyphs: "ascii"},
		{env: map[string]string{"LANG": "en_US.UTF-8", "LC_CTYPE": "en_US.ISO-8859-1"}, theme: "mono", glyphs: "ascii"},
		{env: map[string]string{"LC_ALL": "C.UTF-8", "LC_CTYPE": "C", "LANG": "C"}},
		{env: map[string]string{"LANG": "C"}, look: screenFlags{theme: "dark", glyphs: "block"}, theme: "dark", glyphs: "block"},
		{env: map[string]string{"NO_COLOR": "1"}, theme: "mono"},
		{env: map[string]string{"TERM": "dumb"}, dumb: true},
	} {
		for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG", "NO_COLOR", "TERM"} {
			t.Setenv(name, c.env[name])
		}
		var w tui.Config
		c.look.applyTo(&w)
		check.True(t, w.Theme == c.theme && w.Glyphs == c.glyphs && w.Dumb == c.dumb,
			"%v: theme %q, glyphs %q, dumb %v", c.env, w.Theme, w.Glyphs, w.Dumb)
	}
}
