package tui

import (
	"strings"

	"locktop/humanize"
	"locktop/tui/widget"
)

// severalWere is several with the verb that goes with it.
func severalWere[N int | int64](n N, what string) string {
	if n == 1 {
		return humanize.Plural(n, what) + " was"
	}
	return humanize.Plural(n, what) + " were"
}

// wrap breaks a text into lines of w cells, n at most. What does not fit into
// them ends in an ellipsis.
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
