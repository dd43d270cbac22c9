package tui

import (
	"strings"

	"locktop/tui/widget"
)

// wrap breaks a text into at most n lines of w cells. An ellipsis replaces what does not fit.
func wrap(g widget.Glyphs, text string, w, n int) []string {
	var all []string
	words := strings.Fields(text)
	if n <= 0 {
		return nil
	}
	for len(words) > 0 && len(all) < n-1 {
		line := words[0]
		for words = words[1:]; len(words) > 0 && widget.Width(line)+1+widget.Width(words[0]) <= w; words = words[1:] {
			line += " " + words[0]
		}
		all = append(all, line)
	}
	if len(words) == 0 {
		return all
	}
	return append(all, g.FitEnd(strings.Join(words, " "), w))
}
